import { keyOf } from '../kube/resources.ts';
import { type JobKind, keyId, traceOf } from '../queue/contract.ts';
import { queueName } from '../queue/queue-keys.ts';
import { type JobState, readJob } from '../queue/queues.ts';
import { readStatus, type RunStatus, type StatusChange } from '../queue/status.ts';
import { type OpenRecord, openRecord } from '../records/open-records.ts';
import { age, isoTime } from '../runtime/printable.ts';
import { type Cause, causeNamed, driverCause, statusCause, whyNoJob } from './causes.ts';
import { type DriverPlace, type DriverState, readDriverState } from './driver-state.ts';
import type { PendingEntry } from './pending-index.ts';
import { describeTimes, readProvisioned } from './time-to-volume.ts';

/** Why a claim or volume is not done, and who has to do what. */
export interface Explanation {
  readonly uid: string;
  /** "namespace/claim", or the volume's name. */
  readonly object: string;
  /** Of a claim; '' if it names none. */
  readonly className: string;
  readonly driver: string;
  readonly cause: Cause;
  /** Unix ms: since when it waits; undefined: not known. */
  readonly sinceMs: number | undefined;
  /** Unix ms: when the next run comes; undefined: not known. */
  readonly nextMs?: number | undefined;
  /** How its last run ended; undefined if none has. */
  readonly status?: RunStatus | undefined;
  /** Its open volume record. */
  readonly record?: OpenRecord | undefined;
  /** Address of the gateway that is called. */
  readonly gateway?: string;
  /** How long claims of its class take, for people. */
  readonly usual?: string;
}

/** Of a claim or a volume. */
export function kindOf({ object }: Pick<Explanation, 'object'>): JobKind {
  return object.includes('/') ? 'claim' : 'volume';
}

/** What Redis says about one key. */
interface KeyFacts {
  readonly state: DriverState;
  readonly status: RunStatus | undefined;
  readonly job?: JobState | undefined;
  readonly record?: OpenRecord | undefined;
  readonly usual?: string;
}

/** Explains one object by all that Redis says. Rejects while Redis can't be reached.
 * @param entry.why  as in PendingEntry */
export async function explainOne(
  place: DriverPlace,
  entry: PendingEntry,
  nowMs: number,
): Promise<Explanation> {
  const { redis, prefix, driver } = place;
  const { key, className } = entry;
  const [state, status, job, record, provisioned] = await Promise.all([
    readDriverState(place),
    readStatus(redis, { prefix, driver, key }),
    readJob(redis, { prefix, queue: queueName(key.kind, driver) }, keyId(key)),
    openRecord(redis, prefix, driver, key.uid),
    key.kind === 'claim' ? readProvisioned(place) : [],
  ]);
  const usual = describeTimes(provisioned.filter((each) => each.className === className));
  return explainEntry(entry, { state, status, job, record, usual }, nowMs);
}

/** Explains an object that is not done. */
export function explainEntry(
  entry: PendingEntry,
  { state, status, job, record, usual = '' }: KeyFacts,
  nowMs: number,
): Explanation {
  const { key, className, sinceMs } = entry;
  return {
    uid: key.uid,
    object: keyOf(key),
    className,
    driver: state.driver,
    cause: causeOf(entry, { state, status, job }, nowMs),
    sinceMs,
    nextMs: nextRunMs(status, job),
    status,
    record,
    gateway: record?.endpoint || state.gateway,
    usual,
  };
}

/** Unix ms: when the next run of a key comes; undefined: not known. */
export function nextRunMs(
  status: RunStatus | undefined,
  job: JobState | undefined,
): number | undefined {
  return status && job?.delayMs !== undefined ? status.atMs + job.delayMs : undefined;
}

function causeOf(
  { why, className }: PendingEntry,
  { state, status, job }: KeyFacts,
  nowMs: number,
): Cause {
  if (why !== '') return whyNoJob(why, className);
  if (job?.isActive === true && status === undefined)
    return causeNamed('Running', 'a worker is at it now');
  const queued = (): Cause => causeNamed('Queued', 'it is about to be worked on');
  return driverCause(state, nowMs) ?? (status === undefined ? queued() : statusCause(status));
}

/** For people: what is known of an object, a line each. */
export function renderExplanation(e: Explanation, nowMs: number): readonly string[] {
  const { history = [] } = e.status ?? {};
  return [
    `${e.object}: ${e.cause.sentence}`,
    ...Object.entries(describe(e, nowMs)).map(
      ([name, text]) => `  ${`${name}:`.padEnd(10)}${text}`,
    ),
    ...(history.length < 2 ? [] : ['  timeline:', ...history.map(describeChange)]),
  ];
}

/** For people: what is known of an object, by the name of the fact. */
export function describe(e: Explanation, nowMs: number): Readonly<Record<string, string>> {
  const { cause, status, record, sinceMs, className, driver, gateway = '', usual = '' } = e;
  const whoActs = cause.actor === 'nobody' ? 'nobody has to act' : cause.actor;
  const since = sinceMs === undefined ? '' : `${isoTime(sinceMs)} (${age(nowMs - sinceMs)})`;
  const reason = status === undefined || status.reason === cause.sentence ? '' : status.reason;
  const rows = {
    cause: cause.name,
    who: `${whoActs}: ${cause.step}`,
    since,
    class: className,
    usual,
    driver,
    gateway,
    trace: traceOf({ kind: kindOf(e), uid: e.uid, name: e.object }) ?? '',
    runs: status === undefined ? '' : describeRuns(status, e.nextMs, nowMs),
    reason,
    record: record === undefined ? '' : describeRecord(record),
  };
  return Object.fromEntries(Object.entries(rows).filter(([, text]) => text !== ''));
}

function describeRuns(
  { runs, firstMs, atMs }: RunStatus,
  nextMs: number | undefined,
  nowMs: number,
): string {
  const next = nextMs === undefined ? '' : `, the next ${inWords(nextMs - nowMs)}`;
  return `${runs} since ${isoTime(firstMs)}, the last at ${isoTime(atMs)}${next}`;
}

function describeChange({ atMs, reason }: StatusChange): string {
  return `    ${isoTime(atMs)}  ${reason}`;
}

function describeRecord({ state, attempts, lastCode, ownedForMs, sinceMs }: OpenRecord): string {
  const code = lastCode === '' ? '' : `, last code ${lastCode}`;
  const owned = ownedForMs > 0 ? `, a run has it for ${Math.ceil(ownedForMs / 1000)} s more` : '';
  return `${state} since ${isoTime(sinceMs)}, ${attempts} attempts${code}${owned}`;
}

/** When something comes, for people. */
export function inWords(ms: number): string {
  return ms <= 1_000 ? 'now' : `in ${age(ms)}`;
}
