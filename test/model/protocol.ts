/* The protocol of docs/leak-proof.md as a transition system: one claim's volume, two workers, and
 * every event that can affect them. A worker may pause between any two of its steps for any time,
 * so a frozen and thawed worker needs no step of its own. */
import * as records from './record.ts';
import {
  CALL,
  NO_RECORD,
  OWN,
  SEND,
  SETTLE,
  isOpen,
  type Opening,
  type Recovery,
  type Reply,
  type Rules,
  type VolumeRecord,
  type ReplyKind,
} from './record.ts';

/** The stages of a worker's run, named by what it has just learned or will do next. */
const STAGES = [
  'idle',
  'claim read',
  'replay',
  'may create',
  'creating',
  'refused',
  'unknown',
  'answered',
  'stored',
  'seen',
  'unwritten',
  'not sent',
  'duplicate',
  'deleting duplicate',
  'volume read',
  'resume',
  'resolve',
  'may delete',
  'deleting',
  'deleted',
  'not deleted',
  'remove object',
  'remove finalizer',
  'keep',
  'vanished',
] as const;
type Stage = (typeof STAGES)[number];

interface Worker {
  readonly stage: Stage;
  /** Ticks in which the run may still send; 0: too late. */
  readonly sendTicks: number;
  /** The claim existed and was unbound when it was read. */
  readonly wanted: boolean;
  /** Handle in the PV that was read, for a volume's run; 0 in a claim's run. */
  readonly volume: number;
  /** Handle in the driver's answer. */
  readonly answer: number;
  /** This process opened a creation (before the emptying, if Redis was emptied) and does not know
   * that it has ended. */
  readonly remembers: boolean;
}

/** A call that the driver has. */
interface Call {
  readonly kind: 'create' | 'delete';
  readonly handle: number;
  /** Ticks until the settle time of the call is over; more than SETTLE: its deadline has not
   * passed. */
  readonly left: number;
  /** The worker that waits for its answer; or CUT: the caller got an error; or ORPHANED: the caller
   * died. */
  readonly waiter: number;
}

export interface State {
  readonly claim: 'pending' | 'bound' | 'gone';
  readonly pv: 'none' | 'available' | 'bound' | 'released';
  readonly pvHandle: number;
  readonly pvTerminating: boolean;
  readonly retain: boolean;
  /** Handle of the volume in the driver, 0 for none. Each volume gets a new handle. */
  readonly volume: number;
  /** Number of volumes that were created. */
  readonly created: number;
  readonly wasDeleted: boolean;
  readonly calls: readonly Call[];
  readonly record: VolumeRecord;
  readonly recovery: Recovery;
  readonly wasEmptied: boolean;
  /** Redis' data and the last worker that remembered the creation were lost. Nothing is promised
   * for the volume then. */
  readonly isForgotten: boolean;
  readonly workers: readonly [Worker, Worker];
  /** Faults that may still happen. */
  readonly deaths: number;
  readonly emptyings: number;
  readonly flips: number;
  /** The promise that the step to this state broke, '' for none. */
  readonly broken: string;
}

export interface Bounds {
  /** Workers that die, and runs that end because Redis can't be reached. */
  readonly deaths: number;
  readonly emptyings: number;
  /** Changes of the policy to Retain. */
  readonly flips: number;
  /** Calls that the driver has at once. */
  readonly calls: number;
}

export interface Protocol {
  readonly rules: Rules;
  readonly bounds: Bounds;
  /** The driver does not refuse a creation whose volume it has, unless a PV names that volume
   * (because it was resized, or its source is gone). */
  readonly isDriverIdempotent: boolean;
  /** Whether a leak is allowed in a state that isForgotten. */
  readonly isForgettingExcused: boolean;
}

/** `isProgress`: neither a fault nor an action of the user, so it can still happen without them. */
interface Step {
  readonly label: string;
  readonly isProgress: boolean;
  readonly next: State;
}

const IDLE: Worker = {
  stage: 'idle',
  sendTicks: 0,
  wanted: false,
  volume: 0,
  answer: 0,
  remembers: false,
};
/** Owner of a record whose run has ended. */
const DEAD = 3;
const CUT = -1;
const ORPHANED = -2;

