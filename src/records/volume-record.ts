import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { Redis } from 'ioredis';
import { keyId, type JobKey } from '../queue/contract.ts';
import type { NamedScript } from '../redis/named-script.ts';
import type { VolumeAnswer } from '../volumes/persistent-volume.ts';
import { messageOf } from '../runtime/error-message.ts';
import { askRedis, RecordsUnavailable } from './ask-redis.ts';
import * as creation from './creation-scripts.ts';
import * as deletion from './deletion-scripts.ts';
import {
  activeGatewayKey,
  dataEpochKey,
  openingCountKey,
  openRecordsKey,
  volumeRecordKey,
} from './key-names.ts';
import { LeftOpenCreations } from './left-open.ts';
import { encodeJob, openJobs } from './open-jobs.ts';
import {
  explainNotOpened,
  isNotOpened,
  type NotYet,
  type OpenedCreate,
  type OpenedDelete,
  type Replay,
} from './open-results.ts';
import { OpeningCount } from './opening-count.ts';
import { LostCreations } from './rewrite-lost.ts';
import { revert, type NotOpened, type RecordKey } from './record-scripts.ts';
import {
  decodeAnswer,
  decodeRequest,
  encodeAnswer,
  encodeRequest,
  type RequestTexts,
  type VolumeRequest,
} from './stored-request.ts';
import { forgetCommand, UNUSABLE_RECORD } from './forget.ts';
import { type RecordKeys, RecordSeals } from './record-seal.ts';

/** Who opens a record, for which job. */
interface Opening {
  /** Unique to the run. */
  readonly owner: string;
  readonly job: JobKey;
  /** VolumeRecords.dataEpoch from before the run read its object; absent where it read none. */
  readonly dataEpoch?: string;
  /** Why a stored request that no seal proves is not one for this object; undefined if it fits. */
  readonly whyUnfit?: (stored: VolumeRequest) => string | undefined;
}

/** Thrown when another run has taken the record over: this run may not write any more. */
export class OwnershipLost extends Error {
  override readonly name = 'OwnershipLost';
}

interface VolumeRecordsOptions {
  readonly redis: Redis;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly driver: string;
  /** How long one attempt owns a record; see ownershipMs. */
  readonly ownMs: number;
  /** The settle time: how long after an ambiguous call's end a refusal does not prove absence. */
  readonly settleMs: number;
  /** Unique to this process, and readable by people; random unless given. */
  readonly processName?: string;
  /** What --record-key-file says now; undefined without the flag. */
  readonly keys?: (() => RecordKeys | undefined) | undefined;
  /** The other provisioner that holds the Lease, as far as this process knows. */
  readonly otherHolder?: () => string | undefined;
}

/** The volume records of one driver: the only way to a CreateVolume or DeleteVolume. Methods throw
 * OwnershipLost, or RecordsUnavailable while Redis can't be reached: then nothing may be sent. */
export class VolumeRecords {
  readonly #options: VolumeRecordsOptions;
  readonly #driverKeys: Readonly<Record<Exclude<RecordKey, 'recordKey'>, string>>;
  readonly #leftOpen: LeftOpenCreations;
  readonly #count: OpeningCount;
  readonly #lost: LostCreations;
  readonly #seals: RecordSeals;
  #dataEpoch = 'none seen yet';
  /** The last answer that no record of the driver may be opened, and when it ends. */
  #notYet: { readonly answer: NotYet; readonly endMs: number } | undefined;
  /** By record: the end of a run's attempt that Redis did not take. */
  readonly #unended = new Map<string, () => Promise<unknown>>();
  /** The last answer that nothing new may be opened. */
  #halt: { readonly answer: NotYet; readonly endMs: number } | undefined;

