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
  isCreation,
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
  /** The claim was gone when it was read. */
  readonly isClaimGone: boolean;
  /** Its call is the first of its record. */
  readonly isFirst: boolean;
  /** Handle in the PV that was read, for a volume's run; 0 in a claim's run. */
  readonly volume: number;
  /** Handle in the driver's answer. */
  readonly answer: number;
  /** This process opened a creation (before the loss, if one was noticed) and does not know that it
   * has ended. */
  readonly remembers: boolean;
  /** It opened a record that the replica does not have. */
  readonly isUnreplicated: boolean;
  /** The creation that it remembers is such a record, or Redis lost it since. */
  readonly isMemoryUnreplicated: boolean;
  /** Redis lost an opening of this process, which does not know yet. */
  readonly isBehind: boolean;
  /** It knows that Redis lost an opening that it remembers. */
  readonly knowsLoss: boolean;
  /** Its run began before Redis was found to have gone back: it ends before the quarantine does. */
  readonly isOfBefore: boolean;
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
  /** Handle of the volume in the driver, 0 for none. A new volume gets one that nothing names. */
  readonly volume: number;
  readonly wasDeleted: boolean;
  readonly calls: readonly Call[];
  readonly record: VolumeRecord;
  /** The record as the replica has it while it lags behind; undefined while it does not. */
  readonly replica: VolumeRecord | undefined;
  /** The replica has lagged behind for a tick. */
  readonly hasLagged: boolean;
  readonly recovery: Recovery;
  /** Redis lost data, and its data epoch is not confirmed or is a new one. */
  readonly isLossNoticed: boolean;
  /** Redis went back to what the replica had. */
  readonly wentBack: boolean;
  /** Who leads. `unseen`: another provisioner has the Lease, and Redis does not say so yet. */
  readonly leader: 'ours' | 'unseen' | 'other';
  /** The record was open when the workers saw that another provisioner led. That one deletes
   * volumes without regard to our records, so I3 is not promised then. */
  readonly wasOpenAtChange: boolean;
  /** Redis' data and the last worker that remembered the creation were lost. Nothing is promised
   * for the volume then. */
  readonly isForgotten: boolean;
  readonly workers: readonly [Worker, Worker];
  /** Faults that may still happen. */
  readonly deaths: number;
  readonly emptyings: number;
  readonly failovers: number;
  readonly flips: number;
  /** Times that another provisioner may still take the Lease. */
  readonly changes: number;
  /** The promise that the step to this state broke, '' for none. */
  readonly broken: string;
}

export interface Bounds {
  /** Workers that die, and runs that end because Redis can't be reached. */
  readonly deaths: number;
  readonly emptyings: number;
  /** Failovers to a replica that lags behind: Redis goes back by part of its history. */
  readonly failovers: number;
  /** Changes of the policy to Retain. */
  readonly flips: number;
  /** Times that another provisioner takes the Lease, and loses it again. */
  readonly changes: number;
  /** Calls that the driver has at once. */
  readonly calls: number;
}

export interface Protocol {
  readonly rules: Rules;
  readonly bounds: Bounds;
  /** The driver does not refuse a creation whose volume it has, unless a PV names that volume
   * (because it was resized, or its source is gone). */
  readonly isDriverIdempotent: boolean;
  /** While one creation succeeds in the driver, no other is at work beside it. */
  readonly doesDriverSerialise: boolean;
  /** Whether a leak is allowed in a state that isForgotten. */
  readonly isForgettingExcused: boolean;
  /** Whether sutler is drained before another provisioner takes the Lease. */
  readonly isDrainedFirst: boolean;
  /** Whether I3 is promised for volumes whose record was open when the workers saw the other. */
  readonly isOpenAtChangeExcused: boolean;
}

