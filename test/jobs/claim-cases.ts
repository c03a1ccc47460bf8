import assert from 'node:assert/strict';
import { Code } from '#src/csi/status.ts';
import type { Parts } from './parts.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { type Clock, systemClock } from '#src/runtime/clock.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { aCluster, type TestNode } from '../topology/fake-cluster.ts';
import type { Rig } from './rig.ts';

/* Helpers of the numbered cases of claims: faults of the driver, and the state of the record. */

export const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
export const ALPHA_SELECTED_NODE = 'volume.alpha.kubernetes.io/selected-node';

/** The state of a claim's record, in place of upstream's four states. `none` (upstream: Finished):
 * nothing is open, and the claim is planned anew. `open` (InBackground): a call ended ambiguously.
 * `suspect`: the driver refused after such a call. `answered`: the volume is created, its PV is not
 * written. Upstream's NoChange is the state before the run. */
export type RecordState = 'none' | 'open' | 'suspect' | 'answered' | 'stored';

export async function stateOf(rig: Rig, { metadata }: Claim): Promise<RecordState> {
  const { state, amb, ans } = await rig.record(metadata.uid);
  if (state === undefined) return 'none';
  if (state === 'suspect' || state === 'stored') return state;
  assert.equal(state, 'creating');
  if (ans !== undefined) return 'answered';
  assert.equal(amb, '1', 'open without a run, and not ambiguous');
  return 'open';
}

/** Creates a claim with additional annotations. */
export async function annotatedClaim(
  rig: Rig,
  annotations: Readonly<Record<string, string>>,
): Promise<Claim> {
  const { namespace = '', name } = (await rig.claim()).metadata;
  return rig.kube.patch<Claim>(
    claims,
    { namespace, name },
    { type: 'merge', body: { metadata: { annotations } } },
  );
}

/** Reads the claim again. */
export async function claimNow(
  rig: Rig,
  { metadata: { namespace = '', name } }: Claim,
): Promise<Claim | undefined> {
  return rig.kube.get<Claim>(claims, { namespace, name });
}

/** Deletes a claim with all its finalizers. */
export async function removeClaim(
  rig: Rig,
  { metadata: { namespace = '', name } }: Claim,
): Promise<void> {
  await rig.kube.patch(
    claims,
    { namespace, name },
    { type: 'merge', body: { metadata: { finalizers: null } } },
  );
  await rig.kube.delete(claims, { namespace, name });
}

export function callsOf(rig: Rig, method: 'CreateVolume' | 'DeleteVolume'): readonly DriverCall[] {
  return rig.driver.calls.filter((call) => call.method === method);
}

/** The events that were recorded, as "Warning ProvisioningFailed text", without those of slow
 * calls: on a busy machine any call may be slow. */
export function messagesOf(rig: Rig): readonly string[] {
  const events = rig.events.filter(
    ({ message }) => !message.startsWith('External provisioner is provisioning volume'),
  );
  return events.map(({ type, reason, message }) => `${type} ${reason} ${message}`);
}

/** Makes the driver refuse every call of a method. */
export function failWith(
  rig: Rig,
  status: DriverStatus,
  failing: 'CreateVolume' | 'DeleteVolume' = 'CreateVolume',
): void {
  rig.onCall = ({ method }) => {
    if (method === failing) throw status;
    return undefined;
  };
}

/** Makes the driver return this answer to every CreateVolume, without creating anything. */
export function answerWith(rig: Rig, answer: unknown): void {
  rig.onCall = ({ method }) => (method === 'CreateVolume' ? answer : undefined);
}

/** Makes the driver work normally again. */
export function endFaults(rig: Rig): void {
  rig.onCall = () => undefined;
}

/** A run with an ambiguous call: the driver creates the volume and answers DeadlineExceeded. */
export async function loseAnswer(
  rig: Rig,
  claim: Claim,
  parts: Partial<Parts> = {},
): Promise<void> {
  rig.onCall = async ({ method, proceed }) => {
    if (method !== 'CreateVolume') return undefined;
    await proceed();
    throw new DriverStatus(Code.DeadlineExceeded, 'out of time');
  };
  assert.equal((await rig.provision(claim, parts)).kind, 'running');
  endFaults(rig);
}

/** Makes the record's last ambiguous call older than the settle time. */
export async function passSettleTime(rig: Rig, { metadata }: Claim): Promise<void> {
  await rig.redis.hset(`{csi}:volume:sample.csi.sutler.dev:${metadata.uid}`, 'call', '1');
}

/** Ports with a driver that supports topology.
 * @param nodes by default one with the name `node` */
export function withTopology(
  { parts }: Rig,
  nodes: readonly TestNode[] = [{ name: 'node', labels: { zone: 'a' }, keys: ['zone'] }],
): Partial<Parts> {
  const facts = parts.facts();
  return {
    topology: () => aCluster(nodes),
    facts: () => ({
      ...facts,
      pluginCapabilities: new Set([
        ...facts.pluginCapabilities,
        'VOLUME_ACCESSIBILITY_CONSTRAINTS',
      ]),
    }),
  };
}

/** A clock that does not advance, so that only the number of calls ends a clean-up. It is an hour
 * ahead, so that the gateway does not refuse calls as too late. */
export function frozenClock(): Clock {
  const nowMs = Date.now() + 3_600_000;
  return { ...systemClock, nowMs: () => nowMs };
}
