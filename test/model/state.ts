/* The state of the model: one claim, everything that the cluster, the driver and Redis know of it,
 * a leader, a former leader that stands still, and two workers. A state has a mutable form with
 * named fields, which the steps change, and a packed form of one byte a field, which the search
 * stores. */
import type { Job, Run, Until } from './rules.ts';

/** How often each fault may still happen. */
export interface Faults {
  /** A worker dies. */
  crashes: number;
  /** A worker that is alive loses the lock of its job. */
  lostLocks: number;
  /** The answer to a call is lost, or the call is cut and stays at work. */
  lostAnswers: number;
  /** Redis loses all its data. */
  emptyings: number;
  /** Redis goes back to the state before some earlier change. */
  setBacks: number;
  /** The leader dies, or stands still and is replaced. */
  replacedLeaders: number;
  /** Leader, workers and Redis die together, as in the drop-in. */
  dropInDeaths: number;
}

const NO_FAULTS: Faults = {
  crashes: 0,
  lostLocks: 0,
  lostAnswers: 0,
  emptyings: 0,
  setBacks: 0,
  replacedLeaders: 0,
  dropInDeaths: 0,
};

/** A volume in the driver is known by its handle. */
export type Handle = number;
export const NO_HANDLE: Handle = 0;
/** Of the volume, after a deletion that should never have happened. */
export const WRONGLY_DELETED: Handle = 99;

const PV_PHASES = ['none', 'written', 'bound', 'released'] as const;

/** The claim's entry, as it is in the journal or as a leader remembers it: whether it was written
 * under the present history of Redis. No rule asks that: an entry counts under every history. */
export type Entry = 'none' | 'of an earlier history' | 'of this history';
const ENTRIES: readonly Entry[] = ['none', 'of an earlier history', 'of this history'];

/** Whose term is in Redis. `other`: that of a leader that is over; `later`: of one that led after
 * the former leader. */
const TERMS = ['none', 'leader', 'former leader', 'other', 'later'] as const;

const JOB_KINDS = ['creation', 'deletion'] as const;
const JOB_PHASES = ['waiting', 'active', 'finished'] as const;
const LOCKS = ['none', 'worker 1', 'worker 2', 'ended'] as const;

/** Index of a worker. */
export type WorkerId = 0 | 1;
export const WORKER_IDS: readonly WorkerId[] = [0, 1];
/** The worker's run, as locks and calls name it. */
export const RUN_OF: readonly [Run, Run] = ['worker 1', 'worker 2'];

/** What Redis holds. */
export interface RedisData {
  job: Job | undefined;
  term: (typeof TERMS)[number];
}

/** Redis' data as they were before some change, to which it may go back. */
interface RedisCopy {
  data: RedisData;
  /** By worker: whether its run of then is still under way. */
  isSameRun: [boolean, boolean];
}

const LEADER_STEPS = [
  'dead',
  'begin',
  'list the journal',
  'drop the jobs of before',
  'idle',
  'await the journal write',
  'add the job',
  'remove the entry',
  'remove the job',
] as const;

export interface Leader {
  /** What it does next. */
  step: (typeof LEADER_STEPS)[number];
  knowsHistory: boolean;
  /** As it remembers it; while a journal write is under way, as it sent it. */
  entry: Entry;
  /** It has to add a job for the entry, whose earlier jobs it does not know. */
  mustAddAgain: boolean;
}

const FORMER_LEADER_STEPS = [
  'none',
  'begin',
  'await the journal write',
  'add the job',
  'drop the jobs of before',
  'remove the entry',
  'add the job again',
  'write the journal',
] as const;

/** A leader that was replaced and may still take one step. */
export interface FormerLeader {
  step: (typeof FORMER_LEADER_STEPS)[number];
  knowsHistory: boolean;
  /** The journal is still at the version that it knows. */
  knowsVersion: boolean;
  /** See Leader. */
  mustAddAgain: boolean;
}

const WORKER_STEPS = [
  'idle',
  'read the claim',
  'read until',
  'look for the PV',
  'judge the seen PV',
  'mark the creation',
  'send the creation',
  'await the creation',
  'write the PV',
  'take the refusal',
  'take the unknown end',
  'finish',
  'read the PV to delete',
  'mark the deletion',
  'send the deletion',
  'await the deletion',
  'remove the PV',
] as const;

export interface Worker {
  /** What its run does next. */
  step: (typeof WORKER_STEPS)[number];
  /** Whether the job that it took is of the present history of Redis. */
  isOfHistory: boolean;
  isFirstRun: boolean;
  /** The claim was there when the run read it. */
  sawClaim: boolean;
  /** As the job had it when the run took it, then as the mark returned it. */
  until: Until;
  /** What is left of the doubt that the mark returned, in ticks. */
  doubtLeft: number;
  /** The mark returned a time in the future. */
  beganInDoubt: boolean;
  /** In which the call may be sent, in ticks. */
  sendLeft: number;
  /** In which the PV may be written or removed, in ticks. */
  writeLeft: number;
  /** Of the volume that the driver answered, or of the PV to delete. */
  handle: Handle;
  /** The PV has the UID of the PV that a deletion read. */
  isPvSame: boolean;
}

