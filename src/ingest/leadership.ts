import { randomBytes } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { ServedDrivers } from '../connections/open-connections.ts';
import { drainOf, historyAnnotation, type SeenLease } from '../election/lease-view.ts';
import type { LeadStatus, OwnLeader } from '../election/own-leader.ts';
import { writeDriverNote } from '../hints/driver-note.ts';
import type { Journal } from '../journal/journal.ts';
import { REDIS_HISTORY } from '../kube/keys.ts';
import {
  beginTerm,
  dropJobsOfBefore,
  forgetHistory,
  readHistory,
  type Term,
} from '../queue/history.ts';
import { registerDriver } from '../queue/queues.ts';
import { showDoubts } from '../queue/run.ts';
import { queueName } from '../queue/queue-keys.ts';
import type { Leading, WorkQueue } from '../queue/work-queue.ts';
import type { RedisLink } from '../redis/connection.ts';
import type { RedisPlace } from '../redis/key-prefix.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { Outage } from '../runtime/outage.ts';
import type { Dispatcher } from './dispatcher.ts';
import type { LeaderOnlyQueue } from './leader-only-queue.ts';
import type { ProvisioningPause } from './provisioning-pause.ts';
import type { Resync } from './resync.ts';
import type { SnapshotSweep } from './snapshot-sweep.ts';

/** The driver's Lease, as the leader writes it. */
export interface LeaderLease extends LeadStatus {
  /** Writes it now, with the history that the leader knows. Resolves when that is done, or when
   * this process leads no more.
   * @param transitions  its count of holders is raised to this */
  renewNow(transitions?: number): Promise<void>;
}

export interface LeadershipOptions {
  /** Of the driver's Lease. */
  readonly namespace: string;
  readonly place: RedisPlace;
  readonly link: Pick<RedisLink, 'trouble'>;
  readonly queue: LeaderOnlyQueue;
  readonly journal: Pick<
    Journal,
    'begin' | 'end' | 'isOff' | 'tidy' | 'trouble' | 'unfinishedUids'
  >;
  readonly dispatcher: Pick<Dispatcher, 'begin' | 'end' | 'look'>;
  readonly work: Pick<WorkQueue, 'emptied'>;
  readonly resync: Resync;
  readonly pause: Pick<ProvisioningPause, 'learn' | 'forget'>;
  /** Undefined where sweeps are switched off, or the driver makes no snapshots. */
  readonly sweep: Pick<SnapshotSweep, 'begin' | 'tick'> | undefined;
  /** Set where jobs is the same process, and Redis its own. */
  readonly ownLeader: OwnLeader | undefined;
  /** What a leader does right before it enqueues. Rejects while Redis can't be reached. */
  readonly prepare: () => Promise<void>;
  readonly serves: ServedDrivers;
  /** Why the driver can't be reached; undefined while it can. */
  readonly driverTrouble: () => string | undefined;
  readonly log: Logger;
}

/** How often a journal that may not be written is tried again. */
const JOURNAL_RETRY_MS = 60_000;
/** Claims in the journal of which it is told whether they are in doubt. */
const MOST_COUNTED = 5_000;
const COUNT_PERIOD_MS = 5_000;

/** What this ingest does while it leads, from `begin` to `end` (docs/leak-proof.md, J3): it writes
 * its term and the history of Redis' data, reads the journal, and has everything looked at. It does
 * so again when Redis has lost its data, which it looks for once a second. */
export class Leadership {
  readonly #options: LeadershipOptions;
  readonly #id = randomBytes(6).toString('hex');
  #lease: LeaderLease | undefined;
  /** As read last; '' = not known. */
  #history = '';
  /** The history with which this leader has begun; undefined: it has to begin. */
  #begunWith: string | undefined;
  #isWorking = false;
  #isAsked = false;
  /** Why a resync is due when this leader has begun. */
  #dueResync: string | undefined;
  #journalTriedMs = -Infinity;
  /** leaseTransitions when this process led last; undefined: it has not. */
  #ledTransitions: number | undefined;
  #trouble: string | undefined;
  #doubts = { count: 0, endsMs: 0 };
  #countedMs = -Infinity;
  readonly #outage: Outage;

  constructor(options: LeadershipOptions) {
    this.#options = options;
    this.#outage = new Outage(options.log);
  }