export function initialState(bounds: Bounds): State {
  return {
    claim: 'pending',
    pv: 'none',
    pvHandle: 0,
    pvTerminating: false,
    retain: false,
    volume: 0,
    created: 0,
    wasDeleted: false,
    calls: [],
    record: NO_RECORD,
    recovery: records.NO_LOSS,
    wasEmptied: false,
    isForgotten: false,
    workers: [IDLE, IDLE],
    deaths: bounds.deaths,
    emptyings: bounds.emptyings,
    flips: bounds.flips,
    broken: '',
  };
}

/** Lists every step that is possible in a state. */
export function listSteps(protocol: Protocol, state: State): readonly Step[] {
  const found: Step[] = [];
  new Stepper(protocol, state, found).addAll();
  return found;
}

class Stepper {
  readonly #protocol: Protocol;
  readonly #state: State;
  readonly #found: Step[];

  constructor(protocol: Protocol, state: State, found: Step[]) {
    this.#protocol = protocol;
    this.#state = state;
    this.#found = found;
  }

  addAll(): void {
    this.#addClusterSteps();
    this.#addTimeSteps();
    this.#addDriverSteps();
    this.#addRedisSteps();
    for (const who of [0, 1]) {
      this.#stages[this.#worker(who).stage](who);
      this.#addFaults(who);
    }
  }