const CALLERS = ['none', 'worker 1', 'worker 2'] as const;

/** A call that is at work in the driver. */
export interface Call {
  kind: Job['kind'];
  /** `none`: nobody waits for its answer. */
  caller: (typeof CALLERS)[number];
  /** How long it may be at work, in ticks. */
  left: number;
  /** Of the volume to delete. */
  handle: Handle;
}

/** At most so many calls are at work at once. */
export const MAX_CALLS = 3;

export interface State {
  isClaimThere: boolean;
  pv: { phase: (typeof PV_PHASES)[number]; handle: Handle };
  /** The volume of the claim's name in the driver. */
  volume: Handle;
  journal: Entry;
  redis: RedisData;
  redisCopy: RedisCopy | undefined;
  leader: Leader;
  formerLeader: FormerLeader;
  workers: [Worker, Worker];
  calls: Call[];
  faults: Faults;
}

export const IDLE_WORKER: Readonly<Worker> = {
  step: 'idle',
  isOfHistory: false,
  isFirstRun: false,
  sawClaim: false,
  until: undefined,
  doubtLeft: 0,
  beganInDoubt: false,
  sendLeft: 0,
  writeLeft: 0,
  handle: NO_HANDLE,
  isPvSame: false,
};

export const NO_FORMER_LEADER: Readonly<FormerLeader> = {
  step: 'none',
  knowsHistory: false,
  knowsVersion: false,
  mustAddAgain: false,
};

/** The claim is there, a leader begins, and nothing else exists. */
export function initialState(faults: Partial<Faults>): State {
  return {
    isClaimThere: true,
    pv: { phase: 'none', handle: NO_HANDLE },
    volume: NO_HANDLE,
    journal: 'none',
    redis: { job: undefined, term: 'leader' },
    redisCopy: undefined,
    leader: { step: 'begin', knowsHistory: true, entry: 'none', mustAddAgain: false },
    formerLeader: { ...NO_FORMER_LEADER },
    workers: [{ ...IDLE_WORKER }, { ...IDLE_WORKER }],
    calls: [],
    faults: { ...NO_FAULTS, ...faults },
  };
}

/** Writes or reads the bytes of a packed state, one call a field. A writer returns what it is
 * given, a reader what it reads. */
interface Bytes {
  number(value: number): number;
  flag(value: boolean): boolean;
  oneOf<T extends string>(values: readonly T[], value: T): T;
  until(value: Until): Until;
}

class Writer implements Bytes {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** Bytes that were passed. */
  get length(): number {
    return this.#at;
  }

  number(value: number): number {
    this.#bytes[this.#at++] = value;
    return value;
  }

  flag(value: boolean): boolean {
    this.#bytes[this.#at++] = value ? 1 : 0;
    return value;
  }

  oneOf<T extends string>(values: readonly T[], value: T): T {
    this.#bytes[this.#at++] = values.indexOf(value);
    return value;
  }

  until(value: Until): Until {
    this.#bytes[this.#at++] = value === undefined ? 0 : value + 1;
    return value;
  }
}

class Reader implements Bytes {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  number(): number {
    return this.#bytes[this.#at++] ?? 0;
  }

  flag(): boolean {
    return this.#bytes[this.#at++] === 1;
  }

