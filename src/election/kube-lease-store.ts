import type { KubeClient } from '../kube/client.ts';
import { KubeError } from '../kube/kube-error.ts';
import type { Lease, LeaseSpec } from '../kube/objects.ts';
import { startReflector } from '../kube/reflector.ts';
import { apiVersionOf, leases, selectName } from '../kube/resources.ts';
import type { Logger } from '../runtime/log.ts';
import type { LeaseRecord } from './lease.ts';

/** A Lease as read from its store. */
export interface StoredLease {
  readonly record: LeaseRecord;
  readonly annotations: Readonly<Record<string, string>>;
  /** Opaque. An update is refused when it has changed. */
  readonly version: string;
}

/** Stores one Lease. All calls reject when the store can't be reached. */
export interface LeaseStore {
  /** @returns undefined: there is no Lease */
  get(signal: AbortSignal): Promise<StoredLease | undefined>;
  /** @returns undefined: there is a Lease already */
  create(record: LeaseRecord, signal: AbortSignal): Promise<StoredLease | undefined>;
  /** Replaces the version `over`.
   * @returns undefined: the Lease has another version now, or was deleted */
  update(
    record: LeaseRecord,
    over: StoredLease,
    signal: AbortSignal,
  ): Promise<StoredLease | undefined>;
  /** Calls back with the Lease after each change, undefined when it was deleted. Best effort: only
   * the speed of a take-over depends on it.
   * @returns a function that ends the watch */
  watch(onChange: (lease: StoredLease | undefined) => void): () => void;
}

export interface KubeLeaseStoreOptions {
  readonly client: KubeClient;
  readonly namespace: string;
  readonly name: string;
  /** Merged into the Lease's labels at every write; other labels stay. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Merged into the annotations at every write but that of a release. */
  readonly annotations?: (record: LeaseRecord) => Readonly<Record<string, string>>;
  readonly log: Logger;
}

interface KubeLease extends StoredLease {
  readonly object: Lease;
}

/** Stores the Lease in the API server. Uses only verbs that upstream's role grants: get, list,
 * watch, create and update. */
export class KubeLeaseStore implements LeaseStore {
  readonly #options: KubeLeaseStoreOptions;
  /** As last seen. A Lease that was deleted is created with them again. */
  #annotations: StoredLease['annotations'] = {};

  constructor(options: KubeLeaseStoreOptions) {
    this.#options = options;
  }

  async get(signal: AbortSignal): Promise<StoredLease | undefined> {
    const { client, namespace, name } = this.#options;
    const lease = await client.get<Lease>(leases, { namespace, name }, { signal });
    return lease === undefined ? undefined : this.#see(lease);
  }

  async create(record: LeaseRecord, signal: AbortSignal): Promise<StoredLease | undefined> {
    const { client, namespace, name, labels, annotations } = this.#options;
    const object = {
      apiVersion: apiVersionOf(leases),
      kind: leases.kind,
      metadata: {
        namespace,
        name,
        labels,
        annotations: { ...this.#annotations, ...annotations?.(record) },
      },
      spec: specOf(record),
    };
    return this.#unlessRefused(client.create<Lease>(leases, namespace, object, { signal }));
  }

  async update(
    record: LeaseRecord,
    over: StoredLease,
    signal: AbortSignal,
  ): Promise<StoredLease | undefined> {
    const { client, namespace, name, labels, annotations } = this.#options;
    // This store has read it.
    const { object } = over as KubeLease;
    const isReleased = record.holder === '';
    const next = {
      ...object,
      // Metadata as read, so that other writers' annotations stay. Its resourceVersion makes the
      // server refuse if another process wrote first.
      metadata: {
        ...object.metadata,
        ...(labels === undefined ? {} : { labels: { ...object.metadata.labels, ...labels } }),
        annotations: {
          ...object.metadata.annotations,
          ...(isReleased ? undefined : annotations?.(record)),
        },
      },
      spec: { ...object.spec, ...specOf(record) },
    };
    const ref = { namespace, name };
    return this.#unlessRefused(client.update<Lease>(leases, ref, next, { signal }));
  }

  watch(onChange: (lease: StoredLease | undefined) => void): () => void {
    const { client, namespace, name, log } = this.#options;
    const reflector = startReflector<Lease>({
      client,
      resource: leases,
      namespace,
      fieldSelector: selectName(name),
      transform: (raw) => raw as Lease,
      onChange: ({ type, object }) => onChange(type === 'deleted' ? undefined : this.#see(object)),
      // An interrupted watch needs no warning: the elector reads the Lease regularly.
      log: log.child({}, { level: 'error' }),
    });
    return () => void reflector.stop();
  }

  #see(object: Lease): KubeLease {
    const { annotations = {}, resourceVersion: version } = object.metadata;
    this.#annotations = annotations;
    return { record: leaseRecord(object.spec ?? {}), annotations, version, object };
  }

  /** @returns undefined where another process wrote first, or the Lease was deleted */
  async #unlessRefused(write: Promise<Lease>): Promise<StoredLease | undefined> {
    try {
      return this.#see(await write);
    } catch (error) {
      if (error instanceof KubeError && (error.code === 409 || error.code === 404))
        return undefined;
      throw error;
    }
  }
}

/** Reads the spec of a Lease. */
function leaseRecord(spec: LeaseSpec): LeaseRecord {
  return {
    holder: spec.holderIdentity ?? '',
    durationMs: (spec.leaseDurationSeconds ?? 0) * 1000,
    acquiredMs: parseMicroTime(spec.acquireTime),
    renewedMs: parseMicroTime(spec.renewTime),
    transitions: spec.leaseTransitions ?? 0,
  };
}

function specOf(record: LeaseRecord): LeaseSpec {
  return {
    holderIdentity: record.holder,
    // In whole seconds, as client-go writes it.
    leaseDurationSeconds: Math.max(1, Math.floor(record.durationMs / 1000)),
    acquireTime: formatMicroTime(record.acquiredMs),
    renewTime: formatMicroTime(record.renewedMs),
    leaseTransitions: record.transitions,
  };
}

/** With exactly six fraction digits, which the API server requires. */
function formatMicroTime(ms: number): string {
  return new Date(ms).toISOString().replace('Z', '000Z');
}

function parseMicroTime(text: string | undefined): number {
  const ms = text === undefined ? Number.NaN : Date.parse(text);
  return Number.isNaN(ms) ? 0 : ms;
}
