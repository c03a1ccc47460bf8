import { seededRandom, type Random } from './random.ts';

/** How sutler runs: as separate processes with one Redis, or as replicas in the place of
 * external-provisioner, each of which has a Redis of its own. */
export type Form = 'distributed' | 'drop-in';

/** The kinds of faults, with a description of each. */
export const faultKinds = {
  'kill-ingest': 'SIGKILL of one ingest',
  'kill-jobs': 'SIGKILL of one jobs process',
  'kill-gateway': 'SIGKILL of the gateway',
  'kill-container': 'SIGKILL of one drop-in, whose Redis ends with it',
  'kill-driver': 'SIGKILL of the driver',
  'freeze-leader': 'SIGSTOP of the process that leads, past its lease',
  'freeze-jobs': 'SIGSTOP of one jobs process, for less or more than a doubt lasts',
  'freeze-jobs-past-lock': 'SIGSTOP of one jobs process, past the locks of its jobs',
  'kill-redis': 'SIGKILL of Redis, which is restarted without data',
  'flush-redis': 'FLUSHALL',
  'restore-redis': 'Redis is killed and restarted with a copy of its data that is up to 10 s old',
  'failover-redis': 'the master of Redis dies, and its replica lacks the last 0 to 2 s',
  'freeze-redis': 'SIGSTOP of Redis',
  'cut-api': 'connections to the API server are reset, new ones too',
  'hang-api': 'connections to the API server stay open and pass no data',
  'freeze-api': 'SIGSTOP of the API server, past every lease and for less or more than a doubt',
} as const;

export type FaultKind = keyof typeof faultKinds;

const ONLY_IN: Readonly<Partial<Record<FaultKind, Form>>> = {
  'kill-ingest': 'distributed',
  'kill-jobs': 'distributed',
  'kill-gateway': 'distributed',
  'kill-container': 'drop-in',
  'freeze-jobs': 'distributed',
  'freeze-jobs-past-lock': 'distributed',
  'restore-redis': 'distributed',
  'failover-redis': 'distributed',
};

/** The kinds that a form can have. */
export function kindsOf(form: Form): readonly FaultKind[] {
  const all = Object.keys(faultKinds) as FaultKind[];
  return all.filter((kind) => (ONLY_IN[kind] ?? form) === form);
}

/** One fault of a schedule. */
export interface Fault {
  /** Time since the beginning of the run. */
  readonly atMs: number;
  readonly kind: FaultKind;
  /** Which of the ingest or jobs processes, from 0. */
  readonly target: number;
  /** How long it lasts; for a kill, how long the process stays down; for a failover and a restored
   * copy, how much of the latest data is lost. */
  readonly forMs: number;
}

/** Times of sutler that freezes have to exceed. */
export interface FaultTiming {
  readonly timeoutMs: number;
  readonly leaseMs: number;
  /** How long a claim is in doubt after a call. */
  readonly doubtMs: number;
  readonly lockMs: number;
}

export interface SchedulePlan {
  readonly seed: number;
  readonly kinds: readonly FaultKind[];
  /** No fault lasts longer than this. */
  readonly runMs: number;
  /** Mean time between the beginnings of two faults. */
  readonly gapMs: number;
  /** Processes of ingest, and of jobs. */
  readonly replicas: number;
  readonly timing: FaultTiming;
}

/** While the API server stands still nothing else happens that a fault could meet. So it is frozen
 * at most a quarter of the time. */
const API_RESTS = 3;

/** Plans the faults of a run; the same plan gives the same faults. Each kind occurs once per round,
 * in random order. Faults may overlap, except two of the same process. */
export function planFaults(plan: SchedulePlan): readonly Fault[] {
  const random = seededRandom(plan.seed);
  const busyUntil = new Map<string, number>();
  const faults: Fault[] = [];
  let round: readonly FaultKind[] = [];
  let apiRestsUntilMs = 0;
  if (plan.kinds.length === 0) return faults;
  for (
    let atMs = random.between(500, 500 + plan.gapMs);
    atMs < plan.runMs;
    atMs += random.between(0.5, 1.5) * plan.gapMs
  ) {
    if (round.length === 0) round = random.shuffled(plan.kinds);
    const [kind] = round;
    if (kind === undefined) break;
    round = round.slice(1);
    const fault = {
      atMs: Math.round(atMs),
      kind,
      target: random.index(plan.replicas),
      forMs: chooseDurationMs(kind, plan.timing, random),
    };
    const victim = victimOf(fault);
    const endMs = fault.atMs + fault.forMs;
    if (endMs > plan.runMs || (busyUntil.get(victim) ?? 0) > atMs) continue;
    if (kind === 'freeze-api' && apiRestsUntilMs > atMs) continue;
    if (kind === 'freeze-api') apiRestsUntilMs = endMs + API_RESTS * fault.forMs;
    busyUntil.set(victim, endMs);
    faults.push(fault);
  }
  return faults;
}

function chooseDurationMs(
  kind: FaultKind,
  { timeoutMs, leaseMs, doubtMs, lockMs }: FaultTiming,
  random: Random,
): number {
  const downtime = [50, 1_000] as const;
  const outage = [500, 2 * timeoutMs] as const;
  const limits: Readonly<Record<FaultKind, readonly [min: number, max: number]>> = {
    'kill-ingest': downtime,
    'kill-jobs': downtime,
    'kill-gateway': downtime,
    'kill-container': downtime,
    'kill-driver': downtime,
    'kill-redis': downtime,
    'freeze-leader': [1.3 * leaseMs, 2 * leaseMs],
    'freeze-jobs': [timeoutMs, 1.3 * doubtMs],
    'freeze-jobs-past-lock': [1.1 * lockMs, 1.2 * lockMs],
    'freeze-redis': outage,
    'cut-api': outage,
    'hang-api': outage,
    'freeze-api': [2 * leaseMs, 1.3 * doubtMs],
    'failover-redis': [0, 2_000],
    'restore-redis': [500, 10_000],
    'flush-redis': [0, 0],
  };
  return Math.round(random.between(...limits[kind]));
}

/** The process that a fault affects: it can have one fault at a time. */
function victimOf({ kind, target }: Fault): string {
  const [, what = ''] = kind.split('-');
  return ['jobs', 'ingest', 'container'].includes(what) ? `${what} ${target}` : what;
}
