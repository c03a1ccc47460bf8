/* The state of the model: one claim, everything that the cluster, the driver and Redis know of it,
 * a leader, a former leader that stands still, and two workers. */
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

/** Index of a worker. */
export type WorkerId = 0 | 1;
export const WORKER_IDS: readonly WorkerId[] = [0, 1];
/** The worker's run, as locks and calls name it. */
export const RUN_OF: readonly [Run, Run] = ['worker 1', 'worker 2'];

/** What Redis holds. */
export interface RedisData {
  job: Job | undefined;
  /** Whose. `other`: of a leader that is over; `later`: of one that led after the former leader. */
  term: 'none' | 'leader' | 'former leader' | 'other' | 'later';
}

/** Redis' data as they were before some change, to which it may go back. */
interface RedisCopy {
  data: RedisData;
  /** By worker: whether its run of then is still under way. */
  isSameRun: [boolean, boolean];
}

export interface Leader {
  /** What it does next. */
  step:
    | 'dead'
    | 'begin'
    | 'list the journal'
    | 'drop the jobs of before'
    | 'idle'
    | 'await the journal write'
    | 'add the job'
    | 'remove the entry'
    | 'remove the job';
  knowsHistory: boolean;
  /** The claim's entry, as it remembers it; while a journal write is under way, as it sent it. */
  hasEntry: boolean;
  /** It has to add a job for the entry, whose earlier jobs it does not know. */
  mustAddAgain: boolean;
}

/** A leader that was replaced and may still take one step. */
export interface FormerLeader {
  step:
    | 'none'
    | 'begin'
    | 'await the journal write'
    | 'add the job'
    | 'drop the jobs of before'
    | 'remove the entry'
    | 'add the job again'
    | 'write the journal';
  knowsHistory: boolean;
  /** The journal is still at the version that it knows. */
  knowsVersion: boolean;
  /** See Leader. */
  mustAddAgain: boolean;
}

export const WORKER_STEPS = [
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

const FAULTS = Object.keys(NO_FAULTS) as readonly (keyof Faults)[];

/** At most so many calls are at work at once. */
export const MAX_CALLS = 3;

export interface State {
  isClaimThere: boolean;
  pv: { phase: 'none' | 'written' | 'bound' | 'released'; handle: Handle };
  /** The volume of the claim's name in the driver. */
  volume: Handle;
  /** The journal has an entry of the claim. It counts under every history of Redis. */
  isInJournal: boolean;
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
    isInJournal: false,
    redis: { job: undefined, term: 'leader' },
    redisCopy: undefined,
    leader: { step: 'begin', knowsHistory: true, hasEntry: false, mustAddAgain: false },
    formerLeader: { ...NO_FORMER_LEADER },
    workers: [{ ...IDLE_WORKER }, { ...IDLE_WORKER }],
    calls: [],
    faults: { ...NO_FAULTS, ...faults },
  };
}

/** A state of its own. */
export function copyOf(state: State): State {
  const { redisCopy, workers } = state;
  return {
    ...state,
    pv: { ...state.pv },
    redis: copyOfData(state.redis),
    redisCopy: redisCopy && {
      data: copyOfData(redisCopy.data),
      isSameRun: [...redisCopy.isSameRun],
    },
    leader: { ...state.leader },
    formerLeader: { ...state.formerLeader },
    workers: [{ ...workers[0] }, { ...workers[1] }],
    calls: state.calls.map((call) => ({ ...call })),
    faults: { ...state.faults },
  };
}

function copyOfData({ term, job }: RedisData): RedisData {
  return { term, job: job && { ...job } };
}

/** Of the key that is being written: making an array for each takes time. */
const bytes = Buffer.alloc(128);
let length = 0;
/** A byte for each value that a field can have. */
const codes = new Map<unknown, number>();

function put(value: unknown): void {
  let code = codes.get(value);
  if (code === undefined) codes.set(value, (code = codes.size));
  bytes[length++] = code;
}

function putFields<T>(object: T, fields: readonly (keyof T)[]): void {
  for (const field of fields) put(object[field]);
}

function fieldsOf<T extends object>(object: T): readonly (keyof T)[] {
  return Object.keys(object) as (keyof T)[];
}

const JOB_FIELDS = ['kind', 'phase', 'isOfHistory', 'until', 'isNew', 'lock'] as const;
const CALL_FIELDS = ['kind', 'caller', 'left', 'handle'] as const;
const LEADER_FIELDS = ['step', 'knowsHistory', 'hasEntry', 'mustAddAgain'] as const;
const FORMER_LEADER_FIELDS = fieldsOf(NO_FORMER_LEADER);
const WORKER_FIELDS = fieldsOf(IDLE_WORKER);

/** One byte a field. Equal states have equal keys: the order of calls says nothing, so they are
 * sorted. */
export function keyOf(state: State): string {
  length = 0;
  const { pv, redisCopy, calls } = state;
  putFields(state, ['isClaimThere', 'volume', 'isInJournal']);
  putFields(pv, ['phase', 'handle']);
  putData(state.redis);
  put(redisCopy !== undefined);
  if (redisCopy) putData(redisCopy.data);
  for (const isSame of redisCopy?.isSameRun ?? []) put(isSame);
  putFields(state.leader, LEADER_FIELDS);
  putFields(state.formerLeader, FORMER_LEADER_FIELDS);
  for (const worker of state.workers) putFields(worker, WORKER_FIELDS);
  calls.sort((a, b) => rankOf(b) - rankOf(a));
  put(calls.length);
  for (const call of calls) putFields(call, CALL_FIELDS);
  putFields(state.faults, FAULTS);
  return bytes.toString('latin1', 0, length);
}

function putData({ term, job }: RedisData): void {
  put(term);
  put(job !== undefined);
  if (job) putFields(job, JOB_FIELDS);
}

function rankOf({ kind, caller, left, handle }: Call): number {
  const place = Number(kind === 'deletion') * CALLERS.length + CALLERS.indexOf(caller);
  return (place * 8 + left) * 128 + handle;
}
