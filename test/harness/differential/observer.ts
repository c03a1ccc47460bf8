import { setTimeout as delay } from 'node:timers/promises';
import { type Connection, listAt } from '../../conformance/connection.ts';

/** The fields of an API object that are compared. */
export interface Seen {
  readonly kind?: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly uid: string;
    readonly finalizers?: readonly string[];
    readonly labels?: Readonly<Record<string, string>>;
    readonly ownerReferences?: readonly Readonly<Record<string, unknown>>[];
    readonly annotations?: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
  };
  readonly spec?: Readonly<Record<string, unknown>>;
  readonly status?: { readonly phase?: string };
}

/** A CSIStorageCapacity. */
export interface SeenCapacity extends Seen {
  readonly storageClassName: string;
  readonly nodeTopology?: { readonly matchLabels?: Readonly<Record<string, string>> };
  readonly capacity?: string;
  readonly maximumVolumeSize?: string;
}

export interface SeenEvent {
  readonly type: string;
  readonly reason: string;
  readonly message: string;
  readonly reportingComponent?: string;
  readonly source?: { readonly component?: string };
  readonly involvedObject: {
    readonly kind: string;
    readonly name: string;
    readonly namespace?: string;
    readonly uid?: string;
  };
}

interface ClusterObjects {
  readonly claims: readonly Seen[];
  readonly volumes: readonly Seen[];
  readonly snapshots: readonly Seen[];
  readonly capacities: readonly SeenCapacity[];
  readonly events: readonly SeenEvent[];
}

const PATHS = {
  claims: '/api/v1/persistentvolumeclaims',
  volumes: '/api/v1/persistentvolumes',
  snapshots: '/apis/snapshot.storage.k8s.io/v1/volumesnapshots',
  capacities: '/apis/storage.k8s.io/v1/csistoragecapacities',
  events: '/api/v1/events',
} as const;
const EVERY_MS = 400;

/** Lists all objects at an interval, for all scenarios together: a hundred scenarios that list for
 * themselves would overload the API server. */
export class Observer {
  readonly #api: Connection;
  readonly #stopping = new AbortController();
  readonly #listing: Promise<void>;
  /** Kind and name by UID, of all objects listed so far. */
  readonly #kinds = new Map<string, string>();
  /** Number of objects so far by kind, namespace and name. */
  readonly #counts = new Map<string, number>();
  #objects: ClusterObjects = {
    claims: [],
    volumes: [],
    snapshots: [],
    capacities: [],
    events: [],
  };
  #waiting: (() => void)[] = [];

  constructor(api: Connection) {
    this.#api = api;
    this.#listing = this.#listRepeatedly();
  }

  get objects(): ClusterObjects {
    return this.#objects;
  }

  /** UID → "PersistentVolumeClaim data", of all objects listed so far. */
  get uids(): ReadonlyMap<string, string> {
    return this.#kinds;
  }

  /** Numbers successive objects of the same name. */
  remember(kind: string, { metadata: { uid, namespace = '', name } }: Seen): void {
    if (this.#kinds.has(uid)) return;
    const place = `${kind} ${namespace}/${name}`;
    const count = (this.#counts.get(place) ?? 0) + 1;
    this.#counts.set(place, count);
    this.#kinds.set(uid, count === 1 ? `${kind} ${name}` : `${kind} ${name}, object ${count}`);
  }

  /** Resolves after lists that began after this call. */
  async next(): Promise<ClusterObjects> {
    for (let round = 0; round < 2; round++)
      await new Promise<void>((done) => this.#waiting.push(done));
    return this.#objects;
  }

  async close(): Promise<void> {
    this.#stopping.abort();
    await this.#listing;
  }

  async #listRepeatedly(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      const [claims, volumes, snapshots, capacities, events] = await Promise.all([
        this.#list<Seen>('claims', 'PersistentVolumeClaim'),
        this.#list<Seen>('volumes', 'PersistentVolume'),
        this.#list<Seen>('snapshots', 'VolumeSnapshot'),
        this.#list<SeenCapacity>('capacities'),
        this.#list<SeenEvent>('events'),
      ]);
      this.#objects = { claims, volumes, snapshots, capacities, events };
      const waiting = this.#waiting;
      this.#waiting = [];
      for (const resolve of waiting) resolve();
      await delay(EVERY_MS, undefined, { signal: this.#stopping.signal }).catch(() => undefined);
    }
  }

  async #list<T>(what: keyof typeof PATHS, kind?: string): Promise<readonly T[]> {
    const reply = await this.#api.get(PATHS[what], { resourceVersion: '0' });
    if (reply.status !== 200) return [];
    const items = listAt(reply.body, 'items') as readonly T[];
    if (kind !== undefined) for (const item of items) this.remember(kind, item as Seen);
    return items;
  }
}
