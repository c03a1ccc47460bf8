/* One claim's volume, two workers, and everything that can happen to them: the protocol of
 * docs/leak-proof.md as a transition system. A worker stands still between any two of its steps for
 * as long as it likes, so a frozen and thawed worker needs no step of its own. */
import * as records from './record.ts';
import {
  CALL,
  isOpen,
  NO_RECORD,
  OWN,
  SEND,
  SETTLE,
  type Opening,
  type Recovery,
  type Reply,
  type Rules,
  type VolumeRecord,
  type Word,
} from './record.ts';

/** Where a worker's run stands: what it will do next. */
export const STAGES = [
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
  'surplus',
  'removing surplus',
  'volume read',
  'resume',
  'resolve',
  'may destroy',
  'destroying',
  'destroyed',
  'not destroyed',
  'remove object',
  'remove finalizer',
  'keep',
  'vanished',
] as const;
export type Stage = (typeof STAGES)[number];

export interface Worker {
  readonly stage: Stage;
  /** Ticks in which the run may still send, 0: too late. */
  readonly maySend: number;
  /** The claim was there and unbound when it was read. */
  readonly wanted: boolean;
  /** Handle in the PV that was read, for a volume's run; 0 in a claim's run. */
  readonly volume: number;
  /** Handle in the driver's answer. */
  readonly answer: number;
  /** A creation that this process opened, before Redis was emptied if it was, is not known to have
   * ended. */
  readonly remembers: boolean;
}

/** A call that the driver has. */
export interface Call {
  readonly kind: 'create' | 'delete';
  readonly handle: number;
  /** Ticks until nothing of it can be at work any more; more than SETTLE: its deadline has not
   * passed. */
  readonly left: number;
  /** Worker that waits for its answer; or CUT: its caller was told that it was broken off; or
   * ORPHANED: its caller died. */
  readonly waiter: number;
}

export interface State {
  readonly claim: 'pending' | 'bound' | 'gone';
  readonly pv: 'none' | 'available' | 'bound' | 'released';
  readonly pvHandle: number;
  readonly pvTerminating: boolean;
  readonly retain: boolean;
  /** Handle of the volume in the driver, 0 for none. Each one that is made has a new handle. */
  readonly volume: number;
  readonly made: number;
  readonly wasDeleted: boolean;
  readonly calls: readonly Call[];
  readonly record: VolumeRecord;
  readonly recovery: Recovery;
  readonly wasEmptied: boolean;
  /** Redis' data and the last worker that knew of the creation were lost: what that leaves behind
   * is not promised. */
  readonly isForgotten: boolean;
  readonly workers: readonly [Worker, Worker];
  /** Faults that may still happen. */
  readonly deaths: number;
  readonly emptyings: number;
  readonly flips: number;
  /** What went wrong in the step that led here, '' for nothing. */
  readonly wrong: string;
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
  /** The driver does not refuse to create what it has, unless there is a PV for it (resized, source
   * gone). */
  readonly isDriverIdempotent: boolean;
  /** Whether the loss of Redis' data and of the last worker that knew is held against the protocol.
   */
  readonly isForgettingExcused: boolean;
}

/** `helps`: neither a fault nor the user's doing; what remains possible when nothing goes wrong any
 * more. */
export interface Step {
  readonly label: string;
  readonly helps: boolean;
  readonly next: State;
}

const IDLE: Worker = {
  stage: 'idle',
  maySend: 0,
  wanted: false,
  volume: 0,
  answer: 0,
  remembers: false,
};
/** Owner of a record whose run is no more. */
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
    made: 0,
    wasDeleted: false,
    calls: [],
    record: NO_RECORD,
    recovery: records.NOTHING_TO_FEAR,
    wasEmptied: false,
    isForgotten: false,
    workers: [IDLE, IDLE],
    deaths: bounds.deaths,
    emptyings: bounds.emptyings,
    flips: bounds.flips,
    wrong: '',
  };
}

/** Every step that is possible in a state. */
export function steps(protocol: Protocol, state: State): readonly Step[] {
  const found: Step[] = [];
  new Stepper(protocol, state, found).all();
  return found;
}

