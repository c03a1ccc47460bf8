import type { Registry } from 'prom-client';
import type { KubeClient } from '../kube/client.ts';
import type { CsiNode, KubeObject, Labels } from '../kube/objects.ts';
import { type Reflector, startReflector, type Transformed } from '../kube/reflector.ts';
import { csiNodes, nodes, selectName } from '../kube/resources.ts';
import type { Logger } from '../runtime/log.ts';
import type {
  ClusterTopology,
  ComputedTopology,
  CsiNodeView,
  NodeView,
} from './cluster-topology.ts';

export interface NodeWatchOptions {
  readonly client: KubeClient;
  /** The driver whose topology keys are kept. */
  readonly driver: string;
  /** The only node to watch; undefined for all. */
  readonly ownNode?: string | undefined;
  readonly log: Logger;
  readonly metrics?: Registry;
  /** Called when a Node is added, removed or has other labels, and when a CSINode is added, removed
   * or has other keys of this driver. Also for the first list, but not for a heartbeat. */
  readonly onChange?: () => void;
}

type Metadata = Transformed['metadata'];
type StoredNode = NodeView & { readonly metadata: Metadata };
type StoredCsiNode = CsiNodeView & { readonly metadata: Metadata };

/** The present nodes: lists and watches Nodes (only their metadata) and CSINodes. */
export class NodeWatch implements ClusterTopology {
  readonly #nodes: Reflector<StoredNode>;
  readonly #csiNodes: Reflector<StoredCsiNode>;
  #computed: ComputedTopology = { terms: new Map() };

  constructor({ client, driver, ownNode, log, metrics, onChange }: NodeWatchOptions) {
    const shared = {
      client,
      log,
      ...(metrics === undefined ? {} : { metrics }),
      ...(ownNode === undefined ? {} : { fieldSelector: selectName(ownNode) }),
    };
    const tell = (): void => {
      this.#computed = { terms: new Map() };
      onChange?.();
    };
    this.#nodes = startReflector<StoredNode>({
      ...shared,
      resource: nodes,
      metadataOnly: true,
      transform: (raw) => toNode(raw as KubeObject, (name) => this.#nodes.get(name)),
      onChange(change) {
        const isSame = change.previous?.labels === change.object.labels;
        if (change.type !== 'modified' || !isSame) tell();
      },
    });
    this.#csiNodes = startReflector<StoredCsiNode>({
      ...shared,
      resource: csiNodes,
      transform: (raw) => toCsiNode(raw as CsiNode, driver),
      onChange(change) {
        const isSame = isSameList(change.previous?.topologyKeys, change.object.topologyKeys);
        if (change.type !== 'modified' || !isSame) tell();
      },
    });
  }

  /** Whether all nodes are listed. */
  get hasSynced(): boolean {
    return this.#nodes.hasSynced && this.#csiNodes.hasSynced;
  }

  get computed(): ComputedTopology {
    return this.#computed;
  }

  /** Why the view may be out of date, in one line; undefined while it is not. */
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

  /** Resolves when all nodes are listed. Rejects with the signal's reason if it aborts before. */
  async waitForSync(signal?: AbortSignal): Promise<void> {
    await Promise.all([this.#nodes.waitForSync(signal), this.#csiNodes.waitForSync(signal)]);
  }

  async stop(): Promise<void> {
    await Promise.all([this.#nodes.stop(), this.#csiNodes.stop()]);
  }
}

/** Keeps the known object of equal labels, so that a heartbeat needs no memory. */
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
  // The API server writes null for an empty list, after the last driver of a node is gone.
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
