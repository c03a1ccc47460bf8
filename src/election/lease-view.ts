import { DRAIN, REDIS_HISTORY } from '../kube/keys.ts';
import type { WaitCondition } from '../rules/rule.ts';
import { isFields, parseJson } from '../runtime/json.ts';
import { IDENTITY_PREFIX, type StoredLease } from './lease.ts';

/* What the driver's Lease says to a run that is about to call the driver (docs/leak-proof.md, M2).
 * Pure. */

/** How long a view of the Lease counts, and how long after its mark a call may be sent. */
export const GRACE_MS = 10_000;

/** Whether a run may call the driver.
 *
 * - `may`: until `untilMs`, by performance.now()
 * - `paused`: not before somebody ends that: another provisioner leads, or sutler is drained
 * - `unclear`: in a moment, as when a leader has just begun */
export type CallVerdict =
  | { readonly kind: 'may'; readonly untilMs: number }
  | { readonly kind: 'paused' | 'unclear'; readonly reason: string };

/** Who has drained sutler, and when. */
export interface Drain {
  readonly by: string;
  /** Unix time. */
  readonly atMs: number;
}

/** Tells a run whether it may call the driver. */
export interface LeaseView {
  /** @param history   of Redis' data, as the run has found it
   * @param isBegun   earlier runs have begun the creation or deletion */
  judge(history: string, isBegun: boolean): CallVerdict;
  /** Why nothing new is begun, in one line; undefined while it is. */
  readonly pause: string | undefined;
}

/** The Lease as it was seen last. */
export interface SeenLease {
  /** Undefined: there is none, or it was not read yet. */
  readonly lease: Pick<StoredLease, 'record' | 'annotations'> | undefined;
  /** Another provisioner that holds it, and whose time is not over. */
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

/** Why nothing new is begun, even by a process that leads; undefined while it is. */
export function holdOf({ lease, otherHolder }: SeenLease): string | undefined {
  if (otherHolder !== undefined) return `${otherHolder} holds the driver's Lease`;
  const drain = drainOf(lease?.annotations);
  return drain && `sutler is drained by ${drain.by}`;
}

/** Why nothing new is begun; undefined while it is. */
export function pauseOf(seen: SeenLease): string | undefined {
  const { lease } = seen;
  const isAfterOther = lease !== undefined && !isOfOurs(lease);
  const afterOther = 'another provisioner was the last to hold the driver’s Lease';
  return holdOf(seen) ?? (isAfterOther ? afterOther : undefined);
}

/** M2: what the Lease, as a worker sees it, says of a call. What is under way is finished while
 * another provisioner holds the Lease; nothing new is begun then.
 * @param o.readMs  when the Lease was read last, and
 * @param o.nowMs   now, both by performance.now() */
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

/** That nothing new is begun, as a wait condition. It is no object of the API server: the leading
 * ingest knows when it ends. */
export const PROVISIONING_PAUSE: WaitCondition = { resource: 'newwork', name: '*', seen: 'paused' };