  #add(label: string, changes: Partial<State>, isProgress = true): void {
    this.#found.push({ label, isProgress, next: { ...this.#state, ...changes } });
  }

  // The cluster: the user, the volume controller.

  #addClusterSteps(): void {
    const s = this.#state;
    if (s.claim !== 'gone') this.#add('the claim is deleted', { claim: 'gone' }, false);
    if (s.claim === 'pending' && s.pv === 'available' && !s.pvTerminating)
      this.#add('claim and PV are bound', { claim: 'bound', pv: 'bound' });
    if (s.claim === 'gone' && (s.pv === 'available' || s.pv === 'bound'))
      this.#add('the PV becomes Released', { pv: 'released' });
    if (s.flips > 0 && s.pv !== 'none' && !s.pvTerminating)
      this.#add('the policy becomes Retain', { retain: true, flips: s.flips - 1 }, false);
  }

  // Time. A call ends before its last tick; nothing else has to happen in time.

  #addTimeSteps(): void {
    const s = this.#state;
    if (s.calls.every((call) => call.left > 1)) {
      const next = {
        calls: s.calls.map((call) => ({ ...call, left: call.left - 1 })),
        record: records.age(s.record),
        recovery: s.recovery.left === 0 ? s.recovery : { ...s.recovery, left: s.recovery.left - 1 },
        workers: [this.#age(s.workers[0]), this.#age(s.workers[1])] as const,
      };
      const isQuiet =
        s.calls.length === 0 &&
        next.record === s.record &&
        next.recovery === s.recovery &&
        next.workers.every((w, i) => w === s.workers[i]);
      if (!isQuiet) this.#add('time passes', next);
      else if (s.record.expires && s.workers.every((w) => w.stage === 'idle' && !w.remembers))
        this.#add('a day passes', { record: NO_RECORD });
    }
  }

  #age(worker: Worker): Worker {
    return worker.sendTicks === 0 ? worker : { ...worker, sendTicks: worker.sendTicks - 1 };
  }

  // The driver. It serialises creations of one name: while one succeeds, no other is at work.

  #addDriverSteps(): void {
    this.#state.calls.forEach((call, at) => {
      const rest = this.#state.calls.filter((_, i) => i !== at);
      if (call.waiter < 0) this.#endAbandonedCall(call, rest);
      else {
        if (call.left > SETTLE) this.#answerCall(call, rest);
        this.#cutCall(call, rest);
      }
    });
  }

  #endAbandonedCall(call: Call, rest: readonly Call[]): void {
    const effect = call.kind === 'create' ? this.#create() : this.#delete(call.handle);
    this.#add(`an abandoned ${call.kind} call takes effect`, { calls: rest, ...effect });
    this.#add(`an abandoned ${call.kind} call has no effect`, { calls: rest });
  }

  #answerCall({ kind, handle, waiter }: Call, rest: readonly Call[]): void {
    const s = this.#state;
    const worker = `worker ${waiter + 1}`;
    if (kind === 'delete') {
      const stage = this.#worker(waiter).stage === 'deleting duplicate' ? 'stored' : 'deleted';
      this.#add(`the driver deletes the volume for ${worker}`, {
        calls: rest,
        ...this.#delete(handle),
        ...this.#changeWorker(waiter, { stage }),
      });
      return;
    }
    if (!rest.some((other) => other.kind === 'create')) {
      const effect = this.#create();
      const answer = effect.volume ?? s.volume;
      this.#add(`the driver answers ${worker} with volume ${answer}`, {
        calls: rest,
        ...effect,
        isForgotten: false,
        ...this.#changeWorker(waiter, { stage: 'answered', answer }),
      });
    }
    const isNamed = s.pv !== 'none' && s.pvHandle === s.volume;
    if (s.volume === 0 || isNamed || !this.#protocol.isDriverIdempotent)
      this.#add(`the driver refuses ${worker}'s creation`, {
        calls: rest,
        ...this.#changeWorker(waiter, { stage: 'refused' }),
      });
  }

  /** The caller gets an error; the driver may still work on the call. */
  #cutCall(call: Call, rest: readonly Call[]): void {
    const { kind, waiter } = call;
    const isDuplicate = this.#worker(waiter).stage === 'deleting duplicate';
    const stage = kind === 'create' ? 'unknown' : isDuplicate ? 'unwritten' : 'not deleted';
    this.#add(`worker ${waiter + 1}'s ${kind} call is cut and abandoned`, {
      calls: sortCalls([...rest, { ...call, waiter: CUT }]),
      ...this.#changeWorker(waiter, { stage }),
    });
  }

  /** The effect of a creation; idempotent by name. */
  #create(): Partial<State> {
    const s = this.#state;
    if (s.volume !== 0) return {};
    const broken = s.wasDeleted ? 'a volume is created again after its deletion (I3)' : s.broken;
    return { volume: s.created + 1, created: s.created + 1, broken };
  }

  /** The effect of a deletion. */
  #delete(handle: number): Partial<State> {
    return this.#state.volume === handle ? { volume: 0, wasDeleted: true } : {};
  }

  // Redis.

  #addRedisSteps(): void {
    const s = this.#state;
    const { rules } = this.#protocol;
    if (s.emptyings > 0) {
      const isLost = s.record.state === 'creating' || s.record.state === 'suspect';
      const isForgotten = s.isForgotten || (isLost && !s.workers.some((w) => w.remembers));
      const recovery = { isConfirmed: false, left: 0 };
      const emptyings = s.emptyings - 1;
      const workers = [
        this.#afterEmptying(s.workers[0]),
        this.#afterEmptying(s.workers[1]),
      ] as const;
      this.#add(
        'Redis is emptied',
        { record: NO_RECORD, recovery, isForgotten, wasEmptied: true, emptyings, workers },
        false,
      );
    }
    if (!rules.lostData) return;
    if (!s.recovery.isConfirmed)
      this.#add('the leader begins a new incarnation', {
        recovery: { isConfirmed: true, left: OWN + SETTLE },
      });
    for (const who of [0, 1]) {
      if (!this.#worker(who).remembers) continue;
      const { kind, record } = records.rewriteLost(s.record, s.wasEmptied, s.recovery);
      if (kind === 'closed')
        this.#add(
          `worker ${who + 1} sees its record closed`,
          this.#changeWorker(who, { remembers: false }),
        );
      // The record is of the new incarnation now, so the worker need not remember it.
      if (kind === 'ok')
        this.#add(`worker ${who + 1} rewrites the record it left open`, {
          record,
          ...this.#changeWorker(who, { remembers: false }),
        });
    }
  }

  /** A run that read its object before the emptying and has not opened its record ends: opening is
   * refused (record rule 6). */
  #afterEmptying(worker: Worker): Worker {
    const hasOnlyRead =
      worker.stage === 'claim read' ||
      worker.stage === 'volume read' ||
      worker.stage === 'resume' ||
      worker.stage === 'resolve';
    return hasOnlyRead && this.#protocol.rules.runsEndWithTheIncarnation
      ? { ...IDLE, remembers: worker.remembers }
      : worker;
  }

  // Workers.

  #worker(who: number): Worker {
    return who === 0 ? this.#state.workers[0] : this.#state.workers[1];
  }

  #changeWorker(who: number, changes: Partial<Worker>): Pick<State, 'workers'> {
    const [first, second] = this.#state.workers;
    return {
      workers:
        who === 0
          ? [clearUnread({ ...first, ...changes }), second]
          : [first, clearUnread({ ...second, ...changes })],
    };
  }

  /** The run has ended; a record that it owned keeps an owner that does nothing. */
  #changesAtEnd(
    who: number,
    remembers: boolean,
    record: VolumeRecord = this.#state.record,
  ): Pick<State, 'workers' | 'record'> {
    return {
      ...this.#changeWorker(who, { ...IDLE, remembers }),
      record: record.owner === who + 1 ? { ...record, owner: DEAD } : record,
    };
  }

  /** Before Redis is emptied, a worker remembers what it opens; after it, what it had opened before
   * and not seen closed. */
  #isRemembered(worker: Worker, kind: ReplyKind): boolean {
    if (!this.#state.wasEmptied)
      return (
        this.#state.emptyings > 0 && (worker.remembers || kind === 'opened' || kind === 'replay')
      );
    return (
      worker.remembers &&
      kind !== 'replay' &&
      (kind !== 'opened' || this.#protocol.rules.memoryIsKept)
    );
  }

  #opening(who: number): Opening {
    return { owner: who + 1, rules: this.#protocol.rules, recovery: this.#state.recovery };
  }

  #addFaults(who: number): void {
    const s = this.#state;
    const worker = this.#worker(who);
    if (s.deaths === 0 || (worker.stage === 'idle' && !worker.remembers)) return;
    const calls = sortCalls(
      s.calls.map((c) => (c.waiter === who ? { ...c, waiter: ORPHANED } : c)),
    );
    const deaths = s.deaths - 1;
    const isForgotten =
      s.isForgotten || (s.wasEmptied && worker.remembers && !this.#worker(1 - who).remembers);
    this.#add(
      `worker ${who + 1} dies`,
      { calls, deaths, isForgotten, ...this.#changesAtEnd(who, false) },
      false,
    );
    if (s.record.owner === who + 1)
      this.#add(
        `worker ${who + 1} can't reach Redis and gives up`,
        { calls, deaths, ...this.#changesAtEnd(who, worker.remembers) },
        false,
      );
  }

  /** What a run may do next, by its stage. */
  readonly #stages: Readonly<Record<Stage, (who: number) => void>> = {
    idle: (who) => this.#startRun(who),
    'claim read': (who) => this.#openCreation(who),
    replay: (who) => this.#readVolumeBeforeReplay(who),
    'may create': (who) => {
      this.#send(who, 'the creation', { kind: 'create', handle: 0 }, 'creating');
      this.#advance(who, 'could not send', { stage: 'not sent' });
    },
    answered: (who) => this.#storeAnswer(who),
    duplicate: (who) => {
      const handle = this.#worker(who).answer;
      this.#send(
        who,
        'the deletion of a duplicate volume',
        { kind: 'delete', handle },
        'deleting duplicate',
      );
      this.#advance(who, 'could not send', { stage: 'unwritten' });
    },
    stored: (who) => {
      const reply = records.closeStored(this.#state.record, who + 1, true);
      this.#close(who, 'closes the record as stored', reply, true);
    },
    seen: (who) => {
      const reply = records.closeStored(this.#state.record, who + 1, false);
      this.#close(who, 'closes the record as stored, PV seen', reply, true);
    },
    refused: (who) => {
      const reply = records.closeRefused(this.#state.record, who + 1, this.#protocol.rules);
      this.#close(who, 'closes the record as refused', reply, false);
    },
    unknown: (who) => {
      const reply = records.leaveAmbiguous(this.#state.record, who + 1);
      this.#close(who, 'leaves the record ambiguous', reply, false);
    },
    unwritten: (who) => {
      const reply = records.leaveAnswered(this.#state.record, who + 1, this.#worker(who).answer);
      this.#close(who, 'leaves the answer in the record', reply, false);
    },
    'not sent': (who) => {
      const reply = records.revert(this.#state.record, who + 1);
      this.#close(who, 'reverts the record', reply, false);
    },
    'volume read': (who) => this.#openDeletion(who),
    resume: (who) => this.#resumeCreation(who, 'existing'),
    resolve: (who) => this.#resumeCreation(who, 'resolve'),
    'may delete': (who) => {
      const handle = this.#worker(who).volume;
      this.#send(who, 'the deletion', { kind: 'delete', handle }, 'deleting');
      this.#advance(who, 'could not send', { stage: 'not sent' });
    },
    deleted: (who) => {
      const { kind, record } = records.closeGone(this.#state.record, who + 1);
      const label = 'closes the record as gone';
      if (kind === 'ok') this.#advance(who, label, { stage: 'remove object' }, { record });
      else this.#end(who, `${label}: ${kind}`, record);
    },
    'not deleted': (who) => {
      const reply = records.leaveDeleting(this.#state.record, who + 1);
      this.#close(who, 'leaves the deletion open', reply, false);
    },
    'remove object': (who) => {
      if (!this.#hasVolumeObject(who)) this.#end(who, 'finds its PV gone');
      else
        this.#advance(
          who,
          'deletes the PV',
          { stage: 'remove finalizer' },
          { pvTerminating: true },
        );
    },
    'remove finalizer': (who) => {
      const gone = this.#hasVolumeObject(who)
        ? ({ pv: 'none', pvHandle: 0, pvTerminating: false } as const)
        : {};
      this.#end(who, 'removes the finalizer from the PV', this.#state.record, gone);
    },
    keep: (who) => this.#endDeletion(who, 'stored'),
    vanished: (who) => this.#endDeletion(who, 'gone'),
    // The driver's answer is the next step.
    creating: () => undefined,
    'deleting duplicate': () => undefined,
    deleting: () => undefined,
  };

  /** The run goes on to another stage. */
  #advance(who: number, label: string, changes: Partial<Worker>, more: Partial<State> = {}): void {
    this.#add(`worker ${who + 1} ${label}`, { ...more, ...this.#changeWorker(who, changes) });
  }

  /** The run ends. */
  #end(
    who: number,
    label: string,
    record: VolumeRecord = this.#state.record,
    more: Partial<State> = {},
  ): void {
    const { remembers } = this.#worker(who);
    this.#add(`worker ${who + 1} ${label}`, {
      ...more,
      ...this.#changesAtEnd(who, remembers, record),
    });
  }

  /** The run ends with a script. `closes`: the answer ok tells the worker that the creation has
   * ended. */
  #close(who: number, label: string, { kind, record }: Reply, closes: boolean): void {
    const isDone = kind === 'removed' || (kind === 'ok' && closes);
    this.#add(`worker ${who + 1} ${label}: ${kind}`, {
      isForgotten: this.#state.isForgotten && kind !== 'removed',
      ...this.#changesAtEnd(who, this.#worker(who).remembers && !isDone, record),
    });
  }

  /** The run sends a call, if it still may (record rule 3). */
  #send(who: number, what: string, call: Pick<Call, 'kind' | 'handle'>, stage: Stage): void {
    const maySend = this.#worker(who).sendTicks > 0 || !this.#protocol.rules.deadline;
    if (maySend && this.#state.calls.length < this.#protocol.bounds.calls)
      this.#advance(who, `sends ${what}`, { stage }, this.#changesAtSending(call, who));
  }

  #startRun(who: number): void {
    const s = this.#state;
    const isListed = isOpen(s.record);
    const wanted = s.claim === 'pending';
    if (wanted || (isListed && s.record.state !== 'deleting'))
      this.#advance(who, `reads the claim (${s.claim})`, { stage: 'claim read', wanted });
    if (s.pv === 'released' || (isListed && s.record.state === 'deleting')) this.#readVolume(who);
  }

  #openCreation(who: number): void {
    const worker = this.#worker(who);
    const mode = worker.wanted ? 'plan' : 'existing';
    const { kind, record } = records.openCreate(this.#state.record, mode, this.#opening(who));
    const next = { sendTicks: SEND + 1, remembers: this.#isRemembered(worker, kind) };
    if (kind === 'opened')
      this.#advance(who, 'opens the record', { ...next, stage: 'may create' }, { record });
    else if (kind === 'replay') {
      const { answer } = record;
      this.#advance(who, 'takes the record up', { ...next, stage: 'replay', answer }, { record });
    } else
      this.#add(
        `worker ${who + 1} opens no record: ${kind}`,
        this.#changesAtEnd(who, next.remembers, record),
      );
  }

  /** Invariant 4. */
  #readVolumeBeforeReplay(who: number): void {
    const s = this.#state;
    if (s.pv === 'none')
      this.#advance(who, 'finds no PV', {
        stage: this.#worker(who).answer === 0 ? 'may create' : 'answered',
      });
    else this.#advance(who, 'finds the PV', { stage: s.pvTerminating ? 'not sent' : 'seen' });
  }

  #storeAnswer(who: number): void {
    const s = this.#state;
    const { answer, volume } = this.#worker(who);
    if (volume !== 0) {
      const stage = answer === volume ? 'stored' : 'duplicate';
      this.#advance(who, 'compares the answer with its PV', { stage });
    } else if (s.pv === 'none') {
      const written = { pv: 'available', pvHandle: answer, pvTerminating: false } as const;
      this.#advance(who, 'writes the PV', { stage: 'stored' }, written);
      this.#advance(who, 'writes the PV and gets an error', { stage: 'unwritten' }, written);
      this.#advance(who, 'can’t write the PV', { stage: 'unwritten' });
    } else {
      const isOurs = s.pvHandle === answer;
      const stage = s.pvTerminating ? 'unwritten' : isOurs ? 'stored' : 'duplicate';
      this.#advance(who, 'finds that there is a PV', { stage });
    }
  }

  #openDeletion(who: number): void {
    const { kind, record } = records.openDelete(this.#state.record, this.#opening(who));
    if (kind === 'opened')
      this.#add(`worker ${who + 1} opens the deletion`, this.#changesAtDeletion(who, record));
    else if (kind === 'gone')
      this.#advance(who, 'learns that the volume is gone', { stage: 'remove object' });
    else if (kind === 'creating')
      this.#advance(who, 'finds a creation open', { stage: 'resume' }, { record });
    else if (kind === 'resolve')
      this.#advance(
        who,
        'finds that the creation must be resolved',
        { stage: 'resolve' },
        { record },
      );
    else this.#end(who, `opens no deletion: ${kind}`, record);
  }

  #resumeCreation(who: number, mode: 'existing' | 'resolve'): void {
    const worker = this.#worker(who);
    const { kind, record } = records.openCreate(this.#state.record, mode, this.#opening(who));
    if (kind !== 'replay') return this.#end(who, `opens no record: ${kind}`, record);
    const { answer } = record;
    const stage = answer === 0 ? 'may create' : 'answered';
    const remembers = this.#isRemembered(worker, kind);
    this.#advance(
      who,
      'takes the creation up',
      { stage, sendTicks: SEND + 1, answer, remembers },
      { record },
    );
  }

  #endDeletion(who: number, to: 'stored' | 'gone'): void {
    const reply = records.endDeletion(this.#state.record, this.#opening(who), to);
    this.#close(who, `ends the deletion as ${to}`, reply, false);
  }

  /** The PV that the run read is still there. */
  #hasVolumeObject(who: number): boolean {
    return this.#state.pv !== 'none' && this.#state.pvHandle === this.#worker(who).volume;
  }

  /** Workers that had left the creation open have seen by now that it was closed. */
  #changesAtDeletion(who: number, record: VolumeRecord): Pick<State, 'workers' | 'record'> {
    const { workers } = this.#changeWorker(who, { stage: 'may delete' });
    if (!this.#protocol.rules.areRecordsRewrittenInTime) return { workers, record };
    return {
      workers: [
        { ...workers[0], remembers: false },
        { ...workers[1], remembers: false },
      ],
      record,
    };
  }

  #readVolume(who: number): void {
    const s = this.#state;
    const name = `worker ${who + 1}`;
    const isDeleting = s.record.state === 'deleting';
    if (s.pv === 'none') {
      if (isDeleting)
        this.#add(`${name} finds its PV gone`, this.#changeWorker(who, { stage: 'vanished' }));
    } else if (s.retain) {
      if (isDeleting)
        this.#add(`${name} reads the PV (Retain)`, this.#changeWorker(who, { stage: 'keep' }));
    } else if (s.pv === 'released') {
      this.#add(
        `${name} reads the PV (Released)`,
        this.#changeWorker(who, { stage: 'volume read', volume: s.pvHandle, sendTicks: SEND + 1 }),
      );
    }
  }

  /** A call that is sent reaches the driver at once, because the gateway enforces the deadline. */
  #changesAtSending(
    call: Pick<Call, 'kind' | 'handle'>,
    who: number,
  ): Pick<State, 'calls' | 'broken'> {
    const s = this.#state;
    let { broken } = s;
    if (s.calls.some((other) => other.left > SETTLE && other.waiter !== CUT))
      broken =
        'two calls for one volume are under way, the first neither cut nor past its deadline (I2)';
    else if (call.kind === 'delete' && s.pv !== 'none' && s.pvHandle === call.handle) {
      const isStale = this.#worker(who).sendTicks === 0;
      if (s.claim !== 'gone' || s.pv === 'bound')
        broken = `a deletion is sent although the claim is ${s.claim} and the PV ${s.pv} (I4)`;
      else if (s.retain && isStale)
        broken = 'a deletion is sent long after its PV became Retain (I4)';
    }
    return {
      calls: sortCalls([...s.calls, { ...call, left: CALL + SETTLE, waiter: who }]),
      broken,
    };
  }
}

