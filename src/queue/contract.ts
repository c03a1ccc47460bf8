import { traceId } from '../runtime/trace-id.ts';

/** Version of a job's data, the wire format between ingest and jobs. The two are rolled out
 * separately, so every change of the data needs a new version. */
export const CONTRACT_VERSION = 1;

/** The kinds of objects that jobs reconcile; each kind has a queue of its own. `capacity`: a value
 * or an object of storage capacity, see src/capacity/items.ts. */
export const JOB_KINDS = ['claim', 'volume', 'snapshot', 'capacity'] as const;

export type JobKind = (typeof JOB_KINDS)[number];

/** Which object to reconcile. A job carries nothing else: every run reads the object afresh
 * (invariant 1). */
export interface JobKey {
  readonly kind: JobKind;
  readonly uid: string;
  /** Empty for volumes, and for values of capacity. */
  readonly namespace: string;
  readonly name: string;
}

/** A job's key, or why it can't be read. `isNewer`: a later version of sutler wrote the job, so a
 * later worker should run it. */
export type ParsedJob =
  | { readonly ok: true; readonly key: JobKey }
  | { readonly ok: false; readonly isNewer: boolean; readonly reason: string };

/** The data of a job for this key, as Redis keeps it. */
export function jobData({ kind, uid, namespace, name }: JobKey): JobKey & { readonly v: number } {
  return { v: CONTRACT_VERSION, kind, uid, namespace, name };
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
  return parseKey(fields);
}

/** Reads the fields of a key; never throws. */
export function parseKey({
  kind,
  uid,
  namespace,
  name,
}: Readonly<Record<string, unknown>>): ParsedJob {
  if (!isJobKind(kind)) return malformed(`its kind is none of ${JOB_KINDS.join(', ')}`);
  if (typeof uid !== 'string' || uid === '') return malformed('it has no uid');
  if (typeof name !== 'string' || name === '') return malformed('it has no name');
  if (typeof namespace !== 'string' || !fitsKind(namespace, kind))
    return malformed('its namespace does not fit its kind');
  return { ok: true, key: { kind, uid, namespace, name } };
}

function fitsKind(namespace: string, kind: JobKind): boolean {
  return kind === 'capacity' || (namespace === '') === (kind === 'volume');
}

/** Whether this version knows jobs of this kind. */
export function isJobKind(kind: unknown): kind is JobKind {
  return JOB_KINDS.some((known) => known === kind);
}

/** Identity of a key, by which requests are deduplicated: kind and UID. */
export function keyId(key: Pick<JobKey, 'kind' | 'uid'>): string {
  return `${key.kind}/${key.uid}`;
}

/** The fields by which log lines name a key. */
export function logFields(key: JobKey): Readonly<Record<string, string>> {
  const object = key.namespace === '' ? key.name : `${key.namespace}/${key.name}`;
  const trace = traceOf(key);
  return trace === undefined
    ? { [key.kind]: object, key: keyId(key) }
    : { [key.kind]: object, trace };
}

/** The trace of a key's object. That of a volume is its claim's: unless --volume-name-uuid-length
 * shortens the claim's UID, the name ends in it. */
export function traceOf({ kind, uid, name }: Omit<JobKey, 'namespace'>): string | undefined {
  return (kind === 'volume' ? traceId(name.slice(-36)) : undefined) ?? traceId(uid);
}

/** A readable job id, unique by its last part. ':', which is BullMQ's separator, becomes '-', like
 * every other character that is not allowed in names. */
export function jobId(key: JobKey, unique: string): string {
  const owner = key.namespace === '' ? key.name : `${key.namespace}.${key.name}`;
  return `${owner.replaceAll(/[^A-Za-z0-9._-]/g, '-')}~${unique}`;
}

function malformed(reason: string): ParsedJob {
  return { ok: false, isNewer: false, reason: `the job can't be read: ${reason}` };
}