/** All rules, and the assumptions of docs/leak-proof.md. */
export const PROTOCOL: Protocol = {
  rules: records.ALL_RULES,
  bounds: { deaths: 0, emptyings: 0, failovers: 0, flips: 0, changes: 0, calls: 2 },
  isDriverIdempotent: true,
  doesDriverSerialise: false,
  isForgettingExcused: true,
  isDrainedFirst: false,
  isOpenAtChangeExcused: true,
};

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
  isClaimGone: false,
  isFirst: false,
  volume: 0,
  answer: 0,
  remembers: false,
  isUnreplicated: false,
  isMemoryUnreplicated: false,
  isBehind: false,
  knowsLoss: false,
  isOfBefore: false,
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
    wasDeleted: false,
    calls: [],
    record: NO_RECORD,
    replica: undefined,
    hasLagged: false,
    recovery: records.NO_LOSS,
    isLossNoticed: false,
    wentBack: false,
    leader: 'ours',
    wasOpenAtChange: false,
    isForgotten: false,
    workers: [IDLE, IDLE],
    deaths: bounds.deaths,
    emptyings: bounds.emptyings,
    failovers: bounds.failovers,
    flips: bounds.flips,
    changes: bounds.changes,
    broken: '',
  };
}

/** Lists every step that is possible in a state. */
export function listSteps(protocol: Protocol, state: State): readonly Step[] {
  const found: Step[] = [];
  new Stepper(protocol, state, found).addAll();
  // A replica falls behind with a change of the record that it misses. Every other order of steps
  // is one in which it falls behind later.
  const hasMissed = state.replica === undefined || !isSame(state.replica, state.record);
  if (hasMissed) return found;
  return found.filter(
    ({ next }) => next.replica === undefined || !isSame(next.record, state.record),
  );
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
    this.#addLeaderSteps();
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
    if (s.calls.every((call) => call.left > 1) && !s.hasLagged) {
      const next = {
        hasLagged: s.replica !== undefined,
        calls: s.calls.map((call) => ({ ...call, left: call.left - 1 })),
        record: records.age(s.record),
        replica: s.replica && records.age(s.replica),
        recovery: s.recovery.left === 0 ? s.recovery : { ...s.recovery, left: s.recovery.left - 1 },
        workers: [this.#age(s.workers[0]), this.#age(s.workers[1])] as const,
      };
      const isQuiet =
        s.calls.length === 0 &&
        next.record === s.record &&
        s.replica === undefined &&
        next.recovery === s.recovery &&
        next.workers.every((w, i) => w === s.workers[i]);
      if (!isQuiet) this.#add('time passes', next);
      else if (s.record.expires && s.workers.every((w) => !w.remembers)) this.#addExpiry();
    }
  }

  #addExpiry(): void {
    const { record, workers } = this.#state;
    if (record.state === 'gone') {
      // A run that has read its claim so long ago may open a record, and sends nothing.
      const end = (worker: Worker) =>
        hasOnlyRead(worker) ? clearUnread({ ...worker, stage: 'idle' }) : worker;
      this.#add('what is gone is forgotten', {
        record: NO_RECORD,
        workers: [end(workers[0]), end(workers[1])],
      });
    } else if (workers.every((w) => w.stage === 'idle'))
      this.#add('a day passes', { record: NO_RECORD });
  }

  #age(worker: Worker): Worker {
    return worker.sendTicks === 0 ? worker : { ...worker, sendTicks: worker.sendTicks - 1 };
  }

  // The driver.

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
    const { doesDriverSerialise } = this.#protocol;
    if (!doesDriverSerialise || !rest.some((other) => other.kind === 'create')) {
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
    const isExcused = s.wasOpenAtChange && this.#protocol.isOpenAtChangeExcused;
    const isAgain = s.wasDeleted && !s.wentBack && !isExcused;
    const broken = isAgain ? 'a volume is created again after its deletion (I3)' : s.broken;
    return { volume: unusedHandle(s), broken };
  }

  /** The effect of a deletion. */
  #delete(handle: number): Partial<State> {
    return this.#state.volume === handle ? { volume: 0, wasDeleted: true } : {};
  }

  // Redis.

  #addRedisSteps(): void {
    const s = this.#state;
    const { rules } = this.#protocol;
    if (s.emptyings > 0) this.#addEmptying();
    if (s.failovers > 0 && s.replica === undefined)
      this.#add('the replica falls behind', { replica: s.record }, false);
    if (s.replica !== undefined) this.#addFailover(s.replica);
    if (!rules.lostData) return;
    if (!s.recovery.isConfirmed)
      this.#add('the leader begins a new data epoch', {
        recovery: { isConfirmed: true, left: OWN + SETTLE },
      });
    for (const who of [0, 1]) {
      if (!this.#notices(who, 'checks what it left open')) this.#addRewriting(who);
    }
  }

  #addEmptying(): void {
    const s = this.#state;
    this.#add(
      'Redis is emptied',
      {
        record: NO_RECORD,
        isForgotten: s.isForgotten || this.#isForgottenWith(NO_RECORD),
        emptyings: s.emptyings - 1,
        ...this.#changesAtNotice(),
      },
      false,
    );
  }

  #addFailover(replica: VolumeRecord): void {
    const s = this.#state;
    const goBack = (worker: Worker): Worker => ({
      ...worker,
      isUnreplicated: false,
      isBehind: worker.isUnreplicated,
    });
    this.#add(
      'Redis goes back to what the replica has',
      {
        record: replica,
        replica: undefined,
        hasLagged: false,
        wentBack: true,
        isForgotten: s.isForgotten || this.#isForgottenWith(replica),
        failovers: s.failovers - 1,
        workers: [goBack(s.workers[0]), goBack(s.workers[1])],
      },
      false,
    );
    this.#add('the replica catches up', {
      replica: undefined,
      hasLagged: false,
      workers: [
        { ...s.workers[0], isUnreplicated: false, isMemoryUnreplicated: false },
        { ...s.workers[1], isUnreplicated: false, isMemoryUnreplicated: false },
      ],
    });
  }

  /** Whether a creation is forgotten when the record becomes `record`: it was open, and no worker
   * remembers it. */
  #isForgottenWith(record: VolumeRecord): boolean {
    const s = this.#state;
    return isCreation(s.record) && !isCreation(record) && !s.workers.some((w) => w.remembers);
  }

  /** A process whose count Redis has lost notices it, and withdraws the confirmation of Redis' data
   * (record rule 8).
   * @returns whether it does */
  #notices(who: number, doing: string): boolean {
    const isNoticed = this.#worker(who).isBehind && this.#protocol.rules.openingsAreCounted;
    if (isNoticed)
      this.#add(`worker ${who + 1} ${doing} and finds that Redis went back`, {
        replica: undefined,
        hasLagged: false,
        ...this.#changesAtNotice(),
      });
    return isNoticed;
  }

  #changesAtNotice(): Pick<State, 'recovery' | 'isLossNoticed' | 'workers'> {
    const [first, second] = this.#state.workers;
    return {
      recovery: { isConfirmed: false, left: 0 },
      isLossNoticed: true,
      workers: [this.#afterLoss(first), this.#afterLoss(second)],
    };
  }

  #addRewriting(who: number): void {
    const { remembers, knowsLoss, sendTicks } = this.#worker(who);
    if (!remembers) return;
    const { kind, record } = this.#rewrite(who);
    const forgets = this.#changeWorker(who, { remembers: false, knowsLoss: false });
    if (kind === 'closed') this.#add(`worker ${who + 1} sees its record closed`, forgets);
    if (kind !== 'ok') return;
    // While the run that opened it may still call the driver, another run's success proves nothing
    // about that call. Afterwards the record covers the call.
    const mayCall =
      sendTicks > 0 || this.#state.calls.some((c) => c.waiter === who && c.left > SETTLE);
    const changes = knowsLoss && mayCall ? {} : forgets;
    this.#add(`worker ${who + 1} rewrites the record it left open`, { record, ...changes });
  }

  #rewrite(who: number): Reply {
    const s = this.#state;
    const left = { isOfEarlier: s.isLossNoticed, isLost: this.#worker(who).knowsLoss };
    return records.rewriteLost(s.record, left, s.recovery);
  }

  /** A run that read its object before the loss and has not opened its record ends: opening is
   * refused (record rule 6). */
  #afterLoss(worker: Worker): Worker {
    const ended =
      hasOnlyRead(worker) && this.#protocol.rules.runsEndWithTheDataEpoch
        ? { ...IDLE, remembers: worker.remembers }
        : worker;
    const knowsLoss = worker.isMemoryUnreplicated && worker.remembers;
    const isOfBefore = this.#state.wentBack && ended.stage !== 'idle';
    return {
      ...ended,
      isUnreplicated: false,
      isMemoryUnreplicated: false,
      isBehind: false,
      knowsLoss,
      isOfBefore,
    };
  }

  // Another provisioner. It works once the workers have seen it, which takes a second at most; what
  // it does is one step each, since its own crashes are not ours to answer for.

  #addLeaderSteps(): void {
    const s = this.#state;
    const { isDrainedFirst } = this.#protocol;
    if (s.leader === 'ours' && s.changes > 0 && !(isDrainedFirst && isOpen(s.record)))
      this.#add(
        'another provisioner takes the Lease',
        { leader: isDrainedFirst ? 'other' : 'unseen', changes: s.changes - 1 },
        false,
      );
    if (s.leader === 'unseen')
      this.#add('the workers see that another provisioner leads', {
        leader: 'other',
        wasOpenAtChange: isOpen(s.record),
        record: { ...s.record, isOfEarlierTerm: isCreation(s.record) },
      });
    if (s.leader === 'other') this.#addStepsOfOther();
    if (s.leader !== 'ours')
      this.#add('a leader of ours begins its term', {
        leader: 'ours',
        workers: [this.#afterTerm(s.workers[0]), this.#afterTerm(s.workers[1])],
      });
  }

  #addStepsOfOther(): void {
    const s = this.#state;
    const isCreating = s.calls.some((call) => call.kind === 'create');
    if (s.claim === 'pending' && s.pv === 'none' && !isCreating) {
      const effect = this.#create();
      const pvHandle = effect.volume ?? s.volume;
      this.#add('the other provisioner creates volume and PV', {
        ...effect,
        pv: 'available',
        pvHandle,
      });
    }
    if (s.pv === 'released' && !s.retain)
      this.#add('the other provisioner deletes volume and PV', {
        ...this.#delete(s.pvHandle),
        pv: 'none',
        pvHandle: 0,
        pvTerminating: false,
      });
  }

  /** A run that read its object before the term began, and has not opened its record, ends: opening
   * is refused (record rule 9). */
  #afterTerm(worker: Worker): Worker {
    return hasOnlyRead(worker) && this.#protocol.rules.runsEndWithTheTerm
      ? clearUnread({ ...worker, stage: 'idle' })
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
  ): Pick<State, 'workers' | 'record' | 'replica'> {
    const { replica } = this.#state;
    const { isUnreplicated, isMemoryUnreplicated, isBehind, knowsLoss } = this.#worker(who);
    const disown = (r: VolumeRecord) => (r.owner === who + 1 ? { ...r, owner: DEAD } : r);
    return {
      ...this.#changeWorker(who, {
        ...IDLE,
        remembers,
        isUnreplicated,
        isMemoryUnreplicated: isMemoryUnreplicated && remembers,
        isBehind,
        knowsLoss: knowsLoss && remembers,
      }),
      record: disown(record),
      replica: replica && disown(replica),
    };
  }

  /** Before a loss is noticed, a worker remembers what it opens; after it, what it had opened
   * before and not seen closed. */
  #isRemembered(worker: Worker, kind: ReplyKind): boolean {
    const s = this.#state;
    if (s.isLossNoticed)
      return (
        worker.remembers &&
        kind !== 'replay' &&
        (kind !== 'opened' || this.#protocol.rules.memoryIsKept)
      );
    const canBeLost =
      s.emptyings > 0 ||
      s.failovers > 0 ||
      s.replica !== undefined ||
      s.workers.some((w) => w.isBehind);
    return canBeLost && (worker.remembers || kind === 'opened' || kind === 'replay');
  }

  /** The changes to a worker that has opened a record. */
  #afterOpening(): Pick<Worker, 'sendTicks' | 'isUnreplicated' | 'isMemoryUnreplicated'> {
    const isUnreplicated = this.#state.replica !== undefined;
    return { sendTicks: SEND + 1, isUnreplicated, isMemoryUnreplicated: isUnreplicated };
  }

  #opening(who: number): Opening {
    const { rules } = this.#protocol;
    const { recovery, leader } = this.#state;
    const isHalted = leader === 'other' && rules.otherLeaderHalts;
    return { owner: who + 1, rules, recovery, isHalted };
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
      s.isForgotten ||
      ((s.isLossNoticed || worker.isBehind) &&
        worker.remembers &&
        !this.#worker(1 - who).remembers);
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
      const { answer: handle, isFirst } = this.#worker(who);
      const { pv, retain } = this.#state;
      // Invariant 5.
      if (!isFirst || pv === 'none' || pv === 'bound' || retain)
        return this.#advance(who, 'leaves the duplicate to an operator', { stage: 'unwritten' });
      this.#send(
        who,
        'the deletion of a duplicate volume',
        { kind: 'delete', handle },
        'deleting duplicate',
      );
      this.#advance(who, 'could not send', { stage: 'unwritten' });
    },
    stored: (who) => {
      const reply = records.closeStored(this.#state.record, who + 1);
      this.#close(who, 'closes the record as stored', reply, true);
    },
    seen: (who) => {
      const reply = records.closeStored(this.#state.record, who + 1);
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
    resume: (who) => this.#resumeCreation(who),
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
    // Where Redis went back, the record may be no fence: the gateway's single flight is left.
    if (this.#state.wentBack && this.#state.calls.some(isUnderWay)) return;
    const maySend = this.#worker(who).sendTicks > 0 || !this.#protocol.rules.deadline;
    if (maySend && this.#state.calls.length < this.#protocol.bounds.calls)
      this.#advance(who, `sends ${what}`, { stage }, this.#changesAtSending(call, who));
  }

  #startRun(who: number): void {
    const s = this.#state;
    const isListed = isOpen(s.record);
    const wanted = s.claim === 'pending';
    if (wanted || (isListed && s.record.state !== 'deleting'))
      this.#advance(who, `reads the claim (${s.claim})`, {
        stage: 'claim read',
        wanted,
        isClaimGone: s.claim === 'gone',
      });
    if (s.pv === 'released' || (isListed && s.record.state === 'deleting')) this.#readVolume(who);
  }

  #openCreation(who: number): void {
    const worker = this.#worker(who);
    if (this.#notices(who, 'opens a record')) return;
    if (this.#state.wentBack && this.#state.isLossNoticed && this.#isCheckDue) return;
    const mode = worker.wanted ? 'plan' : 'existing';
    const { kind, record } = records.openCreate(this.#state.record, mode, this.#opening(who));
    const next = { ...this.#afterOpening(), remembers: this.#isRemembered(worker, kind) };
    if (kind === 'opened')
      this.#advance(
        who,
        'opens the record',
        { ...next, stage: 'may create', isFirst: true },
        { record },
      );
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
    const { pv, pvTerminating, record } = this.#state;
    if (this.#worker(who).answer !== 0)
      return this.#advance(who, 'has the answer already', { stage: 'answered' });
    const isDoomed = pv === 'released' || this.#worker(who).isClaimGone;
    const { resolve } = this.#protocol.rules;
    const isUnsettled = record.ambiguous && !record.wasSettled && resolve;
    if (pv === 'none') this.#advance(who, 'finds no PV', { stage: 'may create' });
    else if (pvTerminating || (!isDoomed && isUnsettled))
      this.#advance(who, 'finds the PV, and has to wait', { stage: 'not sent' });
    else this.#useVolume(who, isDoomed && resolve);
  }

  #useVolume(who: number, isDoomed: boolean): void {
    const { isOfEarlierTerm } = this.#state.record;
    if (isDoomed) this.#advance(who, 'finds the PV, about to be deleted', { stage: 'may create' });
    else if (isOfEarlierTerm && this.#protocol.rules.seenIsNotEnoughAfterOther)
      this.#advance(who, 'finds the PV, perhaps of the other', { stage: 'may create' });
    else this.#advance(who, 'finds the PV', { stage: 'seen' });
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
    if (this.#notices(who, 'opens a deletion')) return;
    const { kind, record } = records.openDelete(
      this.#state.record,
      this.#opening(who),
      this.#worker(who).volume,
    );
    if (kind === 'opened') {
      if (this.#isCheckDue && this.#protocol.rules.areRecordsRewrittenInTime) return;
      const isUnreplicated = this.#state.replica !== undefined;
      this.#advance(
        who,
        'opens the deletion',
        { stage: 'may delete', sendTicks: this.#worker(who).sendTicks, isUnreplicated },
        { record },
      );
    } else if (kind === 'gone')
      this.#advance(who, 'learns that the volume is gone', { stage: 'remove object' });
    else if (kind === 'creating')
      this.#advance(who, 'finds a creation open', { stage: 'resume' }, { record });
    else this.#end(who, `opens no deletion: ${kind}`, record);
  }

  #resumeCreation(who: number): void {
    const worker = this.#worker(who);
    if (this.#notices(who, 'takes a creation up')) return;
    if (this.#state.wentBack && this.#state.isLossNoticed && this.#isCheckDue) return;
    const { kind, record } = records.openCreate(this.#state.record, 'existing', this.#opening(who));
    if (kind !== 'replay') return this.#end(who, `opens no record: ${kind}`, record);
    const { answer } = record;
    const stage = answer === 0 ? 'may create' : 'answered';
    const remembers = this.#isRemembered(worker, kind);
    this.#advance(
      who,
      'takes the creation up',
      { ...this.#afterOpening(), stage, answer, remembers },
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

  /** Whether a worker has yet to check the creation that it left open: it does so before a deletion
   * of it is opened and before a quarantine ends, unless Redis went back since. */
  get #isCheckDue(): boolean {
    return [0, 1].some((who) => {
      const { remembers, isBehind, isOfBefore } = this.#worker(who);
      if (isOfBefore) return true;
      if (!remembers || isBehind) return false;
      const { kind } = this.#rewrite(who);
      return kind === 'closed' || kind === 'ok';
    });
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
    if (s.calls.some(isUnderWay))
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
  Partial<
    Record<
      Stage,
      readonly ('sendTicks' | 'wanted' | 'isClaimGone' | 'isFirst' | 'volume' | 'answer')[]
    >
  >
> = {
  'claim read': ['wanted', 'isClaimGone'],
  replay: ['sendTicks', 'answer', 'isClaimGone'],
  'may create': ['sendTicks', 'isFirst', 'volume'],
  creating: ['sendTicks', 'isFirst', 'volume'],
  answered: ['sendTicks', 'isFirst', 'volume', 'answer'],
  unwritten: ['answer'],
  duplicate: ['sendTicks', 'isFirst', 'answer'],
  'deleting duplicate': ['answer'],
  'volume read': ['sendTicks', 'volume'],
  resume: ['volume'],
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
    isUnreplicated: worker.isUnreplicated,
    isMemoryUnreplicated: worker.isMemoryUnreplicated && worker.remembers,
    isBehind: worker.isBehind,
    knowsLoss: worker.knowsLoss,
    isOfBefore: worker.isOfBefore && worker.stage !== 'idle',
    sendTicks: reads.includes('sendTicks') ? worker.sendTicks : 0,
    wanted: reads.includes('wanted') && worker.wanted,
    isClaimGone: reads.includes('isClaimGone') && worker.isClaimGone,
    isFirst: reads.includes('isFirst') && worker.isFirst,
    volume: reads.includes('volume') ? worker.volume : 0,
    answer: reads.includes('answer') ? worker.answer : 0,
  };
}

/** The run has read its object, and nothing else. */
function hasOnlyRead({ stage }: Worker): boolean {
  return stage === 'claim read' || stage === 'volume read' || stage === 'resume';
}

/** Neither cut by its caller nor past its deadline. */
function isUnderWay(call: Call): boolean {
  return call.left > SETTLE && call.waiter !== CUT;
}

/** The smallest handle that nothing names. */
function unusedHandle(s: State): number {
  const used = [s.pvHandle, s.record.answer, s.replica?.answer ?? 0];
  used.push(...s.workers.flatMap(({ volume, answer }) => [volume, answer]));
  used.push(...s.calls.map((call) => call.handle));
  let handle = 1;
  while (used.includes(handle)) handle += 1;
  return handle;
}

function sortCalls(calls: readonly Call[]): readonly Call[] {
  return calls.length < 2 ? calls : [...calls].sort((a, b) => callCode(a) - callCode(b));
}

function callCode(call: Call): number {
  return (
    (call.kind === 'create' ? 0 : 1) |
    (call.handle << 1) |
    (call.left << 4) |
    ((call.waiter + 2) << 6)
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
      (w) =>
        w.stage !== 'idle' ||
        (w.remembers && protocol.rules.lostData && (s.isLossNoticed || w.isBehind)),
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

/** The record keeps an answer that names another volume than the PV (invariant 5). */
function needsOperator({ record, pv, pvHandle }: State): boolean {
  return isCreation(record) && record.answer !== 0 && pv !== 'none' && record.answer !== pvHandle;
}

/** Cluster and driver agree, and nothing is under way; or an operator has to compare two volumes.
 */
export function isSettled(protocol: Protocol, s: State): boolean {
  if (s.calls.length > 0 || s.workers.some((w) => w.stage !== 'idle')) return false;
  if (needsOperator(s)) return true;
  if (isOpen(s.record)) return false;
  if (s.claim === 'bound') return s.pv === 'bound' && s.pvHandle === s.volume;
  if (s.claim === 'pending') return false;
  if (s.pv === 'none') return s.volume === 0 || (s.isForgotten && protocol.isForgettingExcused);
  return s.retain && s.pv === 'released';
}

const STAGE_NUMBER = new Map<Stage, number>(STAGES.map((stage, at) => [stage, at]));
const RECORD_STATES = ['none', 'creating', 'suspect', 'stored', 'deleting', 'gone'] as const;
const CLAIMS = ['pending', 'bound', 'gone'] as const;
const LEADERS = ['ours', 'unseen', 'other'] as const;
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
  const ownsReplica = s.replica?.owner === who + 1 ? 1 : 0;
  const call = s.calls.find((c) => c.waiter === who);
  const fields =
    bit(w.wanted || w.isFirst) |
    (bit(w.remembers) << 1) |
    (owns << 2) |
    (w.sendTicks << 3) |
    (w.volume << 5) |
    (w.answer << 8);
  return (
    fields |
    ((STAGE_NUMBER.get(w.stage) ?? 0) << 11) |
    ((call === undefined ? 0 : callCode({ ...call, waiter: 0 })) << 16) |
    (bit(w.isUnreplicated) << 24) |
    (bit(w.isBehind) << 25) |
    (bit(w.knowsLoss) << 26) |
    (ownsReplica << 27) |
    (bit(w.isOfBefore) << 28) |
    (bit(w.isClaimGone) << 29) |
    (bit(w.isMemoryUnreplicated) << 30)
  );
}

function stateKey(s: State, low: number, high: number): string {
  const facts =
    bit(s.pvTerminating) |
    (bit(s.retain) << 1) |
    (bit(s.wasDeleted) << 2) |
    (bit(s.isLossNoticed) << 3) |
    (bit(s.isForgotten) << 4) |
    (bit(s.wentBack) << 5) |
    (bit(s.hasLagged) << 6);
  const objects =
    CLAIMS.indexOf(s.claim) | (PVS.indexOf(s.pv) << 2) | (s.pvHandle << 4) | (s.volume << 7);
  const recovery = s.recovery.left | (bit(s.recovery.isConfirmed) << 3);
  const faults = s.deaths | (s.emptyings << 2) | (s.failovers << 4) | (s.flips << 6);
  let left = 0;
  for (const call of s.calls) if (call.waiter < 0) left = (left << 8) | callCode(call) | 0x80;
  const key = String.fromCharCode(
    low & 0xffff,
    low >> 16,
    high & 0xffff,
    high >> 16,
    objects,
    recordKey(s.record),
    recordTimes(s.record) | (recovery << 6),
    facts | (faults << 7),
    left & 0xffff,
    left >> 16,
    LEADERS.indexOf(s.leader) |
      (bit(s.wasOpenAtChange) << 2) |
      (bit(s.record.isOfEarlierTerm) << 3) |
      (s.changes << 4),
  );
  const { replica } = s;
  const rest =
    replica === undefined
      ? s.broken
      : String.fromCharCode(recordKey(replica), recordTimes(replica)) + s.broken;
  return rest === '' ? key : key + rest;
}

function recordKey(r: VolumeRecord): number {
  const owner = r.owner === 0 ? 0 : r.owner === DEAD ? 1 : 2;
  const marks =
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
  return marks | (states << 5);
}

function isSame(a: VolumeRecord, b: VolumeRecord): boolean {
  return a.owner === b.owner && recordKey(a) === recordKey(b) && recordTimes(a) === recordTimes(b);
}

function recordTimes(r: VolumeRecord): number {
  return r.until | (r.settleTicks << 3);
}

function bit(value: boolean): number {
  return value ? 1 : 0;
}
