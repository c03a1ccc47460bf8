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
  /** Finds the claim of a key. Rejects while the claim can't be read.
   * @returns undefined if it needs no job any more */
  readonly claimToPlan: (key: KeyToQueue) => Promise<ClaimToPlan | undefined>;
  /** D: how long calls of earlier jobs may be at work. */
  readonly doubtMs: number;
  /** Why no job can be added now; undefined while jobs can be added. */
  readonly trouble: () => string | undefined;
  /** Called for a claim that changed during its run, and so may need another job. */
  readonly onMayNeedAgain: (claim: JobKey) => void;
  /** Called when another process leads, or Redis has lost its data. */
  readonly onOutdated: () => void;
  readonly log: Logger;
}

const BATCH_KEYS = 200;
/** Average time between batches, so that several claims share one write of the journal. The first
 * batches after a quiet time are not delayed. */
const BATCH_PERIOD_MS = 20;
const QUICK_BATCHES = 5;
const REFUSED_PAUSE = { startMs: 100, maxMs: 2_000 };
const IDLE_MS = 50;
const LOOK_PAUSE_MS = 50;
/** Pause between looks while a key waits for the end of a job. */
const LOOK_AGAIN_MS = 250;
const CLOSE_FLUSH_MS = 500;
const READS_AT_ONCE = 16;
const ASK_AGAIN_MS = 500;

/** A request whose job is to be added. */
interface PlannedAdd {
  readonly request: KeyRequest;
  /** Its job only selects a node. */
  readonly needsNode: boolean;
  /** The claim to note in the journal first. */
  readonly note?: ClaimToPlan;
}

/** Whether the API server would refuse the same object again. */
function isRefusal(error: unknown): boolean {
  return error instanceof KubeError && [400, 413, 422].includes(error.code);
}

