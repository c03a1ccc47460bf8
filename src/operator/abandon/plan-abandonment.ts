import type { Redis } from 'ioredis';
import { nodeOf } from '../../gateway-client/gateway-address.ts';
import { type KubeClient, listPages } from '../../kube/client.ts';
import { SELECTED_NODE, STORAGE_PROVISIONER } from '../../kube/keys.ts';
import type { Claim, KubeObject, Volume } from '../../kube/objects.ts';
import { claims, nodes, volumes } from '../../kube/resources.ts';
import { type OpenRecord, openRecords } from '../../records/open-records.ts';
import { isOnGoneNode } from '../../node-local/node-rules.ts';

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
  const there = await listAll<KubeObject>(kube, nodes);
  const labels = there.map(({ metadata }) => metadata.labels);
  const place = { driver, node, labels: labels.map((each) => each ?? {}) };
  const removed: Volume[] = [];
  const kept: { volume: Volume; why: string }[] = [];
  for (const volume of await listAll<Volume>(kube, volumes)) {
    if (!isOnGoneNode(volume, place)) continue;
    const why = await whyKept(kube, volume);
    if (why === undefined) removed.push(volume);
    else kept.push({ volume, why });
  }
  const waiting = (await listAll<Claim>(kube, claims)).filter(
    ({ metadata: { annotations = {} }, spec }) =>
      annotations[STORAGE_PROVISIONER] === driver && (spec.volumeName ?? '') === '',
  );
  const selectedNode = ({ metadata }: Claim): string | undefined =>
    metadata.annotations?.[SELECTED_NODE];
  const names = new Set<string | undefined>(there.map(({ metadata }) => metadata.name));
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

async function listAll<T extends KubeObject>(
  kube: Pick<KubeClient, 'list'>,
  resource: Parameters<typeof listPages>[1],
): Promise<readonly T[]> {
  const found: T[] = [];
  for await (const { items } of listPages<T>(kube, resource)) found.push(...items);
  return found;
}
