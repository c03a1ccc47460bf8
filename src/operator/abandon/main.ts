import { userInfo } from 'node:os';
import type { Redis } from 'ioredis';
import { listReadyNodes, parseService } from '../../gateway-client/node-endpoints.ts';
import type { KubeClient } from '../../kube/client.ts';
import { SELECTED_NODE, VOLUME_FINALIZER } from '../../kube/keys.ts';
import { isConflict, isNotFound } from '../../kube/kube-error.ts';
import type { Claim, KubeObject, Volume } from '../../kube/objects.ts';
import { openKubeClient } from '../../kube/open-client.ts';
import { claims, nodes, volumes } from '../../kube/resources.ts';
import { forgetRecord, type ForgetNote, noteRemoval } from '../../records/forget.ts';
import { openRedisAccess } from '../../redis/access.ts';
import { openRedis } from '../../redis/connection.ts';
import { systemClock } from '../../runtime/clock.ts';
import { UsageError } from '../../runtime/flags.ts';
import { escapeControls } from '../../runtime/printable.ts';
import { runProcess, type Invocation, type ProcessContext } from '../../runtime/process.ts';
import { removeFinalizer } from '../../volumes/finalizer-patches.ts';
import { abandon } from '../flags.ts';
import { type Abandonment, planAbandonment } from './plan-abandonment.ts';

type Context = ProcessContext<typeof abandon.flags>;

/** Ends what waits for a node that is gone for good, or lists it without --yes. Exit status 1 if
 * the node is still there, or a run owns one of the records. */
export function main(invocation: Invocation): Promise<void> {
  const { summary, flags: table } = abandon;
  return runProcess(invocation, { name: 'abandon', summary, table, word: 'NODE', start });
}

async function start(context: Context): Promise<void> {
  const { flags, closers, stdout } = context;
  const [node] = context.words;
  const { driverName: driver, redisPrefix: prefix, why } = flags;
  checkUsage(node, flags);
  const say = (line: string): unknown => stdout.write(`${escapeControls(line)}\n`);
  const log = context.log.child({}, { level: 'warn' });
  const kube = await openKubeClient('abandon', { ...context, log });
  const access = await openRedisAccess({ ...context, log });
  const url = flags.redisUrl;
  const link = openRedis({ url, access, role: 'plain', name: 'sutler-abandon', log });
  closers.add('Redis', () => link.close());

  const there = await whyStillThere(kube, node, flags.gatewayService);
  if (there !== undefined) {
    say(`${there}; nothing was changed`);
    return context.stop(1);
  }
  const place = { prefix, driver, node };
  const found = await planAbandonment(kube, link.redis, place);
  for (const line of describe(found)) say(line);
  if (!flags.yes) {
    say('nothing was changed; if the node is gone for good, run this again with --yes');
    return context.stop(0);
  }
  const note = { by: userInfo().username, why, atMs: systemClock.nowMs() };
  const busy = await carryOut({ kube, redis: link.redis, place, note }, found);
  say(
    busy === 0
      ? 'done'
      : `runs own ${busy} of the records for some seconds more; try again after that`,
  );
  context.stop(busy === 0 ? 0 : 1);
}

function checkUsage(
  node: string | undefined,
  { driverName, why, yes }: Context['flags'],
): asserts node is string {
  if (node === undefined)
    throw new UsageError(
      'name the node: sutler abandon NODE --driver-name=DRIVER --why=REASON [--yes]',
    );
  if (driverName === '')
    throw new UsageError('--driver-name is missing: name the driver that ran on the node');
  if (yes && why === '')
    throw new UsageError('--why is missing: give the reason for abandoning the node; it is kept');
}

/** @returns undefined if the node is gone, as far as the cluster knows */
async function whyStillThere(
  kube: KubeClient,
  node: string,
  gatewayService: string,
): Promise<string | undefined> {
  if ((await kube.get<KubeObject>(nodes, { name: node })) !== undefined)
    return `Node ${node} exists: delete it first (kubectl delete node ${node}), if it will not return`;
  if (gatewayService === '') return undefined;
  const ready = await listReadyNodes(kube, parseService(gatewayService));
  return ready.includes(node) ? `the gateway of node ${node} is ready` : undefined;
}

function* describe({ records, removed, kept, claims: waiting }: Abandonment): Iterable<string> {
  const nameOf = ({ metadata }: KubeObject): string => metadata.name;
  yield `${records.length} open volume records are dropped; a volume of theirs may be on the node`;
  for (const { id, object, state } of records) yield `  ${id} (${state}) of ${object}`;
  yield `${removed.length} PersistentVolumes are removed; their volumes were on the node`;
  for (const volume of removed) yield `  ${nameOf(volume)}`;
  yield `${kept.length} PersistentVolumes of the node stay`;
  for (const { volume, why } of kept) yield `  ${nameOf(volume)}: ${why}`;
  yield `${waiting.length} claims without a volume get another node`;
  for (const claim of waiting) yield `  ${claim.metadata.namespace ?? ''}/${nameOf(claim)}`;
}

interface Means {
  readonly kube: KubeClient;
  readonly redis: Redis;
  readonly place: { readonly prefix: string; readonly driver: string };
  readonly note: ForgetNote;
}

/** @returns how many records a run owns, which therefore stay */
async function carryOut(means: Means, found: Abandonment): Promise<number> {
  const { kube, redis, place, note } = means;
  let busy = 0;
  for (const { id } of found.records)
    if ((await forgetRecord(redis, { ...place, id }, note)).kind === 'busy') busy += 1;
  for (const volume of found.removed) {
    await noteRemoval(redis, { ...place, id: volume.metadata.name }, note);
    await removeVolume(kube, volume);
  }
  for (const claim of found.claims) await unselectNode(kube, claim);
  return busy;
}

async function removeVolume(kube: KubeClient, { metadata }: Volume): Promise<void> {
  const { name, uid } = metadata;
  try {
    const left = await kube.delete<Volume>(volumes, { name }, { preconditions: { uid } });
    const change = left?.metadata && removeFinalizer(left.metadata, VOLUME_FINALIZER);
    if (change === undefined) return;
    const body = { metadata: { uid, ...change.patch } };
    await kube.patch(volumes, { name }, { type: 'strategic', body });
  } catch (error) {
    // It is gone, or another one has its name.
    if (!isNotFound(error) && !isConflict(error)) throw error;
  }
}

async function unselectNode(kube: KubeClient, { metadata }: Claim): Promise<void> {
  const { namespace = '', name, uid, resourceVersion } = metadata;
  const body = { metadata: { uid, resourceVersion, annotations: { [SELECTED_NODE]: null } } };
  try {
    await kube.patch(claims, { namespace, name }, { type: 'merge', body });
  } catch (error) {
    // It was changed meanwhile; its job gives the claim back too, since the node is gone.
    if (!isNotFound(error) && !isConflict(error)) throw error;
  }
}
