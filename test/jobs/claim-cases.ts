import assert from 'node:assert/strict';
import { Code } from '#src/csi/status.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import type { Claim } from '#src/kube/objects.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import { claims, type Resource } from '#src/kube/resources.ts';
import { type Clock, systemClock } from '#src/runtime/clock.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { aCluster, type TestNode } from '../topology/fake-cluster.ts';
import { kubeWith } from './parts.ts';
import type { Rig } from './rig.ts';

/* Helpers of the numbered cases of claims: faults of the driver, and what the job knows. */

export const SELECTED_NODE = 'volume.kubernetes.io/selected-node';
export const ALPHA_SELECTED_NODE = 'volume.alpha.kubernetes.io/selected-node';

/** What a claim's job knows of its calls. `none` (upstream: Finished): nothing is begun, or there
 * is no job. `open` (InBackground): a call may be at work. `begun`: calls of earlier runs are
 * over. */
export async function stateOf(rig: Rig, claim: Claim): Promise<'none' | 'open' | 'begun'> {
  const leftMs = await rig.doubtMs(claim);
  if (leftMs === undefined) return 'none';
  return leftMs > 0 ? 'open' : 'begun';
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

/** The API server, which refuses what the test names. */
export function refusing(
  rig: Rig,
  verb: 'get' | 'create' | 'patch' | 'delete',
  code: number,
  isAsked: (plural: string, name: string) => boolean = () => true,
): Pick<Dependencies, 'kube'> {
  const reason = code === 404 ? 'NotFound' : 'x';
  const error = new KubeError({ code, reason, serverMessage: 'not for you' });
  const refuse =
    (call: (...args: never[]) => Promise<unknown>) =>
    (...args: unknown[]): Promise<never> => {
      const [resource, ref] = args as [Resource, { name?: string } | string | undefined];
      const name = typeof ref === 'object' ? (ref.name ?? '') : '';
      if (isAsked(resource.plural, name)) return Promise.reject(error);
      return call(...(args as never[])) as Promise<never>;
    };
  return kubeWith(rig, { [verb]: refuse(rig.kube[verb].bind(rig.kube)) });
}

/** A run whose call has an unknown end: the driver creates the volume and answers
 * DeadlineExceeded. */
export async function loseAnswer(
  rig: Rig,
  claim: Claim,
  parts: Partial<Dependencies> = {},
): Promise<void> {
  rig.onCall = async ({ method, proceed }) => {
    if (method !== 'CreateVolume') return undefined;
    await proceed();
    throw new DriverStatus(Code.DeadlineExceeded, 'out of time');
  };
  assert.equal((await rig.provision(claim, parts)).kind, 'running');
  endFaults(rig);
}

/** Ports with a driver that supports topology.
 * @param nodes by default one with the name `node` */
export function withTopology(
  { parts }: Rig,
  nodes: readonly TestNode[] = [{ name: 'node', labels: { zone: 'a' }, keys: ['zone'] }],
): Partial<Dependencies> {
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