/** The fields of a worker that matter in each stage; the others are cleared, so that equal
 * situations are equal states. */
const READS: Readonly<
  Partial<Record<Stage, readonly ('sendTicks' | 'wanted' | 'volume' | 'answer')[]>>
> = {
  'claim read': ['wanted'],
  replay: ['sendTicks', 'answer'],
  'may create': ['sendTicks', 'volume'],
  creating: ['sendTicks', 'volume'],
  answered: ['sendTicks', 'volume', 'answer'],
  unwritten: ['answer'],
  duplicate: ['sendTicks', 'answer'],
  'deleting duplicate': ['answer'],
  'volume read': ['sendTicks', 'volume'],
  resume: ['volume'],
  resolve: ['volume'],
  'may delete': ['sendTicks', 'volume'],
  deleting: ['volume'],
  deleted: ['volume'],
  'remove object': ['volume'],
  'remove finalizer': ['volume'],
};

function clearUnread(worker: Worker): Worker {
  const reads = READS[worker.stage] ?? [];
  return {
    stage: worker.stage,
    remembers: worker.remembers,
    sendTicks: reads.includes('sendTicks') ? worker.sendTicks : 0,
    wanted: reads.includes('wanted') && worker.wanted,
    volume: reads.includes('volume') ? worker.volume : 0,
    answer: reads.includes('answer') ? worker.answer : 0,
  };
}