class Stepper {
  readonly #p: Protocol;
  readonly #s: State;
  readonly #found: Step[];

  constructor(protocol: Protocol, state: State, found: Step[]) {
    this.#p = protocol;
    this.#s = state;
    this.#found = found;
  }

  all(): void {
    this.#cluster();
    this.#time();
    this.#driver();
    this.#redis();
    for (const who of [0, 1]) {
      this.#run(who);
      this.#death(who);
    }
  }

  #add(label: string, changes: Partial<State>, helps = true): void {
    this.#found.push({ label, helps, next: { ...this.#s, ...changes } });
  }

  // The cluster: the user, the volume controller.

  #cluster(): void {
    const s = this.#s;
    if (s.claim !== 'gone') this.#add('the claim is deleted', { claim: 'gone' }, false);
    if (s.claim === 'pending' && s.pv === 'available' && !s.pvTerminating)
      this.#add('claim and PV are bound', { claim: 'bound', pv: 'bound' });
    if (s.claim === 'gone' && (s.pv === 'available' || s.pv === 'bound'))
      this.#add('the PV becomes Released', { pv: 'released' });
    if (s.flips > 0 && s.pv !== 'none' && !s.pvTerminating)
      this.#add('the policy becomes Retain', { retain: true, flips: s.flips - 1 }, false);
  }

  // Time. A call is over before its last tick ends; nothing else has to happen in time.

  #time(): void {
    const s = this.#s;
    if (s.calls.every((call) => call.left > 1)) {
      const next = {
        calls: s.calls.map((call) => ({ ...call, left: call.left - 1 })),
        record: records.age(s.record),
        recovery: s.recovery.left === 0 ? s.recovery : { ...s.recovery, left: s.recovery.left - 1 },
        workers: [this.#aged(s.workers[0]), this.#aged(s.workers[1])] as const,
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

  #aged(worker: Worker): Worker {
    return worker.maySend === 0 ? worker : { ...worker, maySend: worker.maySend - 1 };
  }

  // The driver. It serialises creations of one name: one that succeeds has no other beside it.

  #driver(): void {
    const s = this.#s;
    s.calls.forEach((call, at) => {
      const calls = s.calls.filter((_, i) => i !== at);
      const what = `${call.kind} call`;
      const effect = call.kind === 'create' ? this.#make() : this.#unmake(call.handle);
      if (call.waiter < 0) {
        this.#add(`a ${what} left behind takes effect`, { calls, ...effect });
        this.#add(`a ${what} left behind comes to nothing`, { calls });
        return;
      }
      const { waiter } = call;
      const worker = `worker ${waiter + 1}`;
      if (call.left > SETTLE) {
        if (call.kind === 'delete') {
          const stage = this.#at(waiter).stage === 'removing surplus' ? 'stored' : 'destroyed';
          this.#add(`the driver deletes the volume for ${worker}`, {
            calls,
            ...effect,
            ...this.#to(waiter, { stage }),
          });
        } else {
          if (!calls.some((other) => other.kind === 'create')) {
            const answer = effect.volume ?? s.volume;
            this.#add(`the driver answers ${worker} with volume ${answer}`, {
              calls,
              ...effect,
              isForgotten: false,
              ...this.#to(waiter, { stage: 'answered', answer }),
            });
          }
          if (
            s.volume === 0 ||
            (s.pv !== 'none' && s.pvHandle === s.volume) ||
            !this.#p.isDriverIdempotent
          )
            this.#add(`the driver refuses ${worker}'s creation`, {
              calls,
              ...this.#to(waiter, { stage: 'refused' }),
            });
        }
      }
      const lost: Stage =
        call.kind === 'create'
          ? 'unknown'
          : this.#at(waiter).stage === 'removing surplus'
            ? 'unwritten'
            : 'not destroyed';
      this.#add(`${worker}'s ${what} is cut and left behind`, {
        calls: sorted([...calls, { ...call, waiter: CUT }]),
        ...this.#to(waiter, { stage: lost }),
      });
    });
  }

  /** Idempotent by name. */
  #make(): Partial<State> {
    const s = this.#s;
    if (s.volume !== 0) return {};
    const wrong = s.wasDeleted ? 'a volume is made again after its deletion (I3)' : s.wrong;
    return { volume: s.made + 1, made: s.made + 1, wrong };
  }

  #unmake(handle: number): Partial<State> {
    return this.#s.volume === handle ? { volume: 0, wasDeleted: true } : {};
  }

  // Redis.

  #redis(): void {
    const s = this.#s;
    const { rules } = this.#p;
    if (s.emptyings > 0) {
      const isLost = s.record.state === 'creating' || s.record.state === 'suspect';
      const isForgotten = s.isForgotten || (isLost && !s.workers.some((w) => w.remembers));
      const recovery = { blessed: false, left: 0 };
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
    if (!rules.emptied) return;
    if (!s.recovery.blessed)
      this.#add('the leader blesses the new Redis', {
        recovery: { blessed: true, left: OWN + SETTLE },
      });
    for (const who of [0, 1]) {
      if (!this.#at(who).remembers) continue;
      const { word, record } = records.tend(s.record, s.wasEmptied, s.recovery);
      if (word === 'closed')
        this.#add(`worker ${who + 1} sees its record closed`, this.#to(who, { remembers: false }));
      // It is of the new Redis now, and what is left open there stays there.
      if (word === 'ok')
        this.#add(`worker ${who + 1} writes again the record it left open`, {
          record,
          ...this.#to(who, { remembers: false }),
        });
    }
  }

  /** A run that has yet to open its record, of which it has read the object, is as good as over. */
  #afterEmptying(worker: Worker): Worker {
    const isAhead =
      worker.stage === 'claim read' ||
      worker.stage === 'volume read' ||
      worker.stage === 'resume' ||
      worker.stage === 'resolve';
    return isAhead && this.#p.rules.runsEndWithTheEpoch
      ? { ...IDLE, remembers: worker.remembers }
      : worker;
  }

  // Workers.

  #at(who: number): Worker {
    return who === 0 ? this.#s.workers[0] : this.#s.workers[1];
  }

  #to(who: number, changes: Partial<Worker>): Pick<State, 'workers'> {
    const [first, second] = this.#s.workers;
    return {
      workers:
        who === 0
          ? [tidy({ ...first, ...changes }), second]
          : [first, tidy({ ...second, ...changes })],
    };
  }

  /** The run is over; what it owned stays owned by a run that is no more. */
  #ended(
    who: number,
    remembers: boolean,
    record: VolumeRecord = this.#s.record,
  ): Pick<State, 'workers' | 'record'> {
    return {
      ...this.#to(who, { ...IDLE, remembers }),
      record: record.owner === who + 1 ? { ...record, owner: DEAD } : record,
    };
  }

  /** What is opened now is remembered for the case that Redis is emptied yet; of the time before,
   * what was not seen closed. */
  #isRemembered(worker: Worker, word: Word): boolean {
    if (!this.#s.wasEmptied)
      return this.#s.emptyings > 0 && (worker.remembers || word === 'opened' || word === 'replay');
    return (
      worker.remembers && word !== 'replay' && (word !== 'opened' || this.#p.rules.memoryIsKept)
    );
  }

  #opening(who: number): Opening {
    return { owner: who + 1, rules: this.#p.rules, recovery: this.#s.recovery };
  }

  #death(who: number): void {
    const s = this.#s;
    const worker = this.#at(who);
    if (s.deaths === 0 || (worker.stage === 'idle' && !worker.remembers)) return;
    const calls = sorted(s.calls.map((c) => (c.waiter === who ? { ...c, waiter: ORPHANED } : c)));
    const deaths = s.deaths - 1;
    const isForgotten =
      s.isForgotten || (s.wasEmptied && worker.remembers && !this.#at(1 - who).remembers);
    this.#add(
      `worker ${who + 1} dies`,
      { calls, deaths, isForgotten, ...this.#ended(who, false) },
      false,
    );
    if (s.record.owner === who + 1)
      this.#add(
        `worker ${who + 1} can't reach Redis and gives up`,
        { calls, deaths, ...this.#ended(who, worker.remembers) },
        false,
      );
  }

  #run(who: number): void {
    const s = this.#s;
    const { rules } = this.#p;
    const worker = this.#at(who);
    const name = `worker ${who + 1}`;
    const owner = who + 1;
    const go = (label: string, changes: Partial<Worker>, more: Partial<State> = {}): void =>
      this.#add(`${name} ${label}`, { ...more, ...this.#to(who, changes) });
    /** The last script of a run. `closes`: an ok tells the worker that the creation has ended. */
    const close = (label: string, { word, record }: Reply, closes: boolean): void => {
      const isDone = word === 'removed' || (word === 'ok' && closes);
      const isForgotten = s.isForgotten && word !== 'removed';
      this.#add(`${name} ${label}: ${word}`, {
        isForgotten,
        ...this.#ended(who, worker.remembers && !isDone, record),
      });
    };
    const maySend = worker.maySend > 0 || !rules.deadline;

    switch (worker.stage) {
      case 'idle': {
        const isListed = isOpen(s.record);
        if (s.claim === 'pending' || (isListed && s.record.state !== 'deleting'))
          go(`reads the claim (${s.claim})`, {
            stage: 'claim read',
            wanted: s.claim === 'pending',
          });
        if (s.pv === 'released' || (isListed && s.record.state === 'deleting'))
          this.#readVolume(who);
        return;
      }
      case 'claim read': {
        const { word, record } = records.openCreate(
          s.record,
          worker.wanted ? 'plan' : 'existing',
          this.#opening(who),
        );
        const remembers = this.#isRemembered(worker, word);
        if (word === 'opened')
          go('opens the record', { stage: 'may create', maySend: SEND + 1, remembers }, { record });
        else if (word === 'replay')
          go(
            'takes the record up',
            { stage: 'replay', maySend: SEND + 1, answer: record.answer, remembers },
            { record },
          );
        else this.#add(`${name} opens no record: ${word}`, this.#ended(who, remembers, record));
        return;
      }
      case 'replay':
        if (s.pv === 'none')
          go('finds no PV', { stage: worker.answer === 0 ? 'may create' : 'answered' });
        else go('finds the PV', { stage: s.pvTerminating ? 'not sent' : 'seen' });
        return;
      case 'may create':
        if (maySend && s.calls.length < this.#p.bounds.calls)
          go(
            'sends the creation',
            { stage: 'creating' },
            this.#sent({ kind: 'create', handle: 0 }, who),
          );
        go('could not send', { stage: 'not sent' });
        return;
      case 'answered':
        if (worker.volume !== 0) {
          go('compares the answer with its PV', {
            stage: worker.answer === worker.volume ? 'stored' : 'surplus',
          });
        } else if (s.pv === 'none') {
          const written = {
            pv: 'available',
            pvHandle: worker.answer,
            pvTerminating: false,
          } as const;
          go('writes the PV', { stage: 'stored' }, written);
          go('writes the PV and hears of an error', { stage: 'unwritten' }, written);
          go('can’t write the PV', { stage: 'unwritten' });
        } else {
          const stage = s.pvTerminating
            ? 'unwritten'
            : s.pvHandle === worker.answer
              ? 'stored'
              : 'surplus';
          go('finds that there is a PV', { stage });
        }
        return;
      case 'surplus':
        if (maySend && s.calls.length < this.#p.bounds.calls)
          go(
            'sends the deletion of a surplus volume',
            { stage: 'removing surplus' },
            this.#sent({ kind: 'delete', handle: worker.answer }, who),
          );
        go('could not send', { stage: 'unwritten' });
        return;
      case 'stored':
        return close(
          'closes the record as stored',
          records.closeStored(s.record, owner, true),
          true,
        );
      case 'seen':
        return close(
          'closes the record as stored, PV seen',
          records.closeStored(s.record, owner, false),
          true,
        );
      case 'refused':
        return close(
          'closes the record as refused',
          records.closeRefused(s.record, owner, rules),
          false,
        );
      case 'unknown':
        return close('leaves the record ambiguous', records.leaveAmbiguous(s.record, owner), false);
      case 'unwritten':
        return close(
          'leaves the answer in the record',
          records.leaveAnswered(s.record, owner, worker.answer),
          false,
        );
      case 'not sent': {
        const answer = records.restore(s.record, owner);
        return close('restores the record', answer, false);
      }
      case 'volume read': {
        const { word, record } = records.openDelete(s.record, this.#opening(who));
        if (word === 'opened')
          this.#add(`${name} opens the deletion`, this.#deletionOpened(who, record));
        else if (word === 'gone') go('hears that the volume is gone', { stage: 'remove object' });
        else if (word === 'creating') go('finds a creation open', { stage: 'resume' }, { record });
        else if (word === 'resolve')
          go('finds that the creation must be resolved', { stage: 'resolve' }, { record });
        else
          this.#add(
            `${name} opens no deletion: ${word}`,
            this.#ended(who, worker.remembers, record),
          );
        return;
      }
      case 'resume':
      case 'resolve': {
        const mode = worker.stage === 'resume' ? 'existing' : 'resolve';
        const { word, record } = records.openCreate(s.record, mode, this.#opening(who));
        if (word === 'replay') {
          const stage = record.answer === 0 ? 'may create' : 'answered';
          const remembers = this.#isRemembered(worker, word);
          go(
            'takes the creation up',
            { stage, maySend: SEND + 1, answer: record.answer, remembers },
            { record },
          );
        } else
          this.#add(`${name} opens no record: ${word}`, this.#ended(who, worker.remembers, record));
        return;
      }
      case 'may destroy':
        if (maySend && s.calls.length < this.#p.bounds.calls)
          go(
            'sends the deletion',
            { stage: 'destroying' },
            this.#sent({ kind: 'delete', handle: worker.volume }, who),
          );
        go('could not send', { stage: 'not sent' });
        return;
      case 'destroyed': {
        const { word, record } = records.closeGone(s.record, owner);
        if (word === 'ok') go('closes the record as gone', { stage: 'remove object' }, { record });
        else
          this.#add(
            `${name} closes the record as gone: ${word}`,
            this.#ended(who, worker.remembers, record),
          );
        return;
      }
      case 'not destroyed':
        return close('leaves the deletion open', records.leaveDeleting(s.record, owner), false);
      case 'remove object':
        if (s.pv === 'none' || s.pvHandle !== worker.volume)
          this.#add(`${name} finds its PV gone`, this.#ended(who, worker.remembers));
        else go('deletes the PV', { stage: 'remove finalizer' }, { pvTerminating: true });
        return;
      case 'remove finalizer': {
        const isThere = s.pv !== 'none' && s.pvHandle === worker.volume;
        const gone = isThere ? ({ pv: 'none', pvHandle: 0, pvTerminating: false } as const) : {};
        this.#add(`${name} takes the finalizer off the PV`, {
          ...gone,
          ...this.#ended(who, worker.remembers),
        });
        return;
      }
      case 'keep':
      case 'vanished': {
        const to = worker.stage === 'keep' ? 'stored' : 'gone';
        return close(
          `ends the deletion as ${to}`,
          records.endDeletion(s.record, this.#opening(who), to),
          false,
        );
      }
      case 'creating':
      case 'removing surplus':
      case 'destroying':
        return;
    }
  }

  /** Whoever had left the creation open has seen by now that it was closed. */
  #deletionOpened(who: number, record: VolumeRecord): Pick<State, 'workers' | 'record'> {
    const { workers } = this.#to(who, { stage: 'may destroy' });
    if (!this.#p.rules.isTendedInTime) return { workers, record };
    return {
      workers: [
        { ...workers[0], remembers: false },
        { ...workers[1], remembers: false },
      ],
      record,
    };
  }

  #readVolume(who: number): void {
    const s = this.#s;
    const name = `worker ${who + 1}`;
    const isDeleting = s.record.state === 'deleting';
    if (s.pv === 'none') {
      if (isDeleting) this.#add(`${name} finds its PV gone`, this.#to(who, { stage: 'vanished' }));
    } else if (s.retain) {
      if (isDeleting) this.#add(`${name} reads the PV (Retain)`, this.#to(who, { stage: 'keep' }));
    } else if (s.pv === 'released') {
      this.#add(
        `${name} reads the PV (Released)`,
        this.#to(who, { stage: 'volume read', volume: s.pvHandle, maySend: SEND + 1 }),
      );
    }
  }

  /** What is sent is with the driver, or was never sent: the gateway holds it to the deadline. */
  #sent(call: Pick<Call, 'kind' | 'handle'>, who: number): Pick<State, 'calls' | 'wrong'> {
    const s = this.#s;
    let { wrong } = s;
    if (s.calls.some((other) => other.left > SETTLE && other.waiter !== CUT))
      wrong =
        'two calls for one volume are under way, the first neither cut nor past its deadline (I2)';
    else if (call.kind === 'delete' && s.pv !== 'none' && s.pvHandle === call.handle) {
      const isStale = this.#at(who).maySend === 0;
      if (s.claim !== 'gone' || s.pv === 'bound')
        wrong = `a deletion is sent although the claim is ${s.claim} and the PV ${s.pv} (I4)`;
      else if (s.retain && isStale)
        wrong = 'a deletion is sent long after its PV became Retain (I4)';
    }
    return { calls: sorted([...s.calls, { ...call, left: CALL + SETTLE, waiter: who }]), wrong };
  }
}

