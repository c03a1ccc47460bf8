import { keyOf } from '../kube/resources.ts';
import { type JobKind, traceOf } from '../queue/contract.ts';
import type { JobState } from '../queue/queues.ts';
import type { RunStatus } from '../queue/status.ts';
import { age, isoTime } from '../runtime/printable.ts';
import {
  type Cause,
  causeNamed,
  prevailing,
  retryCommand,
  statusCause,
  whyNoJob,
} from './causes.ts';
import { type DriverState, workersOf } from './driver-state.ts';
import type { PendingEntry } from './pending-index.ts';

/** Why a claim or volume is not done, and who has to do what. */
export interface Explanation {
  readonly kind: JobKind;
  readonly uid: string;
  /** "namespace/claim", or the volume's name. */
  readonly object: string;
  /** The claim's class; '' for a volume, or if the claim names none. */
  readonly className: string;
  readonly driver: string;
  readonly cause: Cause;
  /** Unix ms: since when it waits; undefined: not known. */
  readonly sinceMs: number | undefined;
  /** Unix ms: when the next run comes; undefined: not known. */
  readonly nextMs?: number | undefined;
  /** A run is at work now. */
  readonly isRunning?: boolean;
  /** How its last run ended; undefined if none has. */
  readonly status?: RunStatus | undefined;
  /** The UID of the claim that a volume names. */
  readonly claimUid?: string | undefined;
  /** Unix ms: until when a call may be at work in the driver; undefined: none is known. */
  readonly inDoubtUntilMs?: number | undefined;
  /** Address of the active gateway. */
  readonly gateway?: string;
}

/** What Redis says about one key. */
interface KeyFacts {
  readonly state: DriverState;
  /** The cause of all claims of the driver, if there is one. */
  readonly ofAll: Cause | undefined;
  readonly status: RunStatus | undefined;
  readonly job?: JobState | undefined;
  readonly inDoubtUntilMs?: number | undefined;
}

/** Explains an object that is not done.
 * @param entry.why  as in PendingEntry */
export function explainEntry(entry: PendingEntry, facts: KeyFacts): Explanation {
  const { state, status, job, inDoubtUntilMs } = facts;
  const { key, className, sinceMs } = entry;
  return {
    kind: key.kind,
    uid: key.uid,
    claimUid: key.claimUid,
    object: keyOf(key),
    className,
    driver: state.driver,
    cause: causeOf(entry, facts),
    sinceMs,
    nextMs: nextRunMs(status, job),
    isRunning: isRunning(facts),
    status,
    inDoubtUntilMs,
    gateway: state.gateway,
  };
}

/** Unix ms: when the next run of a key comes; undefined: not known. */
export function nextRunMs(
  status: RunStatus | undefined,
  job: JobState | undefined,
): number | undefined {
  return status && job?.delayMs !== undefined ? status.atMs + job.delayMs : undefined;
}

/** Without a worker an active job is not running. */
function isRunning({ job, state }: KeyFacts): boolean {
  return job?.isActive === true && workersOf(state).length > 0;
}

function causeOf({ why, className }: PendingEntry, facts: KeyFacts): Cause {
  const { ofAll, status } = facts;
  if (why !== '') return whyNoJob(why, className);
  if (isRunning(facts) && status === undefined)
    return causeNamed('Running', 'a worker is working on it');
  const own = status && statusCause(status);
  return prevailing(own, ofAll) ?? causeNamed('Queued', 'it waits for a worker');
}

/** Renders an explanation for people, in lines. */
export function renderExplanation(e: Explanation, nowMs: number): readonly string[] {
  const facts = Object.entries(describe(e, nowMs));
  return [
    `${e.object}: ${e.cause.sentence}`,
    ...facts.map(([name, text]) => `  ${`${name}:`.padEnd(10)}${text}`),
  ];
}

/** The facts about an object for people, by their names. */
export function describe(e: Explanation, nowMs: number): Readonly<Record<string, string>> {
  const { cause, status, inDoubtUntilMs, sinceMs, className, driver } = e;
  const { gateway = '' } = e;
  const whoActs = cause.actor === 'nobody' ? 'nobody has to act' : cause.actor;
  const since = sinceMs === undefined ? '' : `${isoTime(sinceMs)} (${age(nowMs - sinceMs)})`;
  const reason = status === undefined || status.reason === cause.sentence ? '' : status.reason;
  const rows = {
    cause: cause.name,
    who: `${whoActs}: ${cause.step}`,
    'next try': describeNext(e, nowMs),
    since,
    class: className,
    driver,
    gateway,
    trace: traceOf({ ...e, name: e.object }) ?? '',
    runs: status === undefined ? '' : describeRuns(status),
    reason,
    doubt:
      inDoubtUntilMs === undefined
        ? ''
        : `a call may be at work in the driver until ${isoTime(inDoubtUntilMs)}`,
  };
  return Object.fromEntries(Object.entries(rows).filter(([, text]) => text !== ''));
}

function describeRuns({ runs, firstMs, atMs, alike, sinceMs }: RunStatus): string {
  const last = alike === runs ? '' : `; ${alike} for this reason, since ${isoTime(sinceMs)}`;
  return `${runs} since ${isoTime(firstMs)}, the last at ${isoTime(atMs)}${last}`;
}

/** Causes that a retry of one claim does not end. */
const OF_DRIVER: readonly string[] = [
  'OtherProvisioner',
  'NoLeader',
  'Drained',
  'NoWorker',
  'Unreachable',
];

/** When the next run comes, and the command to retry at once after a repair. */
function describeNext(e: Explanation, nowMs: number): string {
  const { object, cause, status, nextMs, isRunning = false } = e;
  if (status === undefined) return '';
  if (isRunning) return 'running now';
  const coming = nextMs === undefined ? '' : inWords(nextMs - nowMs);
  const isByItself = cause.isFine && status.infeasible === undefined;
  if (coming === 'now' || isByItself || OF_DRIVER.includes(cause.name)) return coming;
  return `${coming === '' ? '' : `${coming}, or `}at once: ${retryCommand(object)}`;
}

/** A time until something, for people. */
export function inWords(ms: number): string {
  return ms <= 1_000 ? 'now' : `in ${age(ms)}`;
}
