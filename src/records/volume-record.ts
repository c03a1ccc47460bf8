import type { Redis } from 'ioredis';
import type { JobKey } from '../queue/contract.ts';
import { activeGatewayKey, incarnationKey, openRecordsKey, volumeRecordKey } from './key-names.ts';
import type { Script } from '../redis/script.ts';
import { openIdsOf, writeJob } from './open-jobs.ts';
import * as scripts from './record-scripts.ts';

/** What is stored of a creation, so that it can be replayed byte for byte whatever became of claim
 * and class. No secret values, ever. */
export interface VolumeRequest {
  /** Encoded CreateVolumeRequest without secrets, base64. */
  readonly request: string;
  /** The PV as far as it is known before the driver answers, JSON. */
  readonly skeleton: string;
  /** Reference of the provisioner secret, JSON, or ''. */
  readonly secret: string;
  /** Gateway that is used; of a plan, the one to use where no leader has named any. */
  readonly endpoint: string;
}

/** A stored request that is taken up again. */
export interface Replay {
  readonly stored: VolumeRequest;
  /** A call may have done something that no answer told us of. */
  readonly ambiguous: boolean;
  /** 2 at the first repetition. */
  readonly attempt: number;
  readonly sinceMs: number;
  /** gRPC code of the last attempt, '' when it had none. */
  readonly lastCode: string;
  /** The driver's answer, JSON, when only the PV write is missing; else ''. */
  readonly answer: string;
}

/** Nothing may be sent yet. What Redis held may have been lost: nothing is opened before its
 * history is known, and for one ownership period after a loss (rule 6). Or calls at the gateway
 * that was active before may still be under way (rule 7). */
export interface NotYet {
  readonly kind: 'not-yet';
  readonly reason: string;
  readonly waitMs: number;
}

/** Another run is at it. */
interface Busy {
  readonly kind: 'busy';
  readonly waitMs: number;
  readonly state: string;
}

export type OpenedCreate =
  | { readonly kind: 'none' }
  /** `endpoint`: the active gateway; absent where no leader has named one. */
  | { readonly kind: 'opened'; readonly endpoint?: string }
  /** The stored endpoint is the active gateway, as long as one is named. */
  | ({ readonly kind: 'replay' } & Replay)
  | Busy
  | { readonly kind: 'closed'; readonly state: 'stored' | 'deleting' | 'gone' }
  | NotYet;

export type OpenedDelete =
  | { readonly kind: 'opened'; readonly endpoint?: string }
  | { readonly kind: 'gone' }
  | Busy
  /** A creation is open; it has to end first. */
  | { readonly kind: 'creating' }
  /** The creation has to be repeated first: its success proves that no earlier call is still at
   * work. */
  | { readonly kind: 'resolve' }
  | { readonly kind: 'settle'; readonly waitMs: number }
  | NotYet;

export type OpenMode = 'plan' | 'again';

/** Who opens a record, for which job. */
export interface Opening {
  /** Unique to the run. */
  readonly owner: string;
  readonly job: JobKey;
  /** VolumeRecords.epoch as it was before the run read its object; absent where nothing was read.
   */
  readonly incarnation?: string;
}

/** Thrown when a record changed hands under a run: what the run learned must not be written any
 * more. */
export class OwnershipLost extends Error {
  override readonly name = 'OwnershipLost';
}

/** Thrown when Redis can't be asked: whether the change took place is unknown, and no call may be
 * started. */
export class RecordsUnavailable extends Error {
  override readonly name = 'RecordsUnavailable';
}

export interface VolumeRecordsOptions {
  readonly redis: Redis;
  /** Value of --redis-prefix, without braces. */
  readonly prefix: string;
  readonly driver: string;
  /** How long one attempt may own a record: the call's timeout and time for the PV write. */
  readonly ownMs: number;
  /** How long after an ambiguous call's end a refusal counts as proof of absence. */
  readonly settleMs: number;
}

/** The durable trace of every volume under way: the only way to a CreateVolume or DeleteVolume. One
 * hash per volume, each change one compare-and-set. Methods throw OwnershipLost, or
 * RecordsUnavailable when Redis can't be reached: nothing may be sent then. */
