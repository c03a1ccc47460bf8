import type { Redis } from 'ioredis';
import { listReadyNodes, parseService } from '../gateway-client/endpoints.ts';
import { nodeOf } from '../gateway-client/gateway-address.ts';
import { type KubeClient, listAll } from '../kube/client.ts';
import { SELECTED_NODE, STORAGE_PROVISIONER, VOLUME_FINALIZER } from '../kube/keys.ts';
import { isConflict, isNotFound } from '../kube/kube-error.ts';
import type { Claim, KubeObject, Volume } from '../kube/objects.ts';
import { claims, nameOf, nodes, volumes } from '../kube/resources.ts';
import { isOnGoneNode } from '../node-local/node-rules.ts';
import { type ForgetNote, forgetRecord, noteRemoval } from '../records/forget.ts';
import { type OpenRecord, openRecords } from '../records/open-records.ts';
import type { DriverPlace } from '../redis/key-prefix.ts';
import { type Flags, UsageError } from '../runtime/flags.ts';
import { removeFinalizer } from '../volumes/finalizer-patches.ts';
import {
  chooseDriver,
  didYouMean,
  type Means,
  noteOf,
  Refusal,
  type Result,
  commandMain,
} from './command.ts';
import { abandon } from './flags.ts';

/** Ends what waits for a node that is gone for good, or lists it without --yes. */
export const main = commandMain({ name: 'abandon', ...abandon }, run);

async function run(means: Means<typeof abandon.flags>): Promise<Result> {
  const { flags, words } = means.context;
  const [node] = words;
  checkUsage(node, flags);
  const kube = await means.openKube(flags);
  const redis = await means.openRedis();
  const prefix = flags.redisPrefix;
  const driver = await chooseDriver(redis, prefix, flags.driverName);
  const there = await whyStillThere(kube, node, flags.gatewayService);
  if (there !== undefined) throw new Refusal(`${there}; nothing was changed`);
  const found = await planAbandonment(kube, redis, { prefix, driver, node });
  const { records, removed, kept, claims: waiting, goneNodes } = found;
  if (records.length + removed.length + kept.length + waiting.length === 0)
    throw new Refusal(
      `nothing of driver ${driver} waits for a node ${node}${didYouMean(node, goneNodes)}`,
    );
  const lines = [...describe(found)];
  const json = {
    driver,
    node,
    records,
    removed: removed.map(nameOf),
    kept: kept.map(({ volume, why }) => ({ volume: nameOf(volume), why })),
    claims: waiting.map(nameOf),
    isDone: flags.yes,
  };
  if (!flags.yes) {
    const next = 'nothing was changed; if the node is gone for good, run this again with --yes';
    return { status: 0, lines: [...lines, next], json };
  }
  lines.forEach(means.say);
  const place = { prefix, driver, note: noteOf(flags.why) };
  const busy = await carryOut(kube, redis, found, place);
  if (busy > 0)
    throw new Refusal(
      `runs own ${busy} of the records for some seconds more; try again after that`,
    );
  return { status: 0, lines: ['done'], json };
}

function checkUsage(
  node: string | undefined,
  { why, yes }: Flags<typeof abandon.flags>,
): asserts node is string {
  if (node === undefined)
    throw new UsageError('name the node: sutler abandon NODE --why=REASON [--yes]');
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
  yield `${records.length} open volume records are dropped; a volume of theirs may be on the node`;
  for (const { id, object, state } of records) yield `  ${id} (${state}) of ${object}`;
  yield `${removed.length} PersistentVolumes are removed; their volumes were on the node`;
  for (const volume of removed) yield `  ${nameOf(volume)}`;
  yield `${kept.length} PersistentVolumes of the node stay`;
  for (const { volume, why } of kept) yield `  ${nameOf(volume)}: ${why}`;
  yield `${waiting.length} claims without a volume get another node`;
  for (const claim of waiting) yield `  ${nameOf(claim)}`;
}

/** @returns how many records a run owns, which therefore stay */
async function carryOut(
  kube: KubeClient,
  redis: Redis,
  found: Abandonment,
  { note, ...place }: DriverPlace & { readonly note: ForgetNote },
): Promise<number> {
  let busy = 0;
  for (const { id } of found.records)
    if ((await forgetRecord(redis, { ...place, id }, note)).kind === 'busy') busy += 1;
  for (const volume of found.removed) {
    await noteRemoval(redis, { ...place, id: volume.metadata.name }, note);
    // It may be gone, or another one may have its name.
    await unlessChanged(removeVolume(kube, volume));
  }
  // A claim that was changed meanwhile is given back by its job too, since the node is gone.
  for (const claim of found.claims) await unlessChanged(unselectNode(kube, claim));
  return busy;
}

