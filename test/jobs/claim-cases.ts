import assert from 'node:assert/strict';
import { Code } from '#src/csi/status.ts';
import type { ProcessorPorts } from '#src/jobs/ports.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { systemClock, type Clock } from '#src/runtime/clock.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import type { Rig } from './rig.ts';

/* What the numbered cases of claims have in common: faults of the driver and of the API server, and
 * a word for what the record says. */

export const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
export const ALPHA_SELECTED_NODE = 'volume.alpha.kubernetes.io/selected-node';

/** What is known of a claim's volume, in place of upstream's four states. Finished: `none`, nothing
 * is open and the claim is planned anew. InBackground: `open`, a call of unknown end. `suspect`: it
 * was refused after such a call. `answered`: the volume is made, its PV is not. NoChange: as it was
 * before. */
export type RecordState = 'none' | 'open' | 'suspect' | 'answered' | 'stored';

export async function stateOf(rig: Rig, { metadata }: Claim): Promise<RecordState> {
  const { state, amb, ans } = await rig.record(metadata.uid);
  if (state === undefined) return 'none';
  if (state === 'suspect' || state === 'stored') return state;
  assert.equal(state, 'creating');
  if (ans !== undefined) return 'answered';
  assert.equal(amb, '1', 'open with nobody at work, and not ambiguous');
  return 'open';
}

/** A claim with more annotations. */
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

/** The claim as it is stored now. */
export async function claimNow(
  rig: Rig,
  { metadata: { namespace = '', name } }: Claim,
): Promise<Claim | undefined> {
  return rig.kube.get<Claim>(claims, { namespace, name });
}

/** Deletes a claim for good, as if nobody held it. */
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

/** Events so far, "Warning ProvisioningFailed text", but for the one of calls that take long: on a
 * busy machine any may. */
export function messagesOf(rig: Rig): readonly string[] {
  const told = rig.events.filter(
    ({ message }) => !message.startsWith('External provisioner is provisioning volume'),
  );
  return told.map(({ type, reason, message }) => `${type} ${reason} ${message}`);
}

/** Has the driver refuse every call of a method. */
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

/** Has the driver answer every CreateVolume so, and do nothing. */
export function answerWith(rig: Rig, answer: unknown): void {
  rig.onCall = ({ method }) => (method === 'CreateVolume' ? answer : undefined);
}

/** Lets the driver work as it does. */
export function heal(rig: Rig): void {
  rig.onCall = () => undefined;
}

/** One run whose end is unknown: the driver made the volume and told only that it was out of time.
 */
export async function loseAnswer(
  rig: Rig,
  claim: Claim,
  ports: Partial<ProcessorPorts> = {},
): Promise<void> {
  rig.onCall = async ({ method, proceed }) => {
    if (method !== 'CreateVolume') return undefined;
    await proceed();
    throw new DriverStatus(Code.DeadlineExceeded, 'out of time');
  };
  assert.equal((await rig.provision(claim, ports)).kind, 'running');
  heal(rig);
}

/** The calls of unknown end have settled: nothing of ours is at work in the driver any more. */
export async function settle(rig: Rig, { metadata }: Claim): Promise<void> {
  await rig.redis.hset(`{csi}:volume:sample.csi.sutler.dev:${metadata.uid}`, 'call', '1');
}

/** The driver with topology. */
export function withTopology({ ports }: Rig): Partial<ProcessorPorts> {
  const facts = ports.driver();
  return {
    driver: () => ({
      ...facts,
      pluginCapabilities: new Set([
        ...facts.pluginCapabilities,
        'VOLUME_ACCESSIBILITY_CONSTRAINTS',
      ]),
    }),
  };
}

/** Stands still, so that only the number of calls ends a clean-up; an hour ahead, so that no
 * gateway takes its calls for late. */
export function standingClock(): Clock {
  const nowMs = Date.now() + 3_600_000;
  return { ...systemClock, nowMs: () => nowMs };
}