export class VolumeRecords {
  readonly #options: VolumeRecordsOptions;
  readonly #openKey: string;
  readonly #incarnationKey: string;
  readonly #gatewayKey: string;
  /** Creations that runs of this process opened and did not see closed: what is written again when
   * Redis lost them. `history`: epoch and beat of Redis then. */
  readonly #leftOpen = new Map<
    string,
    { readonly history: string; readonly job: JobKey; readonly stored: VolumeRequest }
  >();

  /** Epoch of Redis as the latest answer told it. */
  #epoch = 'none seen yet';

  constructor(options: VolumeRecordsOptions) {
    this.#options = options;
    this.#openKey = openRecordsKey(options.prefix, options.driver);
    this.#incarnationKey = incarnationKey(options.prefix, options.driver);
    this.#gatewayKey = activeGatewayKey(options.prefix, options.driver);
  }

  /** The epoch of Redis as this process knows it. A run takes it before it reads its object, and
   * names it when it opens: what was read before a loss proves nothing after it. */
  get incarnation(): string {
    return this.#epoch;
  }

  /** Asks Redis for its epoch, so that the first run need not be told that it knew none. */
  async learnIncarnation(): Promise<void> {
    try {
      this.#epoch = (await this.#options.redis.hget(this.#incarnationKey, 'epoch')) ?? this.#epoch;
    } catch (cause) {
      throw new RecordsUnavailable('the volume records can’t be reached in Redis', { cause });
    }
  }

  /** Opens a creation with a freshly planned request, or takes up the one that is stored. `again`:
   * also where the record says stored but its PV is gone. */
  openCreate(
    id: string,
    attempt: Opening & { planned: VolumeRequest; mode: OpenMode },
  ): Promise<OpenedCreate> {
    return this.#openCreate(id, attempt.mode, attempt);
  }

  /** Takes up a creation that is open, whatever its claim has become; `none` where there is nothing
   * to finish. */
  openExisting(id: string, attempt: Opening): Promise<OpenedCreate> {
    return this.#openCreate(id, 'existing', attempt);
  }

  /** Takes up the creation of a stored but ambiguous volume, so that it may be deleted afterwards.
   */
  openResolve(id: string, attempt: Opening): Promise<OpenedCreate> {
    return this.#openCreate(id, 'resolve', attempt);
  }

