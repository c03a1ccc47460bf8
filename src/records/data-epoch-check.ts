import { randomBytes, randomUUID } from 'node:crypto';
import { explainLeaseError } from '../election/kube-lease-store.ts';
import type { KubeClient } from '../kube/client.ts';
import { DATA_EPOCH, DATA_EPOCH_SEQUENCE } from '../kube/keys.ts';
import { isAlreadyExists, isConflict } from '../kube/kube-error.ts';
import type { Lease } from '../kube/objects.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import type { DataEpochStore, Leader, LeaderFacts } from './data-epoch.ts';
import { isRefusal } from '../redis/error-text.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';

/** A data epoch, and how far it has come. */
export interface DataEpoch {
  readonly id: string;
  readonly sequence: number;
  /** Id of the process of Redis; '' if that is not known. */
  readonly server: string;
}

/** Keeps the epoch of Redis' data outside Redis. */
export interface DataEpochIdStore {
  /** @returns undefined: no id was ever written. The sequence is 0, and the process '', where
   *   nobody has written how far that data epoch had come */
  read(): Promise<DataEpoch | undefined>;
  write(id: string): Promise<void>;
}

const WENT_BACK = 'Redis was restored from the past';

export interface DataEpochCheckOptions {
  readonly dataEpochs: Pick<DataEpochStore, 'advance' | 'withdraw' | 'begin'>;
  readonly store: DataEpochIdStore;
  /** How long nothing is opened after a loss. */
  readonly quarantineMs: number;
  /** A loss concerns only claims that have our finalizer (record rule 10). */
  readonly isSoftState?: boolean;
  /** Called with each answer of Redis. */
  readonly onFacts?: (facts: LeaderFacts) => void;
  readonly log: Logger;
}

/** Finds out whether Redis lost data (record rule 6). The leader compares the data epoch in Redis
 * with the one that it saw last or, when it begins to lead, with the one outside Redis:
 *
 * - No data epoch in Redis: Redis was emptied; or this is its first use, if there is no id outside
 *   Redis either.
 * - Another id: this is not the Redis that was used before.
 * - A lower sequence: Redis was restored from the past.
 * - Another process of Redis than the last leader's, which did not release the Lease: nobody knows
 *   whether it restarted without its last writes.
 *
 * After a loss, and at first use, a new data epoch begins; after a loss with a quarantine. Three
 * writes, in this order:
 *
 * 1. What Redis holds is withdrawn, if it holds a data epoch: nothing is opened from now on.
 * 2. The new id is written outside Redis.
 * 3. The data epoch and its quarantine begin in Redis.
 *
 * Between any two of them Redis holds no data epoch, so nothing is opened. Whoever leads after a
 * crash there finds an id outside Redis and none in it, which is a loss, never a first use. A
 * quarantine begins only once its id can be found by the next leader, who continues it. */
export class DataEpochCheck {
  readonly #options: DataEpochCheckOptions;
  /** The data epoch that this process read or began last. */
  #known: DataEpoch | undefined;
  /** Why data counts as lost, from when that was noticed until a new data epoch begins. */
  #loss: string | undefined;
  /** The id of the data epoch that is to begin: written outside Redis, or about to be. */
  #reservedId: string | undefined;
  #trouble: string | undefined;
  #leader: Leader | undefined;

  constructor(options: DataEpochCheckOptions) {
    this.#options = options;
  }

  /** Why it can't be told whether Redis lost data, in one line with the fix; undefined while it
   * can, and where Redis itself is the reason. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** What Redis is known to hold at least; undefined before the first check as a leader. */
  get known(): DataEpoch | undefined {
    return this.#known;
  }

  /** This process begins to lead. If another provisioner may have led since the last leader of
   * ours, what runs read before proves nothing any more.
   * @param transitions  how often the Lease had changed its holder by then; 0: not known */
  beginLeading(transitions: number): void {
    // Others may have led since this process read it.
    this.#known = undefined;
    this.#leader = { id: randomBytes(6).toString('hex'), transitions };
  }

  /** Checks once, and advances the sequence. To be called every second while leading.
   * @returns whether data was lost
   * @throws the error of Redis or the API server; the next call tries again */
  async check(): Promise<boolean> {
    const found = await this.#options.dataEpochs.advance(this.#known?.id ?? '', this.#leader);
    this.#options.onFacts?.(found);
    if (found.kind === 'none' && found.withdrawnBy !== '')
      this.#loss ??= `Redis lost its last writes, as ${found.withdrawnBy} noticed`;
    const isLost = found.kind === 'found' ? await this.#compare(found) : await this.#begin();
    if (this.#trouble !== undefined)
      this.#options.log.info('the Lease tells again whether Redis lost data');
    this.#trouble = undefined;
    return isLost;
  }

  async #compare({ id, sequence, server }: DataEpoch): Promise<boolean> {
    if (id === this.#known?.id) {
      if (sequence < this.#known.sequence) return this.#replace(id, WENT_BACK);
      this.#known = { id, sequence: sequence + 1, server };
      return false;
    }
    const stored = await this.#askStore(this.#options.store.read());
    if (id !== stored?.id)
      return this.#replace(id, 'this Redis is not the one that was used before');
    if (sequence < stored.sequence) return this.#replace(id, WENT_BACK);
    if (stored.server !== '' && server !== '' && server !== stored.server)
      return this.#replace(id, 'Redis was restarted, and so was the ingest that led');
    // Begun by an earlier leader, by this process before a restart, or by a script of ours whose
    // answer was lost.
    return this.#confirm({ id, sequence, server });
  }

  async #replace(id: string, loss: string): Promise<boolean> {
    await this.#options.dataEpochs.withdraw(id);
    this.#loss = loss;
    return this.#begin();
  }