function sortCalls(calls: readonly Call[]): readonly Call[] {
  return calls.length < 2 ? calls : [...calls].sort((a, b) => callCode(a) - callCode(b));
}

function callCode(call: Call): number {
  return (
    (call.kind === 'create' ? 0 : 1) |
    (call.handle << 1) |
    (call.left << 3) |
    ((call.waiter + 2) << 5)
  );
}

/** The promise that a state breaks; undefined for none. */
export function findViolation(protocol: Protocol, s: State): string | undefined {
  if (s.broken !== '') return s.broken;
  const isNamed = s.pv !== 'none' && s.pvHandle === s.volume;
  const isReconciled = s.pv !== 'none' && !s.retain;
  const isCovered =
    isReconciled ||
    isOpen(s.record) ||
    s.workers.some(
      (w) => w.stage !== 'idle' || (w.remembers && protocol.rules.lostData && s.wasEmptied),
    );
  if (
    s.volume !== 0 &&
    !isNamed &&
    s.claim === 'gone' &&
    !isCovered &&
    !(s.isForgotten && protocol.isForgettingExcused)
  )
    return 'a volume exists that no PV names, no record covers and no run will find (I1)';
  return undefined;
}

/** Cluster and driver agree, and nothing is under way. */
export function isSettled(protocol: Protocol, s: State): boolean {
  if (s.calls.length > 0 || isOpen(s.record) || s.workers.some((w) => w.stage !== 'idle'))
    return false;
  if (s.claim === 'bound') return s.pv === 'bound' && s.pvHandle === s.volume;
  if (s.claim === 'pending') return false;
  if (s.pv === 'none') return s.volume === 0 || (s.isForgotten && protocol.isForgettingExcused);
  return s.retain && s.pv === 'released';
}

