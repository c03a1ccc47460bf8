/** What ingest and jobs agree on. The two roll out separately, so this is a wire format: change it
 * only by adding a version. */
export const CONTRACT_VERSION = 1;

/** What jobs are about; each kind has a queue of its own. */
export const JOB_KINDS = ['claim', 'volume', 'snapshot'] as const;

export type JobKind = (typeof JOB_KINDS)[number];

/** What a job says: look at this object. Keys only; every run reads the object afresh (design,
 * invariant 1). */
export interface JobKey {
  readonly kind: JobKind;
  readonly uid: string;
  /** Empty for volumes. */
  readonly namespace: string;
  readonly name: string;
}

/** A job's data as Redis holds it. */
export interface JobData extends JobKey {
  readonly v: number;
}

/** A job's data, or why it can't be read. `newer`: a later version of sutler wrote it, so a later
 * worker should have it. */
export type ParsedJob =
  | { readonly ok: true; readonly key: JobKey }
  | { readonly ok: false; readonly newer: boolean; readonly reason: string };

/** The data of a job for this key. */
export function jobData(key: JobKey): JobData {
  return {
    v: CONTRACT_VERSION,
    kind: key.kind,
    uid: key.uid,
    namespace: key.namespace,
    name: key.name,
  };
}

/** Reads a job's data; never throws. */
export function parseJob(data: unknown): ParsedJob {
  if (typeof data !== 'object' || data === null) return malformed('it is not an object');
  const { v, kind, uid, namespace, name } = data as Readonly<Record<string, unknown>>;
  if (typeof v !== 'number' || !Number.isInteger(v) || v < 1) return malformed('it has no version');
  if (v > CONTRACT_VERSION) {
    return {
      ok: false,
      newer: true,
      reason: `the job has version ${v}, this worker knows ${CONTRACT_VERSION}: upgrade the workers`,
    };
  }
  if (!isJobKind(kind)) return malformed(`its kind is none of ${JOB_KINDS.join(', ')}`);
  if (typeof uid !== 'string' || uid === '') return malformed('it has no uid');
  if (typeof name !== 'string' || name === '') return malformed('it has no name');
  if (typeof namespace !== 'string' || (namespace === '') !== (kind === 'volume'))
    return malformed('its namespace does not fit its kind');
  return { ok: true, key: { kind, uid, namespace, name } };
}

/** Whether this version knows jobs of that kind. */
export function isJobKind(kind: unknown): kind is JobKind {
  return JOB_KINDS.some((known) => known === kind);
}

/** What makes two hints one job: kind and UID. */
export function keyId(key: Pick<JobKey, 'kind' | 'uid'>): string {
  return `${key.kind}/${key.uid}`;
}

/** A job id that a person can read, unique by its last part. ':' is BullMQ's separator and becomes
 * '-', as does all else that names can't have. */
export function jobId(key: JobKey, unique: string): string {
  const owner = key.namespace === '' ? key.name : `${key.namespace}.${key.name}`;
  return `${owner.replaceAll(/[^A-Za-z0-9._-]/g, '-')}~${unique}`;
}

function malformed(reason: string): ParsedJob {
  return { ok: false, newer: false, reason: `the job can't be read: ${reason}` };
}
