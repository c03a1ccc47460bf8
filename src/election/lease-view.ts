import { DRAIN, REDIS_HISTORY } from '../kube/keys.ts';
import type { WaitCondition } from '../rules/rule.ts';
import { isFields, parseJson } from '../runtime/json.ts';
import { IDENTITY_PREFIX, type StoredLease } from './lease.ts';

/* Decides from the driver's Lease whether a run may call the driver (docs/leak-proof.md, M2).
 * Pure. */

/** How long a view of the Lease counts, and how long after its mark a call may be sent. */
export const GRACE_MS = 10_000;

/** Whether a run may call the driver.
 *
 * - `may`: yes, until `untilMs`, by performance.now()
 * - `paused`: no, another provisioner leads, or sutler is drained
 * - `unclear`: not yet, for example because a leader has just begun; to be asked again soon */
export type CallVerdict =
  | { readonly kind: 'may'; readonly untilMs: number }
  | { readonly kind: 'paused' | 'unclear'; readonly reason: string };

/** Who has drained sutler, and when. */
export interface Drain {
  readonly by: string;
  /** Unix time. */
  readonly atMs: number;
}

/** Decides for a run whether it may call the driver. */
export interface LeaseView {
  /** @param history   of Redis' data, as the run has found it
   * @param isBegun   earlier runs have begun the creation or deletion */
  judge(history: string, isBegun: boolean): CallVerdict;
  /** Why runs begin no new work, in one line; undefined while they do. */
  readonly pause: string | undefined;
}

/** The Lease as last seen. */
export interface SeenLease {
  /** Undefined: there is none, or it was not read yet. */
  readonly lease: Pick<StoredLease, 'record' | 'annotations'> | undefined;
  /** The other provisioner that holds it, unless its time is over. */
  readonly otherHolder: string | undefined;
}

/** The text of REDIS_HISTORY. */
export function historyAnnotation(transitions: number, history: string): string {
  return `${transitions}/${history}`;
}

/** Whether the last process that held the Lease is a sutler. */
export function isOfOurs({ record, annotations }: Pick<StoredLease, 'record' | 'annotations'>) {
  if (record.holder.startsWith(IDENTITY_PREFIX)) return true;
  const [transitions] = (annotations[REDIS_HISTORY] ?? '').split('/');
  return record.holder === '' && transitions === String(record.transitions);
}

/** Who has drained sutler; undefined while it is not drained. */
export function drainOf(
  annotations: Readonly<Record<string, string>> | undefined,
): Drain | undefined {
  const text = annotations?.[DRAIN];
  if (text === undefined) return undefined;
  const fields = parseJson(text);
  if (!isFields(fields)) return { by: 'an operator', atMs: 0 };
  const { by, at } = fields;
  const atMs = typeof at === 'string' ? Date.parse(at) : NaN;
  return {
    by: typeof by === 'string' ? by : 'an operator',
    atMs: Number.isNaN(atMs) ? 0 : atMs,
  };
}

/** Why even a leader begins no new work; undefined while it does. */
export function holdOf({ lease, otherHolder }: SeenLease): string | undefined {
  if (otherHolder !== undefined) return `${otherHolder} holds the driver's Lease`;
  const drain = drainOf(lease?.annotations);
  return drain && `sutler is drained by ${drain.by}`;
}

/** Why runs begin no new work; undefined while they do. */
export function pauseOf(seen: SeenLease): string | undefined {
  const { lease } = seen;
  const isAfterOther = lease !== undefined && !isOfOurs(lease);
  const afterOther = 'another provisioner was the last to hold the driver’s Lease';
  return holdOf(seen) ?? (isAfterOther ? afterOther : undefined);
}

/** M2: whether a worker may make a call, by the Lease as the worker sees it. While another
 * provisioner holds the Lease, workers finish creations and deletions that have begun, and begin no
 * others.
 * @param o.readMs  when the Lease was last read, by performance.now()
 * @param o.nowMs   now, by performance.now() */
export function judgeCall(
  seen: SeenLease,
  o: {
    readonly history: string;
    readonly isBegun: boolean;
    readonly readMs: number;
    readonly nowMs: number;
  },
): CallVerdict {
  const untilMs = o.readMs + GRACE_MS;
  if (o.nowMs >= untilMs)
    return { kind: 'unclear', reason: 'the driver’s Lease was not read in the last 10 s' };
  const { lease } = seen;
  if (lease === undefined) return { kind: 'unclear', reason: 'no ingest has led this driver yet' };
  const pause = o.isBegun ? undefined : pauseOf(seen);
  if (pause !== undefined) return { kind: 'paused', reason: pause };
  const { record, annotations } = lease;
  const known = annotations[REDIS_HISTORY] ?? '';
  const slash = known.indexOf('/');
  const isNamed = known.slice(slash + 1) === o.history;
  const isCurrent =
    seen.otherHolder !== undefined || known.slice(0, slash) === String(record.transitions);
  if (isNamed && (isCurrent || record.holder === '')) return { kind: 'may', untilMs };
  return { kind: 'unclear', reason: 'the leading ingest has not confirmed this Redis yet' };
}

/** The provisioning pause as a wait condition. It is no object of the API server: the leading
 * ingest knows when it ends. */
export const PROVISIONING_PAUSE: WaitCondition = { resource: 'newwork', name: '*', seen: 'paused' };