  constructor(options: VolumeRecordsOptions) {
    const { prefix, driver, processName = randomUUID() } = options;
    this.#options = options;
    this.#leftOpen = new LeftOpenCreations(options.ownMs);
    this.#count = new OpeningCount(processName);
    this.#seals = new RecordSeals(options, options.keys);
    this.#driverKeys = {
      openKey: openRecordsKey(prefix, driver),
      dataEpochKey: dataEpochKey(prefix, driver),
      gatewayKey: activeGatewayKey(prefix, driver),
      countKey: openingCountKey(prefix, driver, processName),
    };
    this.#lost = new LostCreations({
      ...options,
      keys: this.#driverKeys,
      leftOpen: this.#leftOpen,
      count: this.#count,
    });
  }

  /** The epoch of Redis' data, and the term of the leader, as this process last saw them. A
   * run notes it before it reads its object, and passes it when it opens a record: what was read
   * before a loss of data, or before another provisioner led, proves nothing after it. */
  get dataEpoch(): string {
    return this.#dataEpoch;
  }

  /** Reads the data epoch, so that the first run is not refused for knowing none. */
  async learnDataEpoch(): Promise<void> {
    const { dataEpochKey: key } = this.#driverKeys;
    const [id, term] = await askRedis(this.#options.redis.hmget(key, 'epoch', 'term'));
    if (id) this.#dataEpoch = term ? `${id}.${term}` : id;
  }

  /** Why the run of a record would not open it, if an earlier run was told so: then this run need
   * not read its object to be told the same. */
  async whyNotYet(id: string): Promise<NotYet | undefined> {
    const waitMs = (this.#notYet?.endMs ?? 0) - performance.now();
    if (this.#notYet !== undefined && waitMs > 0) return { ...this.#notYet.answer, waitMs };
    return this.haltUnlessOpen([id]);
  }

  /** Why a run that may have one of these records should end without reading its object: nothing
   * new may be opened, and none of them is open. Sends a command only if this process knows of a
   * halt. */
  async haltUnlessOpen(ids: readonly string[]): Promise<NotYet | undefined> {
    const halt = this.#knownHalt();
    if (halt === undefined) return undefined;
    const jobs = await askRedis(this.#options.redis.hmget(this.#driverKeys.openKey, ...ids));
    return jobs.every((job) => job === null) ? halt : undefined;
  }

  #knownHalt(): NotYet | undefined {
    const holder = this.#options.otherHolder?.();
    const halt =
      holder === undefined ? undefined : explainNotOpened({ kind: 'other-leads', holder });
    if (halt?.kind === 'not-yet') return halt;
    return this.#halt !== undefined && performance.now() < this.#halt.endMs
      ? this.#halt.answer
      : undefined;
  }

  /** Opens a creation with a planned request, or takes up the one that is stored.
   * @param attempt  mode `again`: also opens a `stored` record, because its PV was removed */
  openCreate(
    id: string,
    attempt: Opening & { readonly planned: VolumeRequest; readonly mode: 'plan' | 'again' },
  ): Promise<OpenedCreate> {
    return this.#openCreate(id, attempt.mode, attempt);
  }

  /** Takes up a creation that is open, even if its claim is gone (invariant 3). */
  openExisting(id: string, attempt: Opening): Promise<OpenedCreate> {
    return this.#openCreate(id, 'existing', attempt);
  }

  async #openCreate(
    id: string,
    mode: 'plan' | 'again' | 'existing',
    attempt: Opening & { readonly planned?: VolumeRequest },
  ): Promise<OpenedCreate> {
    const { job, planned } = attempt;
    const texts = planned === undefined ? NO_REQUEST : this.#encode(id, planned);
    const args = { ...this.#openingArgs(id, attempt), mode, ...texts };
    const answer = await this.#open(id, attempt, () => this.#run(creation.openCreate, id, args));
    if (isNotOpened(answer)) return this.#notOpened(answer);
    if (answer.kind === 'none' || answer.kind === 'closed') return answer;
    this.#lost.counted(answer);
    const { kind, dataEpoch, count, endpoint } = answer;
    if (kind === 'opened') {
      const sent = { ...texts, ...endpointField(endpoint) };
      this.#leftOpen.addOpened(id, { job, texts: sent, dataEpoch, count });
      return { kind, ...endpointField(endpoint) };
    }
    const { request, pvTemplate, secret, seal, ambiguous, settlesInMs } = answer;
    const { isOfEarlierTerm, lastCode } = answer;
    const found = { request, pvTemplate, secret, endpoint, seal };
    const read = this.#read(id, found, answer.answer, attempt);
    if (typeof read === 'string') {
      await this.revert(id, attempt.owner, UNUSABLE_RECORD);
      const exit = forgetCommand(id, this.#options.driver);
      const reason =
        `the volume record ${id} is not used: ${read}; find out who changed what, ` +
        `delete a volume of it that nobody uses, ${exit}`;
      return { kind: 'unusable', reason };
    }
    this.#leftOpen.addTakenUp(id, { job, texts: found, dataEpoch, count });
    return { kind, ...read, ambiguous, settlesInMs, isOfEarlierTerm, lastCode };
  }

  #encode(id: string, planned: VolumeRequest): RequestTexts {
    const texts = encodeRequest(planned);
    return { ...texts, seal: this.#seals.seal(id, requestPart(texts)) };
  }

  /** Decodes what is stored, and checks its seals, or whether it fits where it has none.
   * @returns what is wrong, if anything */
  #read(
    id: string,
    texts: RequestTexts,
    answerText: string,
    { whyUnfit }: Opening,
  ): string | Pick<Replay, 'stored' | 'answer'> {
    try {
      const stored = decodeRequest(texts);
      const decoded = decodeAnswer(answerText);
      const proofs = [this.#seals.check(id, requestPart(texts), texts.seal)];
      if (decoded !== undefined)
        proofs.push(this.#seals.check(id, answerPart(decoded.answer), decoded.seal));
      for (const proof of proofs) if (typeof proof === 'object') return `it ${proof.wrong}`;
      const unfit = proofs[0] === 'sealed' ? undefined : whyUnfit?.(stored);
      return unfit ?? { stored, answer: decoded?.answer };
    } catch (error) {
      return messageOf(error);
    }
  }

  /** The PV exists: our own call succeeded, or the settle time of earlier ones is over. */
  async closeStored(id: string, owner: string): Promise<void> {
    await this.#end(id, async () => {
      await this.#run(creation.closeStored, id, { owner, id });
      this.#leftOpen.forget(id);
    });
  }

  /** The driver refused.
   * @returns `removed` where that proves absence, so that a living claim may be planned anew */
  closeRefused(id: string, owner: string, code: string): Promise<'removed' | 'suspect'> {
    return this.#end(id, async () => {
      const { kind } = await this.#run(creation.closeRefused, id, { owner, id, code });
      if (kind === 'removed') this.#leftOpen.forget(id);
      return kind;
    });
  }

  /** The end of the call is unknown. */
  async leaveAmbiguous(id: string, owner: string, code: string): Promise<void> {
    await this.#end(id, () => this.#run(creation.leaveAmbiguous, id, { owner, code }));
  }

  /** The volume exists but its PV could not be written: keeps the answer, so that the next run only
   * writes the PV.
   * @param code  where only an operator can end it; see forget.ts */
  async leaveAnswered(id: string, owner: string, answer: VolumeAnswer, code = ''): Promise<void> {
    const text = encodeAnswer(answer, this.#seals.seal(id, answerPart(answer)));
    const args = { owner, answer: text, code };
    await this.#end(id, () => this.#run(creation.leaveAnswered, id, args));
  }

  /** Nothing was sent: the record is as it was before this attempt.
   * @param code  where only an operator can end it; see forget.ts */
  async revert(id: string, owner: string, code = ''): Promise<void> {
    await this.#end(id, async () => {
      const { state } = await this.#run(revert, id, { owner, id, code });
      if (state === 'none' || state === 'stored') this.#leftOpen.forget(id);
    });
  }

  /** Opens the deletion of the volume that has this handle.
   * @param attempt.endpoint  the gateway to call where no leader has named one; '' for none */
  async openDelete(
    id: string,
    attempt: Opening & { readonly handle: string; readonly endpoint?: string },
  ): Promise<OpenedDelete> {
    const { handle, endpoint = '' } = attempt;
    const args = { ...this.#openingArgs(id, attempt), handle, endpoint };
    const answer = await this.#open(id, attempt, () => this.#run(deletion.openDelete, id, args));
    if (isNotOpened(answer)) return this.#notOpened(answer);
    if (answer.kind !== 'opened') return answer;
    this.#lost.counted(answer);
    this.#leftOpen.forget(id);
    return { kind: 'opened', ...endpointField(answer.endpoint) };
  }

  /** The driver deleted the volume. */
  async closeGone(id: string, owner: string): Promise<void> {
    await this.#end(id, async () => {
      await this.#run(deletion.closeGone, id, { owner, id, goneMs: this.#goneMs });
      this.#leftOpen.forget(id);
    });
  }

  /** DeleteVolume failed, or its end is unknown. */
  async leaveDeleting(id: string, owner: string, code: string): Promise<void> {
    await this.#end(id, () => this.#run(deletion.leaveDeleting, id, { owner, code }));
  }

  /** Ends an open deletion without a call: the PV is to be kept (`stored`) or has vanished
   * (`gone`).
   * @returns `none` where no deletion is open, `busy` while another owner is live */
  async endDeletion(
    id: string,
    owner: string,
    to: 'stored' | 'gone',
  ): Promise<'ok' | 'none' | 'busy'> {
    return (await this.#run(deletion.endDeletion, id, { owner, id, goneMs: this.#goneMs, to }))
      .kind;
  }

  /** Whether a creation or deletion of this volume is open. */
  async isOpen(id: string): Promise<boolean> {
    return (await askRedis(this.#options.redis.hexists(this.#driverKeys.openKey, id))) === 1;
  }

  /** The ids of the open records of a job, for jobs whose key does not contain the id. Reads all
   * open records. */
  async openIdsOf(job: JobKey): Promise<readonly string[]> {
    const { redis, prefix, driver } = this.#options;
    const open = await askRedis(openJobs(redis, prefix, driver));
    return [...open].filter(([, key]) => keyId(key) === keyId(job)).map(([id]) => id);
  }

  /** Number of creations that this process left open. */
  get leftOpen(): number {
    return this.#leftOpen.size;
  }

  /** Ends the attempts whose end Redis did not take. Checks the creations that this process left
   * open, and whether Redis went back; see rewrite-lost.ts.
   * @returns the jobs whose records were written again */
  async rewriteLostRecords(): Promise<readonly JobKey[]> {
    for (const id of this.#unended.keys()) await this.#repeatEnd(id);
    return this.#lost.rewrite();
  }

  /** How long it is remembered that a volume was deleted: as long as a call that was begun before
   * may still arrive. */
  get #goneMs(): number {
    return this.#options.ownMs + this.#options.settleMs;
  }

  #notOpened(answer: NotOpened): ReturnType<typeof explainNotOpened> {
    if (answer.kind === 'stale') this.#dataEpoch = answer.dataEpoch;
    if (answer.kind === 'went-back') this.#lost.wentBack(answer.count);
    const explained = explainNotOpened(answer);
    if (explained.kind === 'not-yet' && explained.isForAll)
      this.#notYet = { answer: explained, endMs: performance.now() + explained.waitMs };
    if (explained.kind === 'not-yet' && explained.isHalt)
      this.#halt = { answer: explained, endMs: performance.now() + HALT_KNOWN_MS };
    return explained;
  }

  #openingArgs(id: string, { owner, job, dataEpoch = '' }: Opening) {
    const { ownMs, settleMs } = this.#options;
    return {
      owner,
      ownMs,
      settleMs,
      seenDataEpoch: dataEpoch,
      otherHolder: this.#options.otherHolder?.() ?? '',
      id,
      job: encodeJob(job),
      ...this.#count.args,
    };
  }

  /** Opens a record. If Redis gives no answer, nothing is sent, but the record may be open. */
  async #open<T>(id: string, { owner }: Opening, open: () => Promise<T>): Promise<T> {
    await this.#repeatEnd(id);
    try {
      return await open();
    } catch (error) {
      if (error instanceof RecordsUnavailable)
        this.#unended.set(id, () => this.#run(revert, id, { owner, id, code: '' }));
      throw error;
    }
  }

  /** Ends a run's attempt. If Redis can't be reached, that is repeated when it can: otherwise
   * nobody could go on with the record before the run's ownership ends. */
  async #end<T>(id: string, end: () => Promise<T>): Promise<T> {
    this.#unended.delete(id);
    try {
      return await end();
    } catch (error) {
      if (error instanceof RecordsUnavailable) this.#unended.set(id, end);
      throw error;
    } finally {
      this.#leftOpen.runEnded(id);
    }
  }

  /** Does nothing where Redis took the end. Once another run has the record, there is nothing to
   * end any more. */
  async #repeatEnd(id: string): Promise<void> {
    const end = this.#unended.get(id);
    if (end === undefined) return;
    await this.#end(id, end).catch((error: unknown) => {
      if (!(error instanceof OwnershipLost)) throw error;
    });
  }

  async #run<Args, Answer extends { readonly kind: string }>(
    script: NamedScript<RecordKey, Args, Answer>,
    id: string,
    args: Args,
  ): Promise<Exclude<Answer, { readonly kind: 'lost' }>> {
    const { redis, prefix, driver } = this.#options;
    const keys = { recordKey: volumeRecordKey(prefix, driver, id), ...this.#driverKeys };
    const answer = await askRedis(script.run(redis, keys, args));
    if (answer.kind === 'lost')
      throw new OwnershipLost(
        `another run took over the record of volume ${id}; this run's result is not written`,
      );
    return answer as Exclude<Answer, { readonly kind: 'lost' }>;
  }
}

/** For how long runs need not ask again whether there is a halt. */
const HALT_KNOWN_MS = 1_000;

const NO_REQUEST: RequestTexts = {
  request: '',
  pvTemplate: '',
  secret: '',
  endpoint: '',
  seal: '',
};

/* The parts of a record that have a seal each. */

function requestPart({ request, pvTemplate, secret }: Omit<RequestTexts, 'seal'>) {
  return ['request', request, pvTemplate, secret];
}

function answerPart(answer: VolumeAnswer): readonly string[] {
  return ['answer', encodeAnswer(answer)];
}

function endpointField(endpoint: string): { readonly endpoint?: string } {
  return endpoint === '' ? {} : { endpoint };
}
