import { performance } from 'node:perf_hooks';
import type { Claim, Class } from '../kube/objects.ts';
import { KubeError } from '../kube/kube-error.ts';
import type { Journal } from '../journal/journal.ts';
import { bareKey, type JobKind, type KeyToQueue, logFields, workId } from '../queue/contract.ts';
import { type KeyRequest, PendingKeys } from '../queue/pending-keys.ts';
import {
  type Leading,
  LeadershipOutdated,
  type WorkQueue,
  type WorkRequest,
  type WorkState,
} from '../queue/work-queue.ts';
import { backoffMs, systemClock, unlessAborted, signalWithin } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { BLIP_MS, Outage } from '../runtime/outage.ts';

/** A claim as planning needs it, and its class. */
export interface ClaimToPlan {
  readonly claim: Claim;
  readonly cls: Class | undefined;
  /** Its first job only selects a node for it, and creates no volume (--node-deployment). */
  readonly needsNode: boolean;
}

export interface DispatcherOptions {
  readonly queue: Pick<
    WorkQueue,
    'add' | 'finished' | 'remove' | 'promote' | 'requested' | 'refused'
  >;
  readonly journal: Pick<
    Journal,
    | 'add'
    | 'finish'
    | 'flush'
    | 'hasten'
    | 'has'
    | 'isFinished'
    | 'isOff'
    | 'objectOf'
    | 'unfinished'
  >;
  /** The claim of a key. Rejects while it can't be read.
   * @returns undefined if it needs no job any more */
  readonly claimToPlan: (key: KeyToQueue) => Promise<ClaimToPlan | undefined>;
  /** D: how long calls of earlier jobs may be at work. */
  readonly doubtMs: number;
  /** Why nothing can be added now; undefined while it can. */
  readonly trouble: () => string | undefined;
  /** An event came for a key while it had a job that ran: it may need another one. */
  readonly onMayNeedAgain: (key: KeyToQueue) => void;
  /** Another process leads by now, or Redis has lost its data. */
  readonly onOutdated: () => void;
  readonly log: Logger;
}

const BATCH_KEYS = 200;
/** Time from one batch to the next, on average: claims of a while share a write of the journal. The
 * first batches after a quiet time are not delayed. */
const BATCH_PERIOD_MS = 20;
const QUICK_BATCHES = 5;
const REFUSED_PAUSE = { startMs: 100, maxMs: 2_000 };
const IDLE_MS = 50;
const LOOK_PAUSE_MS = 50;
/** While a key waits for the end of a job. */
const LOOK_AGAIN_MS = 250;
const CLOSE_FLUSH_MS = 500;
const READS_AT_ONCE = 16;
const ASK_AGAIN_MS = 500;

/** What a request comes to. */
interface PlannedAdd {
  readonly request: KeyRequest;
  /** Its job only selects a node. */
  readonly needsNode: boolean;
  /** What the journal has to know first. */
  readonly note?: ClaimToPlan;
}

/** The API server does not take this object, however often it is sent. */
function isRefusal(error: unknown): boolean {
  return error instanceof KubeError && [400, 413, 422].includes(error.code);
}