/** Adds the jobs of keys by docs/leak-proof.md, J1 to J5. It notes a claim in the journal before it
 * adds the claim's first job; when that job has finished, it removes first the entry, then the job.
 * Requests never throw and never block. */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #pending = new PendingKeys();
  /** Requests to repeat after ASK_AGAIN_MS. */
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
  /** Claims that this leader has noted and that have had no job. For any other claim with an entry,
   * a call of an earlier job may be at work, so its next job begins in doubt. */
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

  /** J3: begins to add jobs for this leader. */
  begin(leading: Leading): void {
    this.#leading = leading;
    this.#fresh.clear();
    this.#next.clear();
    this.#startFlushing();
    void this.look();
  }

  /** Adds nothing until the next `begin`. */
  end(): void {
    this.#leading = undefined;
  }

  /** The keys of the journal's entries. Their claims may be gone. */
  *entries(): Generator<KeyToQueue> {
    for (const { claim } of this.#options.journal.unfinished()) {
      const { uid, namespace = '', name } = claim.metadata;
      yield { kind: 'claim', uid, namespace, name };
    }
  }

  /** Makes sure that the key has a job. A waiting or delayed job stays as it is. During a run,
   * looks at the key again after the run. */
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

  /** Removes the jobs of claims whose entries are gone from the API server. */
  entriesGone(uids: readonly string[]): void {
    void this.#removeJobs('claim', uids);
  }

  /** J2: finds finished jobs and removes them; to be called every second. */
  look(): Promise<void> {
    const leading = this.#leading;
    if (leading === undefined || this.#options.trouble() !== undefined) return Promise.resolve();
    this.#looking ??= this.#look(leading)
      .then(() => {
        // If refused requests are left, only their success ends the outage.
        if (this.pending === 0 && this.#askedLater.size === 0) this.#worked();
      })
      .catch((error: unknown) => this.#failed(error, leading))
      .finally(() => (this.#looking = undefined));
    return this.#looking;
  }

  /** Resolves when each request so far has a job. */
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

  /** Also removes finished entries: the next leader treats each entry that it finds as in doubt. */
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

  /** Waits for more requests, unless the batch is full or is one of the quick ones. */
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
    // J2, J5: a claim's next job waits until its finished entry is removed, a deletion until the
    // claim has no entry.
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

  /** J1: writes the claims' entries to the API server.
   * @returns the jobs that may be added after that */
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
      } else this.#putBack(request, new Error('the entry was removed or refused'));
    }
    return adds;
  }

  /** Reads the claims that have no entry, and drops those that need no job. A claim that can't be
   * read is tried again later and does not delay the others. */
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

  /** J1. If the API server refuses one claim, the others are noted all the same. */
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
          log.warn(
            fields,
            'the API server refuses the claim’s journal entry: the claim gets no job',
          );
        });
    }
    for (const { claim } of fresh)
      if (journal.has(claim.metadata.uid)) this.#fresh.add(claim.metadata.uid);
  }

  /** Repeats the request after ASK_AGAIN_MS. */
  #askAgain(request: KeyRequest): void {
    if (this.#askedLater.size === 0)
      setTimeout(() => {
        for (const each of this.#askedLater.take(Infinity)) this.#request(each);
      }, ASK_AGAIN_MS).unref();
    this.#askedLater.add(request);
  }

  /** Repeats the request later, so that the others do not wait. */
  #putBack(request: KeyRequest, error: unknown): void {
    this.#options.log.debug(
      { ...logFields(request.key), err: error },
      'could not read or note the claim; trying again',
    );
    this.#askAgain(request);
  }

  #added({ key, journal, isNow }: WorkRequest, state: WorkState | undefined): void {
    if (state === 'added' && journal !== undefined) this.#fresh.delete(key.uid);
    // The current run may have begun before the change, so a failed job must not be delayed.
    if (state === 'active' && isNow) this.#askAgain({ key: bareKey(key), kind: 'now' });
    if (state === 'active' || state === 'finished' || state === 'elsewhere') this.#waitFor(key);
  }

  /** Looks at the key again when its job, or the entry of its claim, is gone. */
  #waitFor(key: KeyToQueue): void {
    const { journal } = this.#options;
    const id = workId(key);
    // A deletion that waits is kept: it comes after the creation.
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
    const { claim, volume, forgotten } = await queue.finished(leading);
    // J2: the entry is removed before the job.
    const noted = claim.ended.filter((id) => journal.has(id));
    const others = claim.ended.filter((id) => !journal.has(id));
    journal.finish(noted);
    await this.#removeJobs('claim', [...others, ...claim.idle]);
    if (forgotten.length > 0) {
      await queue.remove('claim', forgotten, leading, true);
      journal.finish(forgotten);
      journal.hasten();
    }
    await this.#removeJobs('volume', [...volume.ended, ...volume.idle]);
    // Only finished entries need a write; a key that waits for a claim in doubt may wait for long.
    if ([...this.#next.keys()].some((id) => journal.isFinished(id))) journal.hasten();
    if (this.#next.size > 0) this.#lookSoon(LOOK_AGAIN_MS);
  }

  /** Removes finished jobs, and looks again at the keys that waited for them. */
  async #removeJobs(kind: JobKind, ids: readonly string[]): Promise<void> {
    const { journal, onMayNeedAgain, queue } = this.#options;
    const leading = this.#leading;
    if (ids.length === 0 || leading === undefined) return;
    // If Redis refuses, the next look finds the jobs again.
    await queue.remove(kind, ids, leading).catch((error: unknown) => this.#failed(error, leading));
    // J3: a claim whose entry stays gets another job. The removed job called nothing, or deleted.
    const open = new Set(ids.filter((id) => journal.has(id) && !journal.isFinished(id)));
    if (open.size > 0)
      for (const key of this.entries()) if (open.has(key.uid)) this.ensureQueued(key);
    for (const id of ids) {
      const next = this.#next.get(id);
      this.#next.delete(id);
      if (next?.kind === 'volume') this.ensureQueued(next);
      // The claim's present state decides whether it needs another job.
      else if (next !== undefined && !open.has(id)) onMayNeedAgain(next);
    }
  }

  #failed(error: unknown, leading: Leading): void {
    const { log, queue, trouble, onOutdated } = this.#options;
    // This process may have begun another term since.
    if (leading !== this.#leading) return;
    if (error instanceof LeadershipOutdated) {
      this.#leading = undefined;
      return onOutdated();
    }
    queue.refused();
    const reason = messageOf(error);
    this.#trouble = `claims get no jobs: ${reason}`;
    // The connection itself logs that Redis is down.
    if (trouble() === undefined)
      this.#outage.met(reason, { reason }, 'claims and volumes get no jobs; trying again');
    log.debug({ err: error }, 'a batch was refused');
  }

  #worked(): void {
    this.#trouble = undefined;
    this.#outage.ended({}, 'claims and volumes get jobs again');
  }
}
