import { performance } from 'node:perf_hooks';
import type { Claim, Class } from '../kube/objects.ts';
import { KubeError } from '../kube/kube-error.ts';
import type { Journal } from '../journal/journal.ts';
import {
  bareKey,
  type JobKey,
  type JobKind,
  type KeyToQueue,
  logFields,
  workId,
} from '../queue/contract.ts';
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
  /** An event came for a claim while its job ran or its entry left: it may need another job. */
  readonly onMayNeedAgain: (claim: JobKey) => void;
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
  /** Keys that wait for the end of a job or an entry, by the id of that job. */
  readonly #next = new Map<string, JobKey>();

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
    this.#fresh.clear();
    this.#next.clear();
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
    void this.#removeJobs('claim', uids);
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
    const { journal, queue } = this.#options;
    for (const { key, kind: what } of requests) if (what === 'promote') await queue.promote(key);
    // J2, J5: a claim's next job waits until its entry has left, a deletion until there is none.
    const mustWait = ({ key }: KeyRequest): boolean =>
      kind === 'claim' ? journal.isFinished(key.uid) : journal.has(workId(key));
    const due: KeyRequest[] = [];
    for (const request of requests.filter((each) => each.kind !== 'promote'))
      if (mustWait(request)) this.#waitFor(request.key);
      else due.push(request);
    const adds =
      kind === 'claim'
        ? await this.#noteAll(due)
        : due.map((request) => ({ key: request.key, isNow: request.kind === 'now' }));
    if (adds.length === 0) return;
    const states = await queue.add(kind, adds, leading);
    if (leading !== this.#leading) return;
    for (const [i, add] of adds.entries()) this.#added(add, states[i]);
  }

  /** J1: the API server has the claims' entries before a job is added.
   * @returns the jobs to add */
  async #noteAll(requests: readonly KeyRequest[]): Promise<readonly WorkRequest[]> {
    const { journal, doubtMs } = this.#options;
    const planned = await this.#planAdds(requests);
    await this.#noteClaims(planned.flatMap(({ note }) => note ?? []));
    const adds: WorkRequest[] = [];
    for (const { request, needsNode } of planned) {
      const { key } = request;
      const add = { key, isNow: request.kind === 'now' };
      const { uid } = key;
      if (needsNode) adds.push(add);
      else if (journal.isOff) adds.push({ ...add, journal: '' });
      else if (journal.has(uid) && !journal.isFinished(uid)) {
        const doubt = this.#fresh.has(uid) ? {} : { doubtMs };
        adds.push({ ...add, journal: journal.objectOf(uid), ...doubt });
      } else this.#putBack(request, new Error('its entry has left, or was refused'));
    }
    return adds;
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

  #added({ key, journal, isNow }: WorkRequest, state: WorkState | undefined): void {
    if (state === 'added' && journal !== undefined) this.#fresh.delete(key.uid);
    // The run under way may have begun before the change: its job is not to be delayed after it.
    if (state === 'active' && isNow) this.#askAgain({ key: bareKey(key), kind: 'now' });
    if (state === 'active' || state === 'finished' || state === 'elsewhere') this.#waitFor(key);
  }

  /** Looks at the key again when its job, or the entry of its claim, is gone. */
  #waitFor(key: KeyToQueue): void {
    const { journal } = this.#options;
    const id = workId(key);
    // A deletion comes after the creation, and is what is asked for then.
    if (this.#next.get(id)?.kind !== 'volume') this.#next.set(id, bareKey(key));
    if (journal.isFinished(id)) journal.hasten();
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
    const { ended, idle, forgotten } = await queue.finished('claim', leading);
    // J2: first the entry leaves, and then the job.
    const noted = ended.filter((id) => journal.has(id));
    const others = ended.filter((id) => !journal.has(id));
    journal.finish(noted);
    await this.#removeJobs('claim', [...others, ...idle]);
    if (forgotten.length > 0) {
      await queue.remove('claim', forgotten, leading, true);
      journal.finish(forgotten);
      journal.hasten();
    }
    const deletions = await queue.finished('volume', leading);
    await this.#removeJobs('volume', [...deletions.ended, ...deletions.idle]);
    // What waits for a claim in doubt may wait for long, and nothing is to be written for it.
    if ([...this.#next.keys()].some((id) => journal.isFinished(id))) journal.hasten();
    if (this.#next.size > 0) this.#lookSoon(LOOK_AGAIN_MS);
  }

  /** Removes finished jobs, and looks again at what waited for that. */
  async #removeJobs(kind: JobKind, ids: readonly string[]): Promise<void> {
    const { journal, onMayNeedAgain, queue } = this.#options;
    const leading = this.#leading;
    if (ids.length === 0 || leading === undefined) return;
    // Where Redis refuses it, the next look finds them again.
    await queue.remove(kind, ids, leading).catch((error: unknown) => this.#failed(error, leading));
    // J3: a claim whose entry stays gets another job. This one has called nothing, or was a
    // deletion.
    const open = new Set(ids.filter((id) => journal.has(id) && !journal.isFinished(id)));
    if (open.size > 0)
      for (const key of this.entries()) if (open.has(key.uid)) this.ensureQueued(key);
    for (const id of ids) {
      const next = this.#next.get(id);
      this.#next.delete(id);
      if (next?.kind === 'volume') this.ensureQueued(next);
      // Whether a claim needs another job is judged as it is now.
      else if (next !== undefined && !open.has(id)) onMayNeedAgain(next);
    }
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