/** Gives keys their jobs by docs/leak-proof.md, J1 to J5. Before the first job of a claim is added,
 * its entry is in the journal; when its job is finished, the entry leaves, and then the job.
 * Requests never throw and never block. */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #pending = new PendingKeys();
  /** Requests that are made again after a while. */
  readonly #askedLater = new PendingKeys();
  readonly #stopping = new AbortController();
  readonly #outage: Outage;
  #leading: Leading | undefined;
  #flushing: Promise<void> | undefined;
  #looking: Promise<void> | undefined;
  #nextLook: NodeJS.Timeout | undefined;
  #adding = 0;
  #dueMs = 0;
  #trouble: string | undefined;
  /** Claims that this leader has noted and that had no job yet. Of any other claim with an entry,
   * calls of earlier jobs may be at work: its next job says so. */
  readonly #fresh = new Set<string>();
  /** Requests that wait for the end of a job or an entry, by the id of that job. */
  readonly #held = new Map<string, KeyRequest>();
  /** Keys for which an event came while their job ran, by its id. */
  readonly #again = new Map<string, KeyToQueue>();
  /** Finished jobs of claims whose entries have not left yet, by their ids. */
  readonly #ending = new Set<string>();
  /** Claims whose jobs only select a node. */
  readonly #selecting = new Set<string>();

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#outage = new Outage(options.log, BLIP_MS);
  }

  /** Why claims get no jobs now; undefined while they do. */
  get trouble(): string | undefined {
    return this.#trouble;
  }

  /** Keys that have no job yet. */
  get pending(): number {
    return this.#pending.size + this.#adding;
  }

  /** J3: this leader has begun. Each claim with an entry is to get a job. */
  begin(leading: Leading): void {
    this.#leading = leading;
    this.#held.clear();
    this.#again.clear();
    this.#ending.clear();
    this.#selecting.clear();
    this.#fresh.clear();
    this.#startFlushing();
    void this.look();
  }

  /** Nothing is added before the next begin. */
  end(): void {
    this.#leading = undefined;
  }

  /** The keys of the entries, whose claims may be gone. */
  *entries(): Generator<KeyToQueue> {
    for (const { claim } of this.#options.journal.unfinished()) {
      const { uid, namespace = '', name } = claim.metadata;
      yield { kind: 'claim', uid, namespace, name };
    }
  }

  /** Makes sure that the key has a job. A job that waits or is delayed stays as it is; if a run is
   * under way, it is looked at again after it. */
  ensureQueued(key: KeyToQueue): void {
    this.#request({ key, kind: 'ensure' });
  }

  /** Makes sure that the key has a job that is not delayed. */
  enqueueNow(key: KeyToQueue): void {
    this.#request({ key, kind: 'now' });
  }

  /** Makes the key's job run now if it is delayed, and does nothing otherwise. */
  promote(key: KeyToQueue): void {
    this.#request({ key, kind: 'promote' });
  }

  /** The entries of these claims have left the API server: their jobs may go. */
  entriesGone(uids: readonly string[]): void {
    const ended = uids.filter((uid) => this.#ending.has(uid));
    void this.#removeJobs('claim', ended);
    for (const uid of uids) if (!this.#ending.has(uid)) this.#release(uid);
  }

  /** J2: looks which jobs are finished; to be called every second. */
  look(): Promise<void> {
    const leading = this.#leading;
    if (leading === undefined || this.#options.trouble() !== undefined) return Promise.resolve();
    this.#looking ??= this.#look(leading)
      .then(() => {
        // What is refused is asked for again, and tells itself when that works.
        if (this.pending === 0 && this.#askedLater.size === 0) this.#worked();
      })
      .catch((error: unknown) => this.#failed(error, leading))
      .finally(() => (this.#looking = undefined));
    return this.#looking;
  }

  /** Resolves when there is a job for each request so far. */
  async waitUntilFlushed(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing;
  }

  /** Flushes for half a second at most; the next leader's resync adds the rest. */
  async close(): Promise<void> {
    const { signal } = this.#stopping;
    if (this.#options.trouble() === undefined && this.#leading !== undefined)
      await unlessAborted(this.#flushAll(), signalWithin(signal, CLOSE_FLUSH_MS));
    this.#stopping.abort();
    this.#outage.forget();
  }

  /** Entries that stay behind would be looked at as if their claims were in doubt. */
  async #flushAll(): Promise<void> {
    await this.waitUntilFlushed();
    await this.look();
    await this.#options.journal.flush();
  }

  #request(request: KeyRequest): void {
    if (this.#stopping.signal.aborted) return;
    this.#options.queue.requested(request.key.kind);
    this.#pending.add(request);
    this.#startFlushing();
  }

  #startFlushing(): void {
    if (this.#leading === undefined || this.#pending.size === 0) return;
    // In a microtask, so that requests of one event make one batch and none waits for a timer.
    this.#flushing ??= Promise.resolve()
      .then(() => this.#flush())
      .finally(() => {
        this.#flushing = undefined;
        if (!this.#stopping.signal.aborted) this.#startFlushing();
      });
  }

  async #flush(): Promise<void> {
    const { signal } = this.#stopping;
    let refusals = 0;
    while (this.#pending.size > 0 && this.#leading !== undefined && !signal.aborted) {
      if (this.#options.trouble() !== undefined) {
        await systemClock.sleep(IDLE_MS, signal);
        continue;
      }
      await this.#pauseForBatch();
      const batch = this.#pending.take(BATCH_KEYS);
      this.#adding = batch.length;
      const isRefused = await this.#addBatch(batch, this.#leading);
      this.#adding = 0;
      refusals = isRefused ? refusals + 1 : 0;
      if (isRefused) await systemClock.sleep(backoffMs(REFUSED_PAUSE, refusals), signal);
    }
  }

  /** Lets requests become a batch, unless the batch is full or it is one of the quick ones. */
  async #pauseForBatch(): Promise<void> {
    const pauseMs = this.#dueMs - performance.now() - (QUICK_BATCHES - 1) * BATCH_PERIOD_MS;
    if (pauseMs > 0 && this.#pending.size < BATCH_KEYS)
      await systemClock.sleep(pauseMs, this.#stopping.signal);
    const nowMs = performance.now();
    const latestMs = nowMs + QUICK_BATCHES * BATCH_PERIOD_MS;
    this.#dueMs = Math.min(Math.max(this.#dueMs, nowMs) + BATCH_PERIOD_MS, latestMs);
  }

  /** @returns whether requests were refused; those are pending again */
  async #addBatch(batch: readonly KeyRequest[], leading: Leading): Promise<boolean> {
    const byKind = new Map<JobKind, KeyRequest[]>();
    for (const request of batch) {
      const { kind } = request.key;
      const known = byKind.get(kind);
      if (known === undefined) byKind.set(kind, [request]);
      else known.push(request);
    }
    const added = await Promise.all(
      [...byKind].map(async ([kind, requests]) => {
        try {
          await this.#addKind(kind, requests, leading);
          return true;
        } catch (error) {
          for (const request of requests) this.#pending.add(request);
          this.#failed(error, leading);
          return false;
        }
      }),
    );
    const isRefused = added.includes(false);
    if (!isRefused) this.#worked();
    return isRefused;
  }

  async #addKind(kind: JobKind, requests: readonly KeyRequest[], leading: Leading): Promise<void> {
    for (const { key, kind: what } of requests)
      if (what === 'promote') await this.#options.queue.promote(key);
    const adds = requests.filter((request) => request.kind !== 'promote');
    await (kind === 'claim' ? this.#addClaims(adds, leading) : this.#addVolumes(adds, leading));
  }

  async #addClaims(requests: readonly KeyRequest[], leading: Leading): Promise<void> {
    const { journal, queue } = this.#options;
    const due = requests.filter((request) => !this.#isHeld(request, request.key.uid));
    const planned = await this.#planAdds(due);
    // J1: the API server has the entries before a job is added.
    await this.#noteClaims(planned.flatMap(({ note }) => note ?? []));
    const adds: WorkRequest[] = [];
    for (const { request, needsNode } of planned) {
      const { key } = request;
      const add = { key, isNow: request.kind === 'now' };
      const { uid } = key;
      if (needsNode) adds.push(add);
      else if (journal.isOff) adds.push({ ...add, journal: '' });
      else if (journal.has(uid) && !journal.isFinished(uid)) {
        const { doubtMs } = this.#options;
        const doubt = this.#fresh.has(uid) ? {} : { doubtMs };
        adds.push({ ...add, journal: journal.objectOf(uid), ...doubt });
      } else this.#putBack(request, new Error('its entry has left, or was refused'));
    }
    if (adds.length === 0) return;
    const states = await queue.add('claim', adds, leading);
    if (leading === this.#leading)
      for (const [i, add] of adds.entries()) this.#claimAdded(add, states[i]);
  }

  /** What each request comes to: its job is added, after the journal knows the claim where it is to
   * be noted. A claim that can't be read keeps no other from its job. */
  async #planAdds(due: readonly KeyRequest[]): Promise<readonly PlannedAdd[]> {
    const { journal, log } = this.#options;
    const isKnown = ({ key }: KeyRequest): boolean => journal.has(key.uid);
    const planned: PlannedAdd[] = due
      .filter(isKnown)
      .map((request) => ({ request, needsNode: false }));
    const toRead = due.filter((request) => !isKnown(request));
    for (let from = 0; from < toRead.length; from += READS_AT_ONCE) {
      const slice = toRead.slice(from, from + READS_AT_ONCE);
      const found = await Promise.allSettled(
        slice.map(({ key }) => this.#options.claimToPlan(key)),
      );
      for (const [i, request] of slice.entries()) {
        const read = found[i];
        if (read?.status === 'rejected') this.#putBack(request, read.reason);
        else if (read?.value === undefined)
          log.debug(logFields(request.key), 'the claim is gone or has its volume: it needs no job');
        else if (read.value.needsNode) planned.push({ request, needsNode: true });
        else planned.push({ request, needsNode: false, note: read.value });
      }
    }
    return planned;
  }

  /** J1. One claim that the API server refuses keeps no other out of the journal. */
  async #noteClaims(notes: readonly ClaimToPlan[]): Promise<void> {
    const { journal, log } = this.#options;
    const fresh = notes.filter(({ claim }) => !journal.has(claim.metadata.uid));
    if (fresh.length === 0) return;
    try {
      await journal.add(fresh);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      for (const each of fresh)
        await journal.add([each]).catch((refusal: unknown) => {
          if (!isRefusal(refusal)) throw refusal;
          const { namespace, name } = each.claim.metadata;
          const fields = { claim: `${namespace}/${name}`, err: refusal };
          log.warn(fields, 'the API server refuses to note the claim: it gets no job');
        });
    }
    for (const { claim } of fresh)
      if (journal.has(claim.metadata.uid)) this.#fresh.add(claim.metadata.uid);
  }

  /** Asks for it again after a while. */
  #askAgain(request: KeyRequest): void {
    if (this.#askedLater.size === 0)
      setTimeout(() => {
        for (const each of this.#askedLater.take(Infinity)) this.#request(each);
      }, ASK_AGAIN_MS).unref();
    this.#askedLater.add(request);
  }

  /** Others do not wait for it. */
  #putBack(request: KeyRequest, error: unknown): void {
    this.#options.log.debug(
      { ...logFields(request.key), err: error },
      'the claim can not be read or noted now; trying again',
    );
    this.#askAgain(request);
  }

  #claimAdded({ key, journal, isNow }: WorkRequest, state: WorkState | undefined): void {
    const { uid } = key;
    this.#note({ key, isNow }, state);
    if (state === 'elsewhere') return this.#hold(uid, { key, kind: 'ensure' });
    const isAdded = state === 'added';
    const mayCall = journal !== undefined && (isAdded || !this.#selecting.has(uid));
    if (mayCall) this.#fresh.delete(uid);
    if (isAdded && journal === undefined) this.#selecting.add(uid);
    else if (isAdded) this.#selecting.delete(uid);
    // Its job may call no driver; when that is done, it gets one that may.
    else if (journal !== undefined && this.#selecting.has(uid)) this.#again.set(uid, key);
  }

  /** J5: a deletion waits until the claim's UID is not in the journal. */
  async #addVolumes(requests: readonly KeyRequest[], leading: Leading): Promise<void> {
    const { journal, queue } = this.#options;
    const adds: WorkRequest[] = [];
    for (const request of requests) {
      const id = workId(request.key);
      if (this.#isHeld(request, id)) continue;
      if (journal.has(id)) this.#hold(id, request);
      else adds.push({ key: request.key, isNow: request.kind === 'now' });
    }
    if (adds.length === 0) return;
    const states = await queue.add('volume', adds, leading);
    if (leading !== this.#leading) return;
    for (const [i, add] of adds.entries()) {
      const { key } = add;
      const state = states[i];
      this.#note(add, state);
      if (state === 'elsewhere') this.#hold(workId(key), { key, kind: 'now' });
    }
  }

  /** Whether the request waits for an entry to leave. */
  #isHeld(request: KeyRequest, id: string): boolean {
    if (!this.#isEnding(id)) return false;
    this.#hold(id, request);
    return true;
  }

  #isEnding(id: string): boolean {
    return this.#options.journal.isFinished(id) || this.#ending.has(id);
  }

  #hold(id: string, request: KeyRequest): void {
    const known = this.#held.get(id);
    // A deletion comes after the creation, and is what is asked for then.
    if (known?.key.kind !== 'volume') this.#held.set(id, request);
    this.#options.journal.hasten();
    this.#lookSoon(LOOK_PAUSE_MS);
  }

  #note({ key, isNow }: WorkRequest, state: WorkState | undefined): void {
    if (state !== 'active' && state !== 'finished') return;
    // The run under way may have begun before the change: its job is not to be delayed after it.
    if (state === 'active' && isNow) this.#askAgain({ key: bareKey(key), kind: 'now' });
    this.#again.set(workId(key), key);
    this.#lookSoon(LOOK_PAUSE_MS);
  }

  #lookSoon(afterMs: number): void {
    if (this.#nextLook !== undefined) return;
    this.#nextLook = setTimeout(() => {
      this.#nextLook = undefined;
      void this.look();
    }, afterMs).unref();
  }

  async #look(leading: Leading): Promise<void> {
    const { journal, queue } = this.#options;
    await this.#lookAtClaims(leading);
    const { ids, unread } = await queue.finished('volume', leading);
    await this.#dropUnread('volume', unread, leading);
    await this.#removeJobs('volume', ids);
    // What waits for a claim in doubt may wait for long, and nothing is to be written for it.
    if ([...this.#held.keys()].some((id) => this.#isEnding(id))) journal.hasten();
    if (this.#held.size + this.#again.size > 0) this.#lookSoon(LOOK_AGAIN_MS);
  }

  async #lookAtClaims(leading: Leading): Promise<void> {
    const { journal, queue } = this.#options;
    const { ids, unread, forgotten } = await queue.finished('claim', leading);
    const ended = ids.filter((id) => !this.#ending.has(id));
    await this.#dropUnread('claim', unread, leading);
    // A job that only selected a node has called nothing: its claim, which may be in the journal by
    // now, gets the next one at once.
    const mayLeave = (id: string): boolean => journal.has(id) && !this.#selecting.has(id);
    const noted = ended.filter(mayLeave);
    const gone = ended.filter((id) => !mayLeave(id));
    for (const id of noted) this.#ending.add(id);
    journal.finish(noted);
    if (noted.some((id) => this.#again.has(id))) journal.hasten();
    await this.#removeJobs('claim', gone);
    if (forgotten.length === 0) return;
    await queue.remove('claim', forgotten, leading, true);
    journal.finish(forgotten);
    journal.hasten();
  }

  /** A job that no worker could read has done nothing: a claim with an entry gets another one. */
  async #dropUnread(kind: JobKind, unread: readonly string[], leading: Leading): Promise<void> {
    if (unread.length === 0) return;
    await this.#options.queue.remove(kind, unread, leading);
    for (const key of this.entries()) if (unread.includes(key.uid)) this.ensureQueued(key);
  }

  /** Removes finished jobs, and looks again at keys for which events came meanwhile. */
  async #removeJobs(kind: JobKind, ids: readonly string[]): Promise<void> {
    const { queue } = this.#options;
    const leading = this.#leading;
    if (ids.length === 0 || leading === undefined) return;
    try {
      await queue.remove(kind, ids, leading);
    } catch (error) {
      // The next look finds them again.
      for (const id of ids) this.#ending.delete(id);
      return this.#failed(error, leading);
    }
    for (const id of ids) {
      this.#ending.delete(id);
      if (kind === 'claim') this.#selecting.delete(id);
      this.#release(id);
    }
  }

  #release(id: string): void {
    const held = this.#held.get(id);
    const again = this.#again.get(id);
    this.#held.delete(id);
    this.#again.delete(id);
    const isDue = held?.key.kind === 'volume' || this.#options.journal.has(id);
    if (held !== undefined && isDue) this.#request(held);
    // Whether a claim needs another job is judged as it is now.
    const key = again ?? held?.key;
    if (key !== undefined && !(isDue && key.kind === held?.key.kind))
      this.#options.onMayNeedAgain(key);
  }

  #failed(error: unknown, leading: Leading): void {
    const { log, queue, trouble, onOutdated } = this.#options;
    // This process may have begun again meanwhile.
    if (leading !== this.#leading) return;
    if (error instanceof LeadershipOutdated) {
      this.#leading = undefined;
      return onOutdated();
    }
    queue.refused();
    const reason = messageOf(error);
    this.#trouble = `claims get no jobs: ${reason}`;
    // That Redis is away, its connection has said.
    if (trouble() === undefined)
      this.#outage.met(reason, { reason }, 'claims and volumes get no jobs; trying again');
    log.debug({ err: error }, 'a batch was refused');
  }

  #worked(): void {
    this.#trouble = undefined;
    this.#outage.ended({}, 'claims and volumes get jobs again');
  }
}