  /** Why this process would enqueue nothing although it leads; undefined if it would. */
  get trouble(): string | undefined {
    return this.#options.queue.isAllowing && this.#begunWith === undefined
      ? (this.#trouble ?? 'this ingest has just begun to lead')
      : undefined;
  }

  /** The annotation of the driver's Lease that names Redis' history; none while it is not known. */
  annotations({ transitions }: { readonly transitions: number }): Readonly<Record<string, string>> {
    if (this.#history === '') return {};
    return { [REDIS_HISTORY]: historyAnnotation(transitions, this.#history) };
  }

  /** This process leads from now on, as long as the Lease says so. */
  begin(lease: LeaderLease): void {
    const { queue, sweep, log } = this.#options;
    const { driver } = this.#options.place;
    this.#lease = lease;
    this.#begunWith = undefined;
    queue.allow(() => lease.isLeader);
    this.#options.serves.add(driver);
    log.info({ driver }, 'leading: this ingest enqueues claims and volumes');
    this.request('leading');
    sweep?.begin();
  }

  /** Another ingest leads, or none. */
  end(reason: string): void {
    const { serves, dispatcher, journal, ownLeader, queue, pause, resync, log } = this.#options;
    const { driver } = this.#options.place;
    queue.block();
    dispatcher.end();
    journal.end();
    ownLeader?.confirm(undefined);
    this.#begunWith = undefined;
    serves.delete(driver);
    pause.forget();
    resync.stop();
    log.warn({ driver, reason }, 'not leading any more: this ingest enqueues nothing');
  }

  /** Looks whether Redis has lost its data, and has everything looked at, as where changes may have
   * been missed.
   * @param reason  for the log */
  request(reason: string): void {
    this.#dueResync = reason;
    this.#ask();
  }

  /** Another process leads by now, or Redis has lost its data: begins again if it still leads. */
  outdated(): void {
    this.#begunWith = undefined;
    this.#ask();
  }

  /** To be called every second, with what the driver's Lease says: all that the leader does again
   * and again. */
  tick(seen: SeenLease): void {
    const { dispatcher, journal, pause, queue, resync, sweep } = this.#options;
    this.#ask();
    void dispatcher.look();
    void journal.tidy();
    resync.tick();
    sweep?.tick();
    pause.learn(seen, queue.isAllowing);
    void this.report(seen);
  }

  /** Tells people what the Lease says, and how the journal is. Never rejects. */
  async report({ otherHolder: otherProvisioner, lease }: SeenLease): Promise<void> {
    const { place, link, queue, journal, log } = this.#options;
    if (link.trouble !== undefined) return;
    try {
      const known = { otherProvisioner, drain: drainOf(lease?.annotations) };
      const isNews = queue.isAllowing || otherProvisioner !== undefined;
      if (!isNews) return;
      const note = { ...known, ...(await this.#journalFacts()) };
      await writeDriverNote(place, note);
    } catch (error) {
      log.debug({ err: error, isOff: journal.isOff }, 'could not tell how the driver fares');
    }
  }

  async #journalFacts() {
    const { place, queue, journal } = this.#options;
    if (!queue.isAllowing) return {};
    const uids = journal.unfinishedUids();
    const name = queueName('claim', place.driver);
    if (uids.length === 0) this.#doubts = { count: 0, endsMs: Date.now() };
    else if (performance.now() - this.#countedMs > COUNT_PERIOD_MS) {
      this.#countedMs = performance.now();
      const lefts = await showDoubts(place, name, uids.slice(0, MOST_COUNTED));
      const inDoubt = lefts.filter((leftMs) => leftMs !== undefined && leftMs > 0);
      const endsMs = Date.now() + inDoubt.reduce((a: number, b = 0) => Math.max(a, b), 0);
      this.#doubts = { count: inDoubt.length, endsMs };
    }
    return {
      driverTrouble: this.#options.driverTrouble(),
      entries: uids.length,
      // Counted before, of claims that may have left the journal since.
      inDoubt: Math.min(this.#doubts.count, uids.length),
      doubtEndsMs: this.#doubts.endsMs,
      journalTrouble: journal.trouble,
    };
  }

  /** One step after the other, and one more if it was asked for meanwhile. */
  #ask(): void {
    this.#isAsked = true;
    if (this.#isWorking) return;
    this.#isWorking = true;
    void (async () => {
      while (this.#isAsked) {
        this.#isAsked = false;
        await this.#step();
      }
      this.#isWorking = false;
    })();
  }

  async #step(): Promise<void> {
    const { place, link, queue, log } = this.#options;
    if (link.trouble !== undefined) return;
    try {
      const { history, isOfHistory } = await readHistory(place);
      const isOther = this.#history !== '' && history !== this.#history;
      this.#history = history;
      if (isOther) log.warn({ driver: place.driver }, 'Redis has lost its data or failed over');
      const isBegun = this.#begunWith === history && isOfHistory;
      if (!queue.isAllowing) return;
      if (!isBegun || (await this.#mayNote())) await this.#beginAnew();
      this.#trouble = undefined;
      this.#outage.ended({}, 'this ingest enqueues claims and volumes again');
      this.#runResync();
    } catch (error) {
      this.#trouble = `nothing is enqueued: ${messageOf(error)}`;
      this.#outage.met(messageOf(error), { err: error }, 'nothing is enqueued; trying again');
    }
  }

  /** Whether a journal that might not be written can be written by now. */
  async #mayNote(): Promise<boolean> {
    const { journal } = this.#options;
    const lease = this.#lease;
    const isDue = performance.now() - this.#journalTriedMs > JOURNAL_RETRY_MS;
    if (lease === undefined || !journal.isOff || !isDue) return false;
    this.#journalTriedMs = performance.now();
    await journal.begin(lease.transitions, () => lease.isLeader);
    return !journal.isOff;
  }

  /** @param reason  where none was asked for */
  #runResync(reason?: string, isSpread = false): void {
    const due = this.#dueResync ?? reason;
    this.#dueResync = undefined;
    if (due !== undefined) void this.#options.resync.run(due, isSpread);
  }

  /** J3.
   * @throws the error of Redis or of the API server; the next step tries again */
  async #beginAnew(): Promise<void> {
    const { place, dispatcher, journal, ownLeader, work } = this.#options;
    const lease = this.#lease;
    if (lease === undefined) return;
    dispatcher.end();
    journal.end();
    ownLeader?.confirm(undefined);
    await this.#forgetOwnHistory(lease);
    const term = await this.#beginTerm(lease);
    const { history, isOfHistory } = await readHistory(place);
    this.#history = history;
    // Writes the history to the Lease.
    await lease.renewNow();
    this.#journalTriedMs = performance.now();
    if (!lease.isLeader) return;
    await registerDriver(place, this.#options.namespace);
    const begun = await journal.begin(term.transitions, () => lease.isLeader);
    if (!lease.isLeader) return;
    if (!isOfHistory) {
      const isDropped = await dropJobsOfBefore(place, term, history);
      work.emptied();
      if (!isDropped) return this.outdated();
    }
    await this.#options.prepare();
    if (lease.isLeader) this.#begun({ term, history }, begun.length, !isOfHistory);
  }

  #begun(leading: Leading, entries: number, isWithoutJobs: boolean): void {
    const { dispatcher, ownLeader, log } = this.#options;
    const { history, term } = leading;
    this.#begunWith = history;
    this.#ledTransitions = term.transitions;
    ownLeader?.confirm(history);
    dispatcher.begin(leading);
    log.debug({ entries, isWithoutJobs }, 'this leader has begun');
    // Requests that waited for the end of a job are gone, and without jobs everything is.
    this.#runResync('Redis has lost its data', isWithoutJobs);
  }

  /** A Redis of its own is behind if another process has led since this one did. */
  async #forgetOwnHistory(lease: LeaderLease): Promise<void> {
    const { ownLeader, place } = this.#options;
    const isBehind =
      this.#ledTransitions !== undefined && this.#ledTransitions !== lease.transitions;
    if (ownLeader !== undefined && isBehind) await forgetHistory(place);
  }

  async #beginTerm(lease: LeaderLease): Promise<Term> {
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const { transitions } = lease;
      const term = { transitions, leader: this.#id };
      const higher = await beginTerm(
        this.#options.place,
        term,
        this.#ledTransitions === transitions,
      );
      if (higher === undefined) return term;
      // Nobody else has held the Lease since this process began to lead.
      if (this.#ledTransitions === transitions) break;
      // The Lease was deleted, and counts from 0 again.
      await lease.renewNow(higher + 1);
    }
    const { driver, prefix } = this.#options.place;
    throw new Error(
      `another installation serves driver ${driver} with this Redis and --redis-prefix=${prefix}: ` +
        'give one of them another --redis-prefix',
    );
  }
}

const MOST_TRIES = 3;
