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
  /** Writes the Lease now, with the history that the leader knows. Resolves when it is written, or
   * when this process no longer leads.
   * @param transitions  raises leaseTransitions at least to this */
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
  /** Undefined if sweeps are switched off, or the driver makes no snapshots. */
  readonly sweep: Pick<SnapshotSweep, 'begin' | 'tick'> | undefined;
  /** Set if jobs runs in this process and Redis is its own. */
  readonly ownLeader: OwnLeader | undefined;
  /** What a leader does right before it enqueues. Rejects while Redis can't be reached. */
  readonly prepare: () => Promise<void>;
  readonly serves: ServedDrivers;
  /** Why the driver can't be reached; undefined while it can. */
  readonly driverTrouble: () => string | undefined;
  readonly log: Logger;
}

/** How often to retry a journal that this account may not write. */
const JOURNAL_RETRY_MS = 60_000;
/** How many of the journal's claims are checked for doubt at most. */
const MOST_COUNTED = 5_000;
const COUNT_PERIOD_MS = 5_000;
/** How often a note that has not changed is written again, so that it does not expire. */
const RENEW_NOTE_MS = 4_000;
const NOTHING_NOTED = { text: '', untilMs: -Infinity };

/** Leads from `begin` to `end` (docs/leak-proof.md, J3): writes its term and the history of Redis'
 * data, reads the journal, and resyncs. Begins again after Redis has lost its data, which the
 * dispatcher's look notices every second. */
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
  /** Why a resync is due as soon as this leader has begun. */
  #dueResync: string | undefined;
  #journalTriedMs = -Infinity;
  /** leaseTransitions when this process last led; undefined: it has never led. */
  #ledTransitions: number | undefined;
  #trouble: string | undefined;
  #doubts = { count: 0, endsMs: 0 };
  #countedMs = -Infinity;
  /** The note that this process has written last. */
  #noted = NOTHING_NOTED;
  readonly #outage: Outage;

  constructor(options: LeadershipOptions) {
    this.#options = options;
    this.#outage = new Outage(options.log);
  }

  /** Why this process leads but enqueues nothing; undefined otherwise. */
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

  /** Begins to lead, for as long as the Lease says so. */
  begin(lease: LeaderLease): void {
    const { queue, sweep, log } = this.#options;
    const { driver } = this.#options.place;
    this.#lease = lease;
    this.#begunWith = undefined;
    this.#noted = NOTHING_NOTED;
    queue.allow(() => lease.isLeader);
    this.#options.serves.add(driver);
    log.info({ driver }, 'leading: this ingest enqueues claims and volumes');
    this.request('leading');
    sweep?.begin();
  }

  /** Ends leading. */
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

  /** Checks whether Redis has lost its data, and resyncs, because changes may have been missed.
   * @param reason  for the log */
  request(reason: string): void {
    this.#dueResync = reason;
    this.#ask();
  }

  /** Begins again if this process still leads. To be called when another process leads, or Redis
   * has lost its data. */
  outdated(): void {
    this.#begunWith = undefined;
    this.#ask();
  }

  /** Does the leader's periodic tasks; to be called every second, with what the Lease says. */
  tick(seen: SeenLease): void {
    const { dispatcher, journal, pause, queue, resync, sweep } = this.#options;
    const isBegun = this.#begunWith !== undefined && this.#dueResync === undefined;
    if (!isBegun || journal.isOff) this.#ask();
    void dispatcher.look();
    void journal.tidy();
    resync.tick();
    sweep?.tick();
    pause.learn(seen, queue.isAllowing);
    void this.report(seen);
  }

  /** Writes the state of the Lease and the journal to Redis, for people. Never rejects. */
  async report({ otherHolder: otherProvisioner, lease }: SeenLease): Promise<void> {
    const { place, link, queue, journal, log } = this.#options;
    if (link.trouble !== undefined) return;
    try {
      const known = { otherProvisioner, drain: drainOf(lease?.annotations) };
      const isNews = queue.isAllowing || otherProvisioner !== undefined;
      if (!isNews) return;
      const note = { ...known, ...(await this.#journalFacts()) };
      const text = JSON.stringify(note);
      const nowMs = performance.now();
      if (text === this.#noted.text && nowMs < this.#noted.untilMs) return;
      await writeDriverNote(place, note);
      this.#noted = { text, untilMs: nowMs + RENEW_NOTE_MS };
    } catch (error) {
      log.debug(
        { err: error, isOff: journal.isOff },
        'could not write the driver’s state to Redis',
      );
    }
  }

  async #journalFacts() {
    const { place, queue, journal } = this.#options;
    if (!queue.isAllowing) return {};
    const uids = journal.unfinishedUids();
    const name = queueName('claim', place.driver);
    if (uids.length === 0) this.#doubts = { count: 0, endsMs: 0 };
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
      // The count may be 5 s old, and claims may have left the journal since.
      inDoubt: Math.min(this.#doubts.count, uids.length),
      doubtEndsMs: this.#doubts.endsMs,
      journalTrouble: journal.trouble,
    };
  }

  /** Runs one step after the other, and one more if it was requested during a step. */
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
      if (isOther) {
        this.#noted = NOTHING_NOTED;
        log.warn({ driver: place.driver }, 'Redis has lost its data or failed over');
      }
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

  /** Whether this account can now write the journal, and could not before. */
  async #mayNote(): Promise<boolean> {
    const { journal } = this.#options;
    const lease = this.#lease;
    const isDue = performance.now() - this.#journalTriedMs > JOURNAL_RETRY_MS;
    if (lease === undefined || !journal.isOff || !isDue) return false;
    this.#journalTriedMs = performance.now();
    await journal.begin(lease.transitions, () => lease.isLeader);
    return !journal.isOff;
  }

  /** @param reason  of a resync that nobody requested */
  #runResync(reason?: string, isSpread = false): void {
    const due = this.#dueResync ?? reason;
    this.#dueResync = undefined;
    if (due !== undefined) void this.#options.resync.run(due, isSpread);
  }

  /** Begins the term (J3).
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
    // The dispatcher has dropped the keys that waited for the end of a job, and Redis may have no
    // jobs at all.
    this.#runResync('Redis has lost its data', isWithoutJobs);
  }

  /** Forgets the history if another process has led since this one: its own Redis is behind. */
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
      // Nobody else has held this Lease, so the higher term is of another installation.
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
