// Keeps the nodes of a cluster in memory, as one driver sees them.
import type { Registry } from 'prom-client';
import type { KubeClient } from '../kube/client.ts';
import type { CsiNode, KubeObject, Labels } from '../kube/objects.ts';
import {
  type Change,
  type Reflector,
  startReflector,
  type Transformed,
} from '../kube/reflector.ts';
import { csiNodes, nodes, selectName } from '../kube/resources.ts';
import type { Logger } from '../runtime/log.ts';
import type { ComputedTopology, CsiNodeView, NodeView } from './cluster-topology.ts';
import type { WatchedTopology } from './requirement.ts';
import { fingerprintCsiNodes, fingerprintNodes } from './fingerprint.ts';

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
  /** The only node to watch; undefined for all. */
  readonly ownNode?: string | undefined;
  readonly log: Logger;
  readonly metrics?: Registry;
  /** Called for the nodes of the first list too; not for a heartbeat. */
  readonly onChange?: (change: NodeChange) => void;
}

/** The nodes as they are now. */
export interface NodeWatch extends WatchedTopology {
  /** Whether all nodes are listed. */
  readonly hasSynced: boolean;
  /** Resolves when all nodes are listed. Rejects with the signal's reason if it aborts before. */
  waitForSync(signal?: AbortSignal): Promise<void>;
  /** Why the view may be out of date, in one line; undefined while it is not. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

type Metadata = Transformed['metadata'];
type StoredNode = NodeView & { readonly metadata: Metadata };
type StoredCsiNode = CsiNodeView & { readonly metadata: Metadata };
type Stored = StoredNode | StoredCsiNode;

/** Lists and watches Nodes, of which the API server sends the metadata alone, and CSINodes. */
export function startNodeWatch(options: NodeWatchOptions): NodeWatch {
  return new NodeReflectors(options);
}

class NodeReflectors implements NodeWatch {
  readonly #nodes: Reflector<StoredNode>;
  readonly #csiNodes: Reflector<StoredCsiNode>;
  /** The fingerprints, where no change has made them outdated. */
  #versions: Partial<Record<NodeChange['resource'], string>> = {};
  #computed: ComputedTopology = { terms: new Map() };

  constructor({ client, driver, ownNode, log, metrics, onChange }: NodeWatchOptions) {
    const shared = {
      client,
      log,
      ...(metrics === undefined ? {} : { metrics }),
      ...(ownNode === undefined ? {} : { fieldSelector: selectName(ownNode) }),
    };
    const tell = (resource: NodeChange['resource'], change: Change<Stored>): void => {
      // The values of nodes count only for keys that some CSINode has.
      this.#versions = {};
      this.#computed = { terms: new Map() };
      onChange?.({ resource, name: change.object.name, type: change.type });
    };
    this.#nodes = startReflector<StoredNode>({
      ...shared,
      resource: nodes,
      metadataOnly: true,
      transform: (raw) => toNode(raw as KubeObject, (name) => this.#nodes.get(name)),
      onChange(change) {
        const isSame = change.previous?.labels === change.object.labels;
        if (change.type !== 'modified' || !isSame) tell('nodes', change);
      },
    });
    this.#csiNodes = startReflector<StoredCsiNode>({
      ...shared,
      resource: csiNodes,
      transform: (raw) => toCsiNode(raw as CsiNode, driver),
      onChange(change) {
        const isSame = isSameList(change.previous?.topologyKeys, change.object.topologyKeys);
        if (change.type !== 'modified' || !isSame) tell('csinodes', change);
      },
    });
  }

  get hasSynced(): boolean {
    return this.#nodes.hasSynced && this.#csiNodes.hasSynced;
  }

  get computed(): ComputedTopology {
    return this.#computed;
  }

  get trouble(): string | undefined {
    return this.#nodes.trouble ?? this.#csiNodes.trouble;
  }

  node(name: string): NodeView | undefined {
    return this.#nodes.get(name);
  }

  csiNode(name: string): CsiNodeView | undefined {
    return this.#csiNodes.get(name);
  }

  nodes(): Iterable<NodeView> {
    return this.#nodes.list();
  }

  csiNodes(): Iterable<CsiNodeView> {
    return this.#csiNodes.list();
  }

  versionOf(resource: NodeChange['resource']): string {
    return (this.#versions[resource] ??=
      resource === 'nodes'
        ? fingerprintNodes(this.nodes(), this.csiNodes())
        : fingerprintCsiNodes(this.csiNodes()));
  }

  async waitForSync(signal?: AbortSignal): Promise<void> {
    await Promise.all([this.#nodes.waitForSync(signal), this.#csiNodes.waitForSync(signal)]);
  }

  async stop(): Promise<void> {
    await Promise.all([this.#nodes.stop(), this.#csiNodes.stop()]);
  }
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
  // The API server writes an empty list as null: when the last driver of a node has gone.
  const drivers = spec.drivers as CsiNode['spec']['drivers'] | null;
  const entry = drivers?.find((each) => each.name === driver);
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