/** What a stage reads of its worker beyond the stage itself; the rest is forgotten, so that equal
 * situations are equal states. */
const READS: Readonly<
  Partial<Record<Stage, readonly ('maySend' | 'wanted' | 'volume' | 'answer')[]>>
> = {
  'claim read': ['wanted'],
  replay: ['maySend', 'answer'],
  'may create': ['maySend', 'volume'],
  creating: ['maySend', 'volume'],
  answered: ['maySend', 'volume', 'answer'],
  unwritten: ['answer'],
  surplus: ['maySend', 'answer'],
  'removing surplus': ['answer'],
  'volume read': ['maySend', 'volume'],
  resume: ['volume'],
  resolve: ['volume'],
  'may destroy': ['maySend', 'volume'],
  destroying: ['volume'],
  destroyed: ['volume'],
  'remove object': ['volume'],
  'remove finalizer': ['volume'],
};

function tidy(worker: Worker): Worker {
  const reads = READS[worker.stage] ?? [];
  return {
    stage: worker.stage,
    remembers: worker.remembers,
    maySend: reads.includes('maySend') ? worker.maySend : 0,
    wanted: reads.includes('wanted') && worker.wanted,
    volume: reads.includes('volume') ? worker.volume : 0,
    answer: reads.includes('answer') ? worker.answer : 0,
  };
}