  /** Begins a new data epoch in a Redis that holds none. */
  async #begin(): Promise<boolean> {
    const { dataEpochs, store, quarantineMs, log } = this.#options;
    const id = await this.#reserveId((await this.#askStore(store.read()))?.id);
    const waitMs = this.#loss === undefined ? 0 : quarantineMs;
    try {
      await dataEpochs.begin({ id, quarantineMs: waitMs, sequence: 0 });
    } catch (error) {
      // Unless Redis refused, it may have begun, been used and lost it since: that would be another
      // loss, after which the id must not be used.
      if (!isRefusal(error)) this.#reservedId = undefined;
      throw error;
    }
    if (this.#loss === undefined) log.info('first use of this Redis for the driver');
    return this.#confirm({ id, sequence: 0, server: '' });
  }

  /** Writes a new id outside Redis, unless that was done, and decides whether data was lost.
   * @returns the id, which no data epoch has had */
  async #reserveId(storedId: string | undefined): Promise<string> {
    const { store } = this.#options;
    if (storedId !== undefined && storedId === this.#reservedId) return storedId;
    if ((storedId ?? this.#known) !== undefined) this.#loss ??= 'Redis was emptied';
    this.#reservedId = randomUUID();
    await this.#askStore(store.write(this.#reservedId));
    return this.#reservedId;
  }

  /** @returns whether data was lost before */
  #confirm(dataEpoch: DataEpoch): boolean {
    const { quarantineMs, isSoftState = false, log } = this.#options;
    const loss = this.#loss;
    this.#known = dataEpoch;
    this.#reservedId = undefined;
    this.#loss = undefined;
    if (loss === undefined) return false;
    if (isSoftState)
      log.info(
        { waitMs: quarantineMs },
        'claims that an earlier process was creating a volume for wait until its calls have ended',
      );
    else
      log.warn(
        { why: loss, waitMs: quarantineMs },
        'volume records may be lost: nothing is created or deleted until calls under way have ended',
      );
    return true;
  }

  async #askStore<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      const trouble = `can’t tell whether Redis lost data: ${messageOf(error)}`;
      if (trouble !== this.#trouble)
        this.#options.log.warn({ trouble }, 'Redis’ data is not confirmed; trying again');
      this.#trouble = trouble;
      throw error;
    }
  }
}

interface LeaseOptions {
  readonly client: Pick<KubeClient, 'get' | 'create' | 'update'>;
  readonly namespace: string;
  readonly name: string;
}

/** How often a write is tried that other writers of the Lease come before. */
const MAX_TRIES = 10;

/** The annotations of a renewal: how far a data epoch has come. Without the process of Redis
 * where the Lease is released: what is restarted after that was at rest. */
export function sequenceAnnotations(
  { id, sequence, server }: DataEpoch,
  isReleased: boolean,
): Readonly<Record<string, string>> {
  return { [DATA_EPOCH_SEQUENCE]: `${id}/${sequence}/${isReleased ? '' : server}` };
}

/** With soft state nothing is kept outside Redis: each process that begins to lead takes the data
 * before it for lost. */
export function softDataEpochStore(): DataEpochIdStore {
  let id = 'of an earlier process';
  return {
    read: () => Promise.resolve({ id, sequence: 0, server: '' }),
    write(next) {
      id = next;
      return Promise.resolve();
    },
  };
}

/** Keeps the data epoch in annotations of the driver's Lease. The leader's renewals write how far
 * it has come. */
export function leaseDataEpochStore(lease: LeaseOptions): DataEpochIdStore {
  const { client, namespace, name } = lease;
  return {
    async read() {
      const stored = await explainLeaseError(lease, client.get<Lease>(leases, { namespace, name }));
      const { [DATA_EPOCH]: id, [DATA_EPOCH_SEQUENCE]: reached = '' } =
        stored?.metadata.annotations ?? {};
      if (id === undefined) return undefined;
      const [ofId, sequence, server = ''] = reached.split('/');
      return ofId === id
        ? { id, sequence: Number(sequence), server }
        : { id, sequence: 0, server: '' };
    },
    async write(id) {
      for (let tries = 0; tries < MAX_TRIES; tries += 1)
        if (await explainLeaseError(lease, annotate(lease, id))) return;
      throw new Error(
        `the Lease ${namespace}/${name} changed during each of ${MAX_TRIES} tries to annotate it`,
      );
    },
  };
}

/** Writes with create and update, the verbs that upstream's role grants.
 * @returns false where another writer came first */
async function annotate({ client, ...ref }: LeaseOptions, id: string): Promise<boolean> {
  const lease = await client.get<Lease>(leases, ref);
  try {
    if (lease === undefined) {
      await client.create(leases, ref.namespace, {
        apiVersion: apiVersionOf(leases),
        kind: leases.kind,
        metadata: { ...ref, annotations: { [DATA_EPOCH]: id } },
        spec: {},
      });
    } else {
      const annotations = { ...lease.metadata.annotations, [DATA_EPOCH]: id };
      await client.update(leases, ref, { ...lease, metadata: { ...lease.metadata, annotations } });
    }
    return true;
  } catch (error) {
    if (isConflict(error) || isAlreadyExists(error)) return false;
    throw error;
  }
}
