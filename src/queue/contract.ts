import type { DriverPlace } from '../redis/key-prefix.ts';
import { isFields } from '../runtime/json.ts';
import { traceId } from '../runtime/trace-id.ts';

/** Version of a job's data, the wire format between ingest and jobs. The two are rolled out
 * separately, so every change of the data needs a new version. */
export const CONTRACT_VERSION = 1;

/** The kinds of objects that jobs reconcile; each kind has a queue of its own. `capacity`: a value
 * or an object of storage capacity, see src/capacity/items.ts. */
export const JOB_KINDS = ['claim', 'volume', 'snapshot', 'capacity'] as const;

export type JobKind = (typeof JOB_KINDS)[number];

/** Which object to reconcile. */
export interface JobKey {
  readonly kind: JobKind;
  readonly uid: string;
  /** Empty for volumes, and for values of capacity. */
  readonly namespace: string;
  readonly name: string;
}

/** A key for which a job is asked. */
export interface KeyToQueue extends JobKey {
  /** A version that the claim has had. Its first run may read it from the API server's cache, once
   * that is no older. Absent where that is not enough. */
  readonly seen?: string;
  /** JSON of the claim, as the watch has shown it last. */
  readonly claim?: string;
}

/** A claim as the leader's watch has shown it, for the first run of its job; see claim-copy.ts in
 * src/jobs/claim. */
export interface ClaimCopy {
  /** Names the watch; see watch-life.ts. */
  readonly watch: string;
  /** JSON. */
  readonly claim: string;
  /** '' without a key. */
  readonly seal: string;
}

/** All that the seal of a copy covers. */
export function sealedCopy(
  o: DriverPlace & Omit<ClaimCopy, 'seal'> & { readonly uid: string },
): readonly string[] {
  return ['copy', o.prefix, o.driver, o.uid, o.watch, o.claim];
}

/** A job's key, or why it can't be read. `isNewer`: a later version of sutler wrote the job, so a
 * later worker should run it. */
export type ParsedJob =
  | { readonly ok: true; readonly key: JobKey; readonly shown: ShownClaim }
  | { readonly ok: false; readonly isNewer: boolean; readonly reason: string };

/** What a job carries of its claim. */
export interface ShownClaim {
  readonly copy?: ClaimCopy;
  /** See KeyToQueue. */
  readonly seen?: string;
}

/** The data of a job, as Redis keeps it. */
export interface JobData extends JobKey, ShownClaim {
  readonly v: number;
}

/** The data of a job for this key. Workers that know neither copy nor version read the claim. */
export function jobData(key: JobKey, copy?: ClaimCopy): JobData {
  const data = { v: CONTRACT_VERSION, ...withoutCopy(key) };
  return copy === undefined ? data : { ...data, copy };
}

/** For a request that is kept: its claim may change meanwhile. */
export function withoutCopy({ kind, uid, namespace, name, seen }: KeyToQueue): KeyToQueue {
  return { kind, uid, namespace, name, ...(seen === undefined ? {} : { seen }) };
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
  const copy = parseCopy(fields['copy']);
  const { seen } = fields;
  const shown = {
    ...(copy === undefined ? {} : { copy }),
    ...(typeof seen === 'string' ? { seen } : {}),
  };
  return { ...parsed, shown };
}

/** A copy that can't be read is none. */
function parseCopy(value: unknown): ClaimCopy | undefined {
  if (!isFields(value)) return undefined;
  const { watch, claim, seal } = value;
  return typeof watch === 'string' && typeof claim === 'string' && typeof seal === 'string'
    ? { watch, claim, seal }
    : undefined;
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
  return { ok: true, key: { kind, uid, namespace, name }, shown: {} };
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