  oneOf<T extends string>(values: readonly T[], value: T): T {
    return values[this.#bytes[this.#at++] ?? 0] ?? value;
  }

  until(): Until {
    const byte = this.number();
    return byte === 0 ? undefined : byte - 1;
  }
}

/** A state that a reader fills. */
function blankState(): State {
  return {
    isClaimThere: false,
    pv: { phase: 'none', handle: NO_HANDLE },
    volume: NO_HANDLE,
    journal: 'none',
    redis: { job: undefined, term: 'none' },
    redisCopy: undefined,
    leader: { step: 'dead', knowsHistory: false, entry: 'none', mustAddAgain: false },
    formerLeader: { ...NO_FORMER_LEADER },
    workers: [{ ...IDLE_WORKER }, { ...IDLE_WORKER }],
    calls: [],
    faults: { ...NO_FAULTS },
  };
}

/** Passes each field of a state through `bytes`, always in the same order. */
function passState(state: State, bytes: Bytes): void {
  state.isClaimThere = bytes.flag(state.isClaimThere);
  state.pv.phase = bytes.oneOf(PV_PHASES, state.pv.phase);
  state.pv.handle = bytes.number(state.pv.handle);
  state.volume = bytes.number(state.volume);
  state.journal = bytes.oneOf(ENTRIES, state.journal);
  passRedis(state.redis, bytes);
  state.redisCopy = passCopy(state.redisCopy, bytes);
  passLeaders(state, bytes);
  for (const worker of state.workers) passWorker(worker, bytes);
  passCalls(state.calls, bytes);
  passFaults(state.faults, bytes);
}

function passRedis(redis: RedisData, bytes: Bytes): void {
  redis.term = bytes.oneOf(TERMS, redis.term);
  const isThere = bytes.flag(redis.job !== undefined);
  const job = redis.job ?? blankJob();
  job.kind = bytes.oneOf(JOB_KINDS, job.kind);
  job.phase = bytes.oneOf(JOB_PHASES, job.phase);
  job.isOfHistory = bytes.flag(job.isOfHistory);
  job.until = bytes.until(job.until);
  job.isNew = bytes.flag(job.isNew);
  job.lock = bytes.oneOf(LOCKS, job.lock);
  redis.job = isThere ? job : undefined;
}

function blankJob(): Job {
  return {
    kind: 'creation',
    phase: 'waiting',
    isOfHistory: false,
    until: undefined,
    isNew: false,
    lock: 'none',
  };
}

function passCopy(copy: RedisCopy | undefined, bytes: Bytes): RedisCopy | undefined {
  const isThere = bytes.flag(copy !== undefined);
  const passed = copy ?? { data: { job: undefined, term: 'none' }, isSameRun: [false, false] };
  passRedis(passed.data, bytes);
  passed.isSameRun[0] = bytes.flag(passed.isSameRun[0]);
  passed.isSameRun[1] = bytes.flag(passed.isSameRun[1]);
  return isThere ? passed : undefined;
}

function passLeaders({ leader, formerLeader }: State, bytes: Bytes): void {
  leader.step = bytes.oneOf(LEADER_STEPS, leader.step);
  leader.knowsHistory = bytes.flag(leader.knowsHistory);
  leader.entry = bytes.oneOf(ENTRIES, leader.entry);
  leader.mustAddAgain = bytes.flag(leader.mustAddAgain);
  formerLeader.step = bytes.oneOf(FORMER_LEADER_STEPS, formerLeader.step);
  formerLeader.knowsHistory = bytes.flag(formerLeader.knowsHistory);
  formerLeader.knowsVersion = bytes.flag(formerLeader.knowsVersion);
  formerLeader.mustAddAgain = bytes.flag(formerLeader.mustAddAgain);
}

function passWorker(worker: Worker, bytes: Bytes): void {
  worker.step = bytes.oneOf(WORKER_STEPS, worker.step);
  worker.isOfHistory = bytes.flag(worker.isOfHistory);
  worker.isFirstRun = bytes.flag(worker.isFirstRun);
  worker.sawClaim = bytes.flag(worker.sawClaim);
  worker.until = bytes.until(worker.until);
  worker.doubtLeft = bytes.number(worker.doubtLeft);
  worker.beganInDoubt = bytes.flag(worker.beganInDoubt);
  worker.sendLeft = bytes.number(worker.sendLeft);
  worker.writeLeft = bytes.number(worker.writeLeft);
  worker.handle = bytes.number(worker.handle);
  worker.isPvSame = bytes.flag(worker.isPvSame);
}

function passCalls(calls: Call[], bytes: Bytes): void {
  const count = bytes.number(calls.length);
  for (let at = 0; at < MAX_CALLS; at++) {
    const call = calls[at] ?? { kind: 'creation', caller: 'none', left: 0, handle: NO_HANDLE };
    call.kind = bytes.oneOf(JOB_KINDS, call.kind);
    call.caller = bytes.oneOf(CALLERS, call.caller);
    call.left = bytes.number(call.left);
    call.handle = bytes.number(call.handle);
    if (at < count) calls[at] = call;
  }
}

function passFaults(faults: Faults, bytes: Bytes): void {
  faults.crashes = bytes.number(faults.crashes);
  faults.lostLocks = bytes.number(faults.lostLocks);
  faults.lostAnswers = bytes.number(faults.lostAnswers);
  faults.emptyings = bytes.number(faults.emptyings);
  faults.setBacks = bytes.number(faults.setBacks);
  faults.replacedLeaders = bytes.number(faults.replacedLeaders);
  faults.dropInDeaths = bytes.number(faults.dropInDeaths);
}

/** Bytes of a packed state. */
export const STATE_BYTES = measureState();

function measureState(): number {
  const writer = new Writer(new Uint8Array(0));
  passState(blankState(), writer);
  return writer.length;
}

/** Equal situations have equal bytes: the order of calls says nothing, so they are sorted.
 * @param bytes  is overwritten, and returned */
export function pack(state: State, bytes = new Uint8Array(STATE_BYTES)): Uint8Array {
  state.calls.sort((a, b) => rankOf(b) - rankOf(a));
  passState(state, new Writer(bytes));
  return bytes;
}

function rankOf({ kind, caller, left, handle }: Call): number {
  const place = JOB_KINDS.indexOf(kind) * CALLERS.length + CALLERS.indexOf(caller);
  return (place * 8 + left) * 128 + handle;
}

/** Each call returns a state of its own. */
export function unpack(bytes: Uint8Array): State {
  const state = blankState();
  passState(state, new Reader(bytes));
  return state;
}
