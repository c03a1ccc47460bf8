import { traceId } from '../runtime/trace-id.ts';

/** Version of a job's data, the wire format between ingest and jobs. The two are rolled out
 * separately, so every change of the data needs a new version. */
export const CONTRACT_VERSION = 1;

/** The kinds of objects that jobs reconcile; each kind has a queue of its own. */
export const JOB_KINDS = ['claim', 'volume'] as const;

export type JobKind = (typeof JOB_KINDS)[number];

/** Which object to reconcile. */
export interface JobKey {
  readonly kind: JobKind;
  readonly uid: string;
  /** Empty for volumes. */
  readonly namespace: string;
  readonly name: string;
  /** Of a volume: the UID of the claim that it names. So creation and deletion for one claim never
   * have jobs at the same time. */
  readonly claimUid?: string;
}

/** A key for which a job is asked. */
export interface KeyToQueue extends JobKey {
  /** JSON of the claim, for the journal, not for the job. Absent: the leader reads the claim. */
  readonly claim?: string;
}

/** What a job says besides its key. */
export interface JobFacts {
  /** Of a creation: the journal object with the claim's entry; '' without a journal. Absent: the
   * run may not call the driver. */
  readonly journal?: string;
  /** Until when calls of earlier jobs may be at work, Unix ms by Redis' clock; see run.ts. */
  readonly until?: number;
}

/** A job's key and facts, or why they can't be read. `isNewer`: a later version of sutler wrote the
 * job, so a worker of that version should run it. */
export type ParsedJob =
  | { readonly ok: true; readonly key: JobKey; readonly facts: JobFacts }
  | { readonly ok: false; readonly isNewer: boolean; readonly reason: string };

/** The data of a job, as Redis keeps it. */
export interface JobData extends JobKey, JobFacts {
  readonly v: number;
}

/** The data of a job for this key. */
export function jobData(key: KeyToQueue, facts: JobFacts = {}): JobData {
  return { v: CONTRACT_VERSION, ...bareKey(key), ...facts };
}

/** Reads a job's data; never throws. */
export function parseJob(data: unknown): ParsedJob {
  if (typeof data !== 'object' || data === null) return malformed('it is not an object');
  const { v, ...fields } = data as Readonly<Record<string, unknown>>;
  if (typeof v !== 'number' || !Number.isInteger(v) || v < 1) return malformed('it has no version');
  if (v > CONTRACT_VERSION) {
    return {
      ok: false,
      isNewer: true,
      reason: `the job has version ${v}, this worker knows ${CONTRACT_VERSION}: upgrade workers`,
    };
  }
  const parsed = parseKey(fields);
  if (!parsed.ok) return parsed;
  const { journal, until } = fields;
  const facts = {
    ...(typeof journal === 'string' ? { journal } : {}),
    ...(typeof until === 'number' ? { until } : {}),
  };
  return { ...parsed, facts };
}

/** Reads the fields of a key; never throws. */
export function parseKey({
  kind,
  uid,
  namespace,
  name,
  claimUid,
}: Readonly<Record<string, unknown>>): ParsedJob {
  if (!isJobKind(kind)) return malformed(`its kind is none of ${JOB_KINDS.join(', ')}`);
  if (typeof uid !== 'string' || uid === '') return malformed('it has no uid');
  if (typeof name !== 'string' || name === '') return malformed('it has no name');
  if (typeof namespace !== 'string' || !fitsKind(namespace, kind))
    return malformed('its namespace does not fit its kind');
  const ofClaim = typeof claimUid === 'string' && claimUid !== '' ? { claimUid } : {};
  return { ok: true, key: { kind, uid, namespace, name, ...ofClaim }, facts: {} };
}

function fitsKind(namespace: string, kind: JobKind): boolean {
  return (namespace === '') === (kind === 'volume');
}

/** Whether this version knows jobs of this kind. */
function isJobKind(kind: unknown): kind is JobKind {
  return JOB_KINDS.some((known) => known === kind);
}

/** Identity of a key: its kind and the id of its job. */
export function keyId(key: KeyUid): string {
  return `${key.kind}/${workId(key)}`;
}

/** The part of a key that identifies its job. */
export interface KeyUid extends Pick<JobKey, 'kind' | 'uid'> {
  readonly claimUid?: string | undefined;
}

/** A key without the JSON of its claim, for a request that waits: the claim may change. */
export function bareKey({ kind, uid, namespace, name, claimUid }: KeyToQueue): JobKey {
  return { kind, uid, namespace, name, ...(claimUid === undefined ? {} : { claimUid }) };
}

/** The id of a key's job in its queue, so that there is at most one: the claim's UID, also for a
 * volume that names a claim; otherwise the volume's UID. */
export function workId({ uid, claimUid }: Omit<KeyUid, 'kind'>): string {
  return claimUid ?? uid;
}

/** The fields by which log lines name a key. */
export function logFields(key: JobKey): Readonly<Record<string, string>> {
  const object = key.namespace === '' ? key.name : `${key.namespace}/${key.name}`;
  const trace = traceOf(key);
  return trace === undefined
    ? { [key.kind]: object, key: keyId(key) }
    : { [key.kind]: object, trace };
}

/** The trace of a key's object. A volume has its claim's trace, if its name ends in the claim's
 * whole UID (--volume-name-uuid-length may shorten it). */
export function traceOf({
  kind,
  uid,
  name,
}: Pick<JobKey, 'kind' | 'uid' | 'name'>): string | undefined {
  return (kind === 'volume' ? traceId(name.slice(-36)) : undefined) ?? traceId(uid);
}

function malformed(reason: string): ParsedJob {
  return { ok: false, isNewer: false, reason };
}