async function unlessChanged(write: Promise<void>): Promise<void> {
  await write.catch((error: unknown) => {
    if (!isNotFound(error) && !isConflict(error)) throw error;
  });
}

async function removeVolume(kube: KubeClient, { metadata }: Volume): Promise<void> {
  const { name, uid } = metadata;
  const left = await kube.delete<Volume>(volumes, { name }, { preconditions: { uid } });
  const change = left?.metadata && removeFinalizer(left.metadata, VOLUME_FINALIZER);
  if (change === undefined) return;
  const body = { metadata: { uid, ...change.patch } };
  await kube.patch(volumes, { name }, { type: 'strategic', body });
}

async function unselectNode(kube: KubeClient, { metadata }: Claim): Promise<void> {
  const { uid, resourceVersion } = metadata;
  const body = { metadata: { uid, resourceVersion, annotations: { [SELECTED_NODE]: null } } };
  await kube.patch(claims, metadata, { type: 'merge', body });
}

/** What `sutler abandon` ends or removes, and what it leaves. */
export interface Abandonment {
  /** Open records of calls through the node's gateway. */
  readonly records: readonly OpenRecord[];
  /** PVs of volumes that were on the node, with the policy Delete, whose claim is gone. */
  readonly removed: readonly Volume[];
  /** The other PVs of such volumes, and why each stays. */
  readonly kept: readonly { readonly volume: Volume; readonly why: string }[];
  /** Claims without a volume for which the node is selected. */
  readonly claims: readonly Claim[];
  /** Nodes that open records and claims of the driver wait for, and that the cluster lacks. */
  readonly goneNodes: readonly string[];
}

/** Finds out what `sutler abandon` would do. Changes nothing. */
export async function planAbandonment(
  kube: Pick<KubeClient, 'get' | 'list'>,
  redis: Redis,
  where: { readonly node: string; readonly driver: string; readonly prefix: string },
): Promise<Abandonment> {
  const { node, driver, prefix } = where;
  const open = await openRecords(redis, prefix, driver);
  const records = open.filter(({ endpoint }) => nodeOf(endpoint) === node);
  const names = new Set<string | undefined>();
  const labels: Readonly<Record<string, string>>[] = [];
  for await (const { metadata } of listAll<KubeObject>(kube, nodes)) {
    names.add(metadata.name);
    labels.push(metadata.labels ?? {});
  }
  const place = { driver, node, labels };
  const removed: Volume[] = [];
  const kept: { volume: Volume; why: string }[] = [];
  for await (const volume of listAll<Volume>(kube, volumes)) {
    if (!isOnGoneNode(volume, place)) continue;
    const why = await whyKept(kube, volume);
    if (why === undefined) removed.push(volume);
    else kept.push({ volume, why });
  }
  const waiting: Claim[] = [];
  for await (const claim of listAll<Claim>(kube, claims)) {
    const isOurs = claim.metadata.annotations?.[STORAGE_PROVISIONER] === driver;
    if (isOurs && (claim.spec.volumeName ?? '') === '') waiting.push(claim);
  }
  const selectedNode = ({ metadata }: Claim): string | undefined =>
    metadata.annotations?.[SELECTED_NODE];
  const awaited = [...open.map(({ endpoint }) => nodeOf(endpoint)), ...waiting.map(selectedNode)];
  return {
    records,
    removed,
    kept,
    claims: waiting.filter((claim) => selectedNode(claim) === node),
    goneNodes: awaited.flatMap((each) => (names.has(each) ? [] : (each ?? []))),
  };
}

async function whyKept(
  kube: Pick<KubeClient, 'get'>,
  { spec }: Volume,
): Promise<string | undefined> {
  const policy = spec.persistentVolumeReclaimPolicy ?? 'not set';
  if (policy !== 'Delete') return `its reclaim policy is ${policy}`;
  const { namespace = '', name = '', uid } = spec.claimRef ?? {};
  // One that is reserved for a claim by its name alone has no UID until it is bound.
  if (name === '' || (uid ?? '') === '') return 'it was never bound to a claim';
  const claim = await kube.get<Claim>(claims, { namespace, name });
  if (claim === undefined || claim.metadata.uid !== uid) return undefined;
  return `claim ${namespace}/${name} has it; its data is lost with the node: delete the claim first`;
}
