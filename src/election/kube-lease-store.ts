import type { KubeClient } from '../kube/client.ts';
import { KubeError } from '../kube/kube-error.ts';
import type { Lease, LeaseSpec } from '../kube/objects.ts';
import { startReflector } from '../kube/reflector.ts';
import { apiVersionOf, leases, selectName } from '../kube/resources.ts';
import type { Logger } from '../runtime/log.ts';
import type { LeaseRecord, StoredLease } from './lease.ts';

export interface KubeLeaseStoreOptions {
  readonly client: KubeClient;
  readonly namespace: string;
  readonly name: string;
  /** Merged into the Lease's labels at every write; other labels stay. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Merged into the annotations at every write except a release. */
  readonly annotations?: (record: LeaseRecord) => Readonly<Record<string, string>>;
  readonly log: Logger;
}

interface KubeLease extends StoredLease {
  readonly object: Lease;
}

/** What an elector needs. */
export type LeaseStore = Pick<KubeLeaseStore, 'get' | 'write' | 'watch'>;

/** Stores one Lease in the API server. Uses only verbs that upstream's role grants: get, list,
 * watch, create and update. All calls reject when the API server can't be reached. */
export class KubeLeaseStore {
  readonly #options: KubeLeaseStoreOptions;
  /** As last seen; used to create a Lease again that was deleted. */
  #annotations: StoredLease['annotations'] = {};

  constructor(options: KubeLeaseStoreOptions) {
    this.#options = options;
  }

  /** @returns undefined: there is no Lease */
  async get(signal: AbortSignal): Promise<StoredLease | undefined> {
    const { client, namespace, name } = this.#options;
    const lease = await client.get<Lease>(leases, { namespace, name }, { signal });
    return lease === undefined ? undefined : this.#see(lease);
  }

  /** Replaces the version `over`, or creates the Lease.
   * @param over  as read from this store; undefined: there is no Lease
   * @returns undefined: another process wrote first, or the Lease was deleted */
  async write(
    record: LeaseRecord,
    over: StoredLease | undefined,
    signal: AbortSignal,
  ): Promise<StoredLease | undefined> {
    const { client, namespace, name } = this.#options;
    const object = this.#objectWith(record, (over as KubeLease | undefined)?.object);
    try {
      const written = await (over === undefined
        ? client.create<Lease>(leases, namespace, object, { signal })
        : client.update<Lease>(leases, { namespace, name }, object, { signal }));
      return this.#see(written);
    } catch (error) {
      if (error instanceof KubeError && (error.code === 409 || error.code === 404))
        return undefined;
      throw error;
    }
  }

  /** The Lease with a new record. Keeps what others have written, and the resourceVersion, by which
   * the API server refuses if another process wrote first. */
  #objectWith(record: LeaseRecord, object: Lease | undefined): unknown {
    const { namespace, name, labels, annotations } = this.#options;
    const metadata = object?.metadata ?? { namespace, name, annotations: this.#annotations };
    const ours = record.holder === '' ? undefined : annotations?.(record);
    return {
      apiVersion: apiVersionOf(leases),
      kind: leases.kind,
      ...object,
      metadata: {
        ...metadata,
        labels: { ...object?.metadata.labels, ...labels },
        annotations: { ...metadata.annotations, ...ours },
      },
      spec: { ...object?.spec, ...specOf(record) },
    };
  }

  /** Calls back with the Lease after each change, or with undefined after its deletion. Best
   * effort: only the speed of a take-over depends on it.
   * @returns a function that ends the watch */
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
}

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
