// Keeps the nodes of a cluster in memory, as one driver sees them.
import type { Registry } from 'prom-client';
import type { KubeClient } from '../kube/client.ts';
import type { CsiNode, KubeObject, Labels } from '../kube/objects.ts';
import { type Change, startReflector, type Transformed } from '../kube/reflector.ts';
import { csiNodes, nodes } from '../kube/resources.ts';
import type { Logger } from '../runtime/log.ts';
import type {
  ClusterTopology,
  CsiNodeView,
  NodeView,
} from '../volumes/topology/cluster-topology.ts';

/** What has changed of the nodes: a Node came, went, or has other labels; or a CSINode came, went,
 * or has other keys of this driver. */
export interface NodeChange {
  readonly resource: 'nodes' | 'csinodes';
  readonly name: string;
  readonly type: 'added' | 'modified' | 'deleted';
}

export interface NodeWatchOptions {
  readonly client: KubeClient;
  /** Name of the driver, whose keys are kept. */
  readonly driver: string;
  readonly log: Logger;
  readonly metrics?: Registry;
  /** Called for the nodes of the first list too; not for a heartbeat. */
  readonly onChange?: (change: NodeChange) => void;
}

/** The nodes as they are now. */
export interface NodeWatch extends ClusterTopology {
  /** Resolves when all nodes are listed. Rejects with the signal's reason if it aborts before. */
  waitForSync(signal?: AbortSignal): Promise<void>;
  /** Why the view may be out of date, in one line; undefined while it is not. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

type Metadata = Transformed['metadata'];
type StoredNode = NodeView & { readonly metadata: Metadata };
type StoredCsiNode = CsiNodeView & { readonly metadata: Metadata };

/** Lists and watches Nodes, of which the API server sends the metadata alone, and CSINodes. */
export function startNodeWatch(options: NodeWatchOptions): NodeWatch {
  const { client, driver, log, metrics, onChange } = options;
  const shared = { client, log, ...(metrics === undefined ? {} : { metrics }) };
  const tell = (
    resource: NodeChange['resource'],
    { type, object }: Change<{ readonly name: string } & Transformed>,
  ): void => onChange?.({ resource, name: object.name, type });
  const nodeReflector = startReflector<StoredNode>({
    ...shared,
    resource: nodes,
    metadataOnly: true,
    transform: (raw) => toNode(raw as KubeObject, (name) => nodeReflector.get(name)),
    onChange(change) {
      if (change.previous?.labels === change.object.labels && change.type === 'modified') return;
      tell('nodes', change);
    },
  });
  const csiNodeReflector = startReflector<StoredCsiNode>({
    ...shared,
    resource: csiNodes,
    transform: (raw) => toCsiNode(raw as CsiNode, driver),
    onChange(change) {
      const { type, object, previous } = change;
      if (type === 'modified' && isSameList(previous?.topologyKeys, object.topologyKeys)) return;
      tell('csinodes', change);
    },
  });
  return {
    node: (name) => nodeReflector.get(name),
    csiNode: (name) => csiNodeReflector.get(name),
    nodes: () => nodeReflector.list(),
    csiNodes: () => csiNodeReflector.list(),
    async waitForSync(signal) {
      await Promise.all([nodeReflector.waitForSync(signal), csiNodeReflector.waitForSync(signal)]);
    },
    get trouble() {
      return nodeReflector.trouble ?? csiNodeReflector.trouble;
    },
    async stop() {
      await Promise.all([nodeReflector.stop(), csiNodeReflector.stop()]);
    },
  };
}

/** Keeps the known labels where they are equal, so that a heartbeat leaves nothing behind. */
function toNode(
  { metadata }: KubeObject,
  known: (name: string) => NodeView | undefined,
): StoredNode {
  const { name, uid, resourceVersion, labels = {} } = metadata;
  const before = known(name)?.labels;
  const kept = before !== undefined && isSame(before, labels) ? before : labels;
  return { metadata: { name, uid, resourceVersion }, name, labels: kept };
}

function toCsiNode({ metadata, spec }: CsiNode, driver: string): StoredCsiNode {
  const { name, uid, resourceVersion } = metadata;
  const entry = spec.drivers.find((each) => each.name === driver);
  const topologyKeys = entry === undefined ? undefined : (entry.topologyKeys ?? []);
  return { metadata: { name, uid, resourceVersion }, name, topologyKeys };
}

function isSame(a: Labels, b: Labels): boolean {
  const keys = Object.keys(a);
  return (
    keys.length === Object.keys(b).length &&
    keys.every((key) => Object.hasOwn(b, key) && a[key] === b[key])
  );
}

function isSameList(a: readonly string[] | undefined, b: readonly string[] | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.length === b.length && a.every((key, i) => key === b[i]);
}