const STAGE_NUMBER = new Map<Stage, number>(STAGES.map((stage, at) => [stage, at]));
const RECORD_STATES = ['none', 'creating', 'suspect', 'stored', 'deleting', 'gone'] as const;
const CLAIMS = ['pending', 'bound', 'gone'] as const;
const PVS = ['none', 'available', 'bound', 'released'] as const;

/** A text that is equal for equal states, and for states that differ only by swapped workers. */
export function keyOf(s: State): string {
  const first = workerKey(s, 0);
  const second = workerKey(s, 1);
  return stateKey(s, Math.min(first, second), Math.max(first, second));
}

function workerKey(s: State, who: 0 | 1): number {
  const w = s.workers[who];
  const owns = s.record.owner === who + 1 ? 1 : 0;
  const call = s.calls.find((c) => c.waiter === who);
  const fields =
    bit(w.wanted) |
    (bit(w.remembers) << 1) |
    (owns << 2) |
    (w.sendTicks << 3) |
    (w.volume << 5) |
    (w.answer << 7);
  return (
    fields |
    ((STAGE_NUMBER.get(w.stage) ?? 0) << 9) |
    ((call === undefined ? 0 : callCode({ ...call, waiter: 0 })) << 14)
  );
}

function stateKey(s: State, low: number, high: number): string {
  const r = s.record;
  const facts =
    bit(s.pvTerminating) |
    (bit(s.retain) << 1) |
    (bit(s.wasDeleted) << 2) |
    (bit(s.wasEmptied) << 3) |
    (bit(s.isForgotten) << 4);
  const objects =
    CLAIMS.indexOf(s.claim) |
    (PVS.indexOf(s.pv) << 2) |
    (s.pvHandle << 4) |
    (s.volume << 6) |
    (s.created << 8);
  const owner = r.owner === 0 ? 0 : r.owner === DEAD ? 1 : 2;
  const record =
    bit(r.ambiguous) |
    (bit(r.hasRequest) << 1) |
    (bit(r.expires) << 2) |
    (bit(r.beforeAmbiguous) << 3) |
    (bit(r.wasSettled) << 4);
  const states =
    RECORD_STATES.indexOf(r.state) |
    (RECORD_STATES.indexOf(r.before) << 3) |
    (owner << 6) |
    (r.answer << 8);
  const times =
    r.until | (r.settleTicks << 3) | (s.recovery.left << 6) | (bit(s.recovery.isConfirmed) << 9);
  const faults = s.deaths | (s.emptyings << 2) | (s.flips << 4);
  let left = 0;
  for (const call of s.calls) if (call.waiter < 0) left = (left << 8) | callCode(call) | 0x80;
  const key = String.fromCharCode(
    low & 0xffff,
    low >> 16,
    high & 0xffff,
    high >> 16,
    objects,
    record | (states << 5),
    times,
    facts | (faults << 5),
    left & 0xffff,
    left >> 16,
  );
  return s.broken === '' ? key : key + s.broken;
}

function bit(value: boolean): number {
  return value ? 1 : 0;
}
