import type { Redis } from 'ioredis';
import { keyOf } from '../kube/resources.ts';
import { type JobKey, type JobKind, keyId, traceOf } from '../queue/contract.ts';
import { queueName } from '../queue/queue-keys.ts';
import { type JobState, readJob } from '../queue/queues.ts';
import { readStatus, readStatuses, type RunStatus, type StatusChange } from '../queue/status.ts';
import { type OpenRecord, openRecord } from '../records/open-records.ts';
import { type Cause, driverCause, fine, isoTime, QUEUED, statusCause, wrong } from './causes.ts';
import { type DriverState, readDriverState } from './driver-state.ts';
import { NO_CLASS, type PendingEntry, readPending } from './pending-index.ts';
import { describeTimes, type Provisioned, readProvisioned } from './time-to-volume.ts';

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
export interface KeyFacts {
  readonly state: DriverState;
  readonly status: RunStatus | undefined;
  readonly job: JobState | undefined;
  readonly record: OpenRecord | undefined;
  /** The driver's last claims that got a volume. */
  readonly provisioned: readonly Provisioned[];
}

/** Reads it. Rejects while Redis can't be reached. */
export async function readKeyFacts(
  redis: Redis,
  prefix: string,
  driver: string,
  key: Pick<JobKey, 'kind' | 'uid'>,
): Promise<KeyFacts> {
  const place = { prefix, queue: queueName(key.kind, driver) };
  const [state, status, job, record, provisioned] = await Promise.all([
    readDriverState(redis, prefix, driver),
    readStatus(redis, { prefix, driver, key }),
    readJob(redis, place, keyId(key)),
    openRecord(redis, prefix, driver, key.uid),
    key.kind === 'claim' ? readProvisioned(redis, prefix, driver) : [],
  ]);
  return { state, status, job, record, provisioned };
}

/** Explains an object that is not done by what Redis says.
 * @param entry.why  as in PendingEntry */
export function explainEntry(
  { key, className, sinceMs, why }: PendingEntry,
  { state, status, job, record, provisioned }: KeyFacts,
  nowMs: number,
): Explanation {
  return {
    uid: key.uid,
    object: keyOf(key),
    className,
    driver: state.driver,
    cause: causeOf({ why, className, state, status, job }, nowMs),
    sinceMs,
    nextMs: nextRunMs(status, job),
    status,
    record,
    gateway: record?.endpoint || state.gateway,
    usual: describeTimes(provisioned.filter((each) => each.className === className)),
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
  o: Pick<PendingEntry, 'why' | 'className'> & Omit<KeyFacts, 'record' | 'provisioned'>,
  nowMs: number,
): Cause {
  const { why, className, state, status, job } = o;
  if (why !== '') return whyNoJob(why, className);
  if (job?.isActive === true && status === undefined)
    return fine('Running', 'a worker is at it now', ['nobody', 'wait until its call has ended']);
  return driverCause(state, nowMs) ?? (status === undefined ? QUEUED : statusCause(status));
}

/** Explains a claim that has no job. */
export function whyNoJob(why: Exclude<PendingEntry['why'], ''>, className: string): Cause {
  if (why === NO_CLASS) return absentClass(className);
  return wrong('NotAnnotated', 'kube-controller-manager has not asked for a volume yet', [
    'administrator',
    'see that kube-controller-manager runs, and that the class is the one that is wanted',
  ]);
}

/** Explains a claim whose class does not exist. */
export function absentClass(className: string): Cause {
  return className === ''
    ? wrong('NoClass', 'the claim names no StorageClass, and none is the default', [
        'user',
        'name a class in the claim, or have the administrator mark one as the default',
      ])
    : wrong('ClassNotFound', `StorageClass "${className}" does not exist`, [
        'user',
        'name another class, or have the administrator create this one',
      ]);
}

/** All that is pending for a driver, the oldest first. */
export async function explainPending(
  redis: Redis,
  prefix: string,
  driver: string,
  nowMs: number,
): Promise<{ readonly state: DriverState; readonly pending: readonly Explanation[] }> {
  const entries = await readPending(redis, prefix, driver);
  return explainEntries(redis, { prefix, driver }, entries, nowMs);
}

/** Explains entries by the state of the driver and the ends of their last runs. */
export async function explainEntries(
  redis: Redis,
  { prefix, driver }: { readonly prefix: string; readonly driver: string },
  entries: readonly PendingEntry[],
  nowMs: number,
): Promise<{ readonly state: DriverState; readonly pending: readonly Explanation[] }> {
  const uids = entries.map(({ key }) => key.uid);
  const [state, statuses] = await Promise.all([
    readDriverState(redis, prefix, driver),
    readStatuses(redis, { prefix, driver }, uids),
  ]);
  const pending = entries.map((entry) => {
    const status = statuses.get(entry.key.uid);
    const facts = { state, status, job: undefined, record: undefined, provisioned: [] };
    return explainEntry(entry, facts, nowMs);
  });
  return { state, pending };
}

/** For people: what is known of an object, a line each. */
export function renderExplanation(e: Explanation, nowMs: number): readonly string[] {
  return [
    `${e.object}: ${e.cause.sentence}`,
    ...Object.entries(describe(e, nowMs)).map(
      ([name, text]) => `  ${`${name}:`.padEnd(10)}${text}`,
    ),
    ...describeHistory(e.status?.history ?? []),
  ];
}

/** For people: what is known of an object, by the name of the fact. */
export function describe(e: Explanation, nowMs: number): Readonly<Record<string, string>> {
  const { cause, status, record, sinceMs, className, driver, gateway = '' } = e;
  const whoActs = cause.actor === 'nobody' ? 'nobody has to act' : cause.actor;
  const since = sinceMs === undefined ? '' : `${isoTime(sinceMs)} (${age(nowMs - sinceMs)})`;
  const reason = status === undefined || status.reason === cause.sentence ? '' : status.reason;
  const rows = {
    cause: cause.name,
    who: `${whoActs}: ${cause.step}`,
    since,
    class: className,
    usual: e.usual ?? '',
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

function describeHistory(history: readonly StatusChange[]): readonly string[] {
  if (history.length < 2) return [];
  return ['  timeline:', ...history.map(({ atMs, reason }) => `    ${isoTime(atMs)}  ${reason}`)];
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

/** A time span for people: 5s, 12m, 3h, 2d. */
export function age(ms: number): string {
  const units = [
    [86_400_000, 'd'],
    [3_600_000, 'h'],
    [60_000, 'm'],
  ] as const;
  const found = units.find(([length]) => ms >= 2 * length);
  const [length, unit] = found ?? [1_000, 's'];
  return `${Math.max(0, Math.round(ms / length))}${unit}`;
}