  async #openCreate(
    id: string,
    mode: string,
    attempt: Opening & { planned?: VolumeRequest },
  ): Promise<OpenedCreate> {
    const { request, skeleton, secret, endpoint } = attempt.planned ?? {
      request: '',
      skeleton: '',
      secret: '',
      endpoint: '',
    };
    const settleMs = String(this.#options.settleMs);
    const argv = [
      String(this.#options.ownMs),
      mode,
      writeJob(attempt.job),
      request,
      skeleton,
      secret,
      endpoint,
      id,
      settleMs,
      attempt.incarnation ?? '',
    ];
    const answer = await this.#run(scripts.openCreate, id, [attempt.owner, ...argv]);
    switch (answer[0] ?? '') {
      case 'none':
        return { kind: 'none' };
      case 'opened':
        if (attempt.planned !== undefined) {
          const stored = { ...attempt.planned, ...endpointField(answer[2]) };
          this.#remember(id, { history: answer[1] ?? '', job: attempt.job, stored });
        }
        return { kind: 'opened', ...endpointField(answer[2]) };
      case 'closed':
        return { kind: 'closed', state: closedState(answer[1]) };
      case 'replay': {
        const stored = {
          request: answer[7] ?? '',
          skeleton: answer[8] ?? '',
          secret: answer[9] ?? '',
          endpoint: answer[10] ?? '',
        };
        this.#remember(id, { history: answer[1] ?? '', job: attempt.job, stored });
        return {
          kind: 'replay',
          ambiguous: answer[2] === '1',
          attempt: Number(answer[3]),
          sinceMs: Number(answer[5]),
          lastCode: answer[6] ?? '',
          stored,
          answer: answer[11] ?? '',
        };
      }
      default:
        return this.#notOpened(id, answer);
    }
  }

  /** The PV exists. `answered`: our own call succeeded. `seen`: only the PV was looked at, so an
   * ambiguous mark and the request stay. */
  async closeStored(id: string, owner: string, proof: 'answered' | 'seen'): Promise<void> {
    await this.#run(scripts.closeStored, id, [owner, id, proof]);
    this.#leftOpen.delete(id);
  }

  /** The driver refused. `removed`: absence is proven and a living claim may be planned anew;
   * `suspect`: it is not. */
  async closeRefused(id: string, owner: string, code: string): Promise<'removed' | 'suspect'> {
    const answer = await this.#run(scripts.closeRefused, id, [
      owner,
      id,
      String(this.#options.settleMs),
      code,
    ]);
    if (answer[0] !== 'removed') return 'suspect';
    this.#leftOpen.delete(id);
    return 'removed';
  }

  /** The end of the call is unknown. Gives the code that the attempt before ended with. */
  async leaveAmbiguous(id: string, owner: string, code: string): Promise<string> {
    return (await this.#run(scripts.leaveAmbiguous, id, [owner, code]))[1] ?? '';
  }

  /** The volume exists but its PV could not be written: keeps the answer, so that the next run only
   * writes. */
  async leaveAnswered(id: string, owner: string, answer: string): Promise<void> {
    await this.#run(scripts.leaveAnswered, id, [owner, answer]);
  }

  /** Nothing was sent: the record is as it was before this attempt. */
  async revert(id: string, owner: string): Promise<void> {
    const [, state] = await this.#run(scripts.revert, id, [owner, id]);
    if (state === 'none' || state === 'stored') this.#leftOpen.delete(id);
  }

  /** Opens a deletion. */
  async openDelete(id: string, attempt: Opening): Promise<OpenedDelete> {
    const argv = [
      attempt.owner,
      String(this.#options.ownMs),
      writeJob(attempt.job),
      String(this.#options.settleMs),
      id,
      attempt.incarnation ?? '',
    ];
    const answer = await this.#run(scripts.openDelete, id, argv);
    switch (answer[0] ?? '') {
      case 'opened':
        this.#leftOpen.delete(id);
        return { kind: 'opened', ...endpointField(answer[2]) };
      case 'gone':
      case 'resolve':
      case 'creating':
        return { kind: answer[0] as 'gone' | 'resolve' | 'creating' };
      case 'settle':
        return { kind: 'settle', waitMs: Number(answer[1]) };
      default:
        return this.#notOpened(id, answer);
    }
  }

  /** The answers that mean the same whatever was to be opened. */
  #notOpened(id: string, answer: readonly string[]): NotYet | Busy {
    switch (answer[0] ?? '') {
      case 'stale':
        this.#epoch = answer[1] ?? '';
        return notYet(answer);
      case 'no-incarnation':
      case 'foreign':
      case 'quarantine':
      case 'moved':
      case 'elsewhere':
        return notYet(answer);
      case 'busy':
        return { kind: 'busy', waitMs: Number(answer[1]), state: answer[2] ?? '' };
      default:
        throw new Error(
          `the volume record ${id} gave an answer that is not in the protocol: ${answer.join(' ')}`,
        );
    }
  }

  /** The driver deleted the volume. */
  async closeGone(id: string, owner: string): Promise<void> {
    await this.#run(scripts.closeGone, id, [owner, id]);
    this.#leftOpen.delete(id);
  }

  /** DeleteVolume failed, or its end is unknown. Gives the code that the attempt before ended with.
   */
  async leaveDeleting(id: string, owner: string, code: string): Promise<string> {
    return (await this.#run(scripts.leaveDeleting, id, [owner, code]))[1] ?? '';
  }

  /** Ends an open deletion without a call: the PV is to be kept (`stored`) or has vanished
   * (`gone`). */
  async endDeletion(
    id: string,
    owner: string,
    to: 'stored' | 'gone',
  ): Promise<'ok' | 'none' | 'busy'> {
    const [word] = await this.#run(scripts.endDeletion, id, [owner, id, to]);
    return word === 'ok' || word === 'busy' ? word : 'none';
  }

  /** Whether a creation or deletion of this volume is open. */
  async isOpen(id: string): Promise<boolean> {
    const { redis, prefix, driver } = this.#options;
    try {
      return (await redis.hexists(openRecordsKey(prefix, driver), id)) === 1;
    } catch (cause) {
      throw new RecordsUnavailable('the volume records can’t be reached in Redis', { cause });
    }
  }

  /** The open records that a job belongs to, where their ids can't be told from its key. Goes
   * through all that is open. */
  async openIdsOf(job: JobKey): Promise<readonly string[]> {
    const { redis, prefix, driver } = this.#options;
    try {
      return await openIdsOf(redis, openRecordsKey(prefix, driver), job);
    } catch (cause) {
      throw new RecordsUnavailable('the volume records can’t be reached in Redis', { cause });
    }
  }

  /** Creations that this process left open. */
  get leftOpen(): number {
    return this.#leftOpen.size;
  }

  /** Looks after the creations that this process left open: forgets those that are closed, writes
   * those again that vanished with what Redis held.
   * @returns the jobs whose records were written again */
  async rewriteLostRecords(): Promise<readonly JobKey[]> {
    const rewritten: JobKey[] = [];
    for (const [id, left] of this.#leftOpen) {
      const { history, job, stored } = left;
      const { request, skeleton, secret, endpoint } = stored;
      const argv = [
        id,
        history,
        writeJob(job),
        request,
        skeleton,
        secret,
        endpoint,
        String(this.#options.ownMs),
      ];
      const [word, now] = await this.#run(scripts.rewriteLost, id, argv);
      // A run of this process may have opened it anew meanwhile.
      if (this.#leftOpen.get(id) !== left) continue;
      if (word === 'closed') this.#leftOpen.delete(id);
      if (word !== 'rewritten') continue;
      // From here on its absence means again that somebody closed it.
      this.#leftOpen.set(id, { ...left, history: now ?? history });
      rewritten.push(job);
    }
    return rewritten;
  }

  /** A memory of before a loss is kept: the call that it stands for may still make the volume, and
   * a fresh record that ends unsent would hide it. */
  #remember(
    id: string,
    left: { readonly history: string; readonly job: JobKey; readonly stored: VolumeRequest },
  ): void {
    const before = this.#leftOpen.get(id);
    if (before === undefined || incarnationOf(before.history) === incarnationOf(left.history))
      this.#leftOpen.set(id, left);
  }

  async #run(script: Script, id: string, argv: readonly string[]): Promise<readonly string[]> {
    const { redis, prefix, driver } = this.#options;
    let answer: readonly string[];
    try {
      // Every script answers a list of texts, its first word as the contract at its head says.
      answer = (await script.run(
        redis,
        [
          volumeRecordKey(prefix, driver, id),
          this.#openKey,
          this.#incarnationKey,
          this.#gatewayKey,
        ],
        argv,
      )) as readonly string[];
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new RecordsUnavailable(`the volume records can't be reached in Redis: ${why}`, {
        cause,
      });
    }
    if (answer[0] === 'lost')
      throw new OwnershipLost(
        `the record of volume ${id} was taken over by another run; this run's result is not written`,
      );
    return answer;
  }
}

function incarnationOf(history: string): string {
  return history.split(' ')[0] ?? '';
}

function notYet([word = '', wait, endpoint]: readonly string[]): NotYet {
  const waitMs = Number(wait);
  switch (word) {
    case 'foreign':
      return {
        kind: 'not-yet',
        reason: `${wait ?? 'another provisioner'} holds the driver’s Lease; only what is open is finished here`,
        waitMs: FOREIGN_WAIT_MS,
      };
    case 'stale':
      return {
        kind: 'not-yet',
        reason: 'Redis changed since the object was read; it is read again',
        waitMs: 0,
      };
    case 'quarantine':
      return {
        kind: 'not-yet',
        reason: 'Redis lost what it held; calls of the time before are let end first',
        waitMs,
      };
    case 'moved':
      return {
        kind: 'not-yet',
        reason:
          'another gateway has just become the active one; calls at the one before are let end first',
        waitMs,
      };
    case 'elsewhere':
      return {
        kind: 'not-yet',
        reason: `a call of unknown end may still be at work behind ${endpoint}, which is not active any more`,
        waitMs,
      };
    default:
      return {
        kind: 'not-yet',
        reason: 'no leading ingest has vouched for what Redis holds yet',
        waitMs: UNBLESSED_WAIT_MS,
      };
  }
}

function endpointField(endpoint: string | undefined): { readonly endpoint?: string } {
  return endpoint === undefined || endpoint === '' ? {} : { endpoint };
}

/** A change over takes minutes; the ingest that leads afterwards enqueues everything anyway. */
const FOREIGN_WAIT_MS = 5_000;

/** An ingest that leads looks every second. */
const UNBLESSED_WAIT_MS = 500;

function closedState(text: string | undefined): 'stored' | 'deleting' | 'gone' {
  return text === 'stored' || text === 'deleting' ? text : 'gone';
}