function sorted(calls: readonly Call[]): readonly Call[] {
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

/** What must never be, judged in every state; undefined where all is well. */
export function violation(protocol: Protocol, s: State): string | undefined {
  if (s.wrong !== '') return s.wrong;
  const isNamed = s.pv !== 'none' && s.pvHandle === s.volume;
  const willBeLookedAt = s.pv !== 'none' && !s.retain;
  const isCovered =
    willBeLookedAt ||
    isOpen(s.record) ||
    s.workers.some(
      (w) => w.stage !== 'idle' || (w.remembers && protocol.rules.emptied && s.wasEmptied),
    );
  if (
    s.volume !== 0 &&
    !isNamed &&
    s.claim === 'gone' &&
    !isCovered &&
    !(s.isForgotten && protocol.isForgettingExcused)
  )
    return 'a volume exists that no PV names and no record covers, and nobody will look (I1)';
  return undefined;
}

/** All is as it should be and nothing is under way. */
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

/** A text that two states share only if they are the same. Workers are alike, so a state and its
 * mirror image share it too. */
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
    (w.maySend << 3) |
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
    (s.made << 8);
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
    r.until | (r.settles << 3) | (s.recovery.left << 6) | (bit(s.recovery.blessed) << 9);
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
  return s.wrong === '' ? key : key + s.wrong;
}

function bit(value: boolean): number {
  return value ? 1 : 0;
}
