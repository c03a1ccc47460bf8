import { seededRandom, type Random } from './random.ts';

/** Everything that is done to the processes, with what it is. */
export const faultKinds = {
  'kill-ingest': 'SIGKILL of one ingest',
  'kill-jobs': 'SIGKILL of one jobs process',
  'kill-gateway': 'SIGKILL of the gateway',
  'kill-driver': 'SIGKILL of the driver',
  'freeze-leader': 'SIGSTOP of the ingest that leads, past its lease',
  'freeze-jobs': 'SIGSTOP of one jobs process, past the ownership of its records',
  'freeze-jobs-past-lock': 'SIGSTOP of one jobs process, past the locks of its jobs',
  'kill-redis': 'SIGKILL of Redis, which comes back with its append-only file',
  'freeze-redis': 'SIGSTOP of Redis',
  'flush-redis': 'FLUSHALL; only survivable with --claim-finalizer',
  'cut-api': 'connections to the API server are reset, new ones too',
  'hang-api': 'connections to the API server are silent',
} as const;

export type FaultKind = keyof typeof faultKinds;

/** One fault of a schedule. */
export interface Fault {
  /** Since the beginning. */
  readonly atMs: number;
  readonly kind: FaultKind;
  /** Which of several equal processes. */
  readonly target: number;
  /** How long it lasts; for what is killed: until it is started again. */
  readonly forMs: number;
}

/** Times of the processes that faults are measured by. */
export interface FaultTiming {
  readonly leaseMs: number;
  readonly ownershipMs: number;
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

/** When what happens to whom; the same for the same plan. Kinds come in rounds, each once per round
 * in random order. Faults overlap, but not two of the same process. */
export function planFaults(plan: SchedulePlan): readonly Fault[] {
  const random = seededRandom(plan.seed);
  const busyUntil = new Map<string, number>();
  const faults: Fault[] = [];
  let round: readonly FaultKind[] = [];
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
      forMs: lasting(kind, plan.timing, random),
    };
    const victim = victimOf(fault);
    if (fault.atMs + fault.forMs > plan.runMs || (busyUntil.get(victim) ?? 0) > atMs) continue;
    busyUntil.set(victim, fault.atMs + fault.forMs);
    faults.push(fault);
  }
  return faults;
}

function lasting(
  kind: FaultKind,
  { leaseMs, ownershipMs, lockMs }: FaultTiming,
  random: Random,
): number {
  const between = (min: number, max: number): number => Math.round(random.between(min, max));
  switch (kind) {
    case 'kill-ingest':
    case 'kill-jobs':
    case 'kill-gateway':
    case 'kill-driver':
    case 'kill-redis':
      return between(50, 1_000);
    case 'freeze-leader':
      return between(1.3 * leaseMs, 2 * leaseMs);
    case 'freeze-jobs':
      return between(1.2 * ownershipMs, 1.8 * ownershipMs);
    case 'freeze-jobs-past-lock':
      return between(1.1 * lockMs, 1.2 * lockMs);
    case 'freeze-redis':
    case 'cut-api':
    case 'hang-api':
      return between(500, 1.5 * ownershipMs);
    case 'flush-redis':
      return 0;
  }
}

/** What two faults must not have at once. */
function victimOf({ kind, target }: Fault): string {
  const [, what = ''] = kind.split('-');
  return what === 'jobs' || what === 'ingest' ? `${what} ${target}` : what;
}
