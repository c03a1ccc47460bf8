import { createHash } from 'node:crypto';
import type { Clock } from '../runtime/clock.ts';
import { networkOf } from '../runtime/network-of.ts';
import { TokenBucket } from '../runtime/token-bucket.ts';

/** Somebody's try to log in. */
export interface Attempt {
  readonly address: string;
  readonly user: string;
}

/** Wrong passwords in a row that delay nothing. */
export const FREE_FAILURES = 3;
/** The delay after the third; it doubles with each further one. */
const FIRST_DELAY_MS = 1_000;
export const MAX_DELAY_MS = 60_000;
/** How long after the last one they are forgotten. */
const FORGET_MS = 3_600_000;

/** Wrong passwords from networks that have sent none before: a budget of their own, so that a right
 * password from elsewhere is accepted while others guess. */
export const FIRST_FAILURES = { burst: 30, perSecond: 0.5 };
/** Wrong passwords from all networks that have sent one before. */
export const REPEATED_FAILURES = { burst: 30, perSecond: 0.5 };
/** The same for one user name. */
export const USER_FAILURES = { burst: 10, perSecond: 1 / 6 };
/** Wrong passwords of one user from a network from which that user has logged in. */
const KNOWN_FAILURES = { burst: 10, perSecond: 1 / 6 };
/** Wrong passwords over loopback, as through kubectl port-forward: a way in that strangers on the
 * network can't close. */
const LOOPBACK_FAILURES = { burst: 10, perSecond: 1 / 6 };

/** Networks and user names that are remembered; beyond it the oldest is dropped. The budgets let
 * fewer arise within FORGET_MS. */
const MAX_ENTRIES = 10_000;
/** Logins of known networks that are remembered. */
const MAX_KNOWN = 1_000;

/** Consecutive wrong passwords. */
interface Failures {
  readonly count: number;
  readonly lastMs: number;
}

const NONE: Failures = { count: 0, lastMs: 0 };

/** Limits how many passwords can be guessed: by network, by user, and in all. Somebody who is
 * limited is refused even with the right password, so that the answer to a guess says nothing. */
export class FailureLimit {
  readonly #clock: Clock;
  /** By network; the latest failure last. */
  readonly #networks = new Map<string, Failures>();
  /** Logins by network and user; the latest login last. */
  readonly #known = new Map<string, { failures: Failures; readonly budget: TokenBucket }>();
  /** By the digest of the name, which may be long. */
  readonly #users = new Map<string, TokenBucket>();
  readonly #loopback: TokenBucket;
  readonly #first: TokenBucket;
  readonly #repeated: TokenBucket;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#loopback = this.#createBudget(LOOPBACK_FAILURES);
    this.#first = this.#createBudget(FIRST_FAILURES);
    this.#repeated = this.#createBudget(REPEATED_FAILURES);
  }

  /** How long to wait before this attempt's password is looked at; 0 if it may be now. */
  waitMs(attempt: Attempt): number {
    const nowMs = this.#clock.nowMs();
    const { failures, budgets } = this.#limitsOf(attempt);
    const ownMs = failures.lastMs + delayAfter(failures.count) - nowMs;
    return Math.max(0, ownMs, ...budgets.map((budget) => budget.waitMs(nowMs)));
  }

  countFailure(attempt: Attempt): void {
    const nowMs = this.#clock.nowMs();
    const { known, failures, budgets } = this.#limitsOf(attempt);
    for (const budget of budgets) budget.take(nowMs);
    const counted = { count: failures.count + 1, lastMs: nowMs };
    if (known === undefined)
      putLast(this.#networks, networkOf(attempt.address), counted, MAX_ENTRIES);
    else known.failures = counted;
  }

  /** Remembers that this user logs in from this network, and forgets the failures of the two. What
   * others from that network, and others under that name, have done stays counted. */
  countSuccess(attempt: Attempt): void {
    const pair = pairOf(attempt);
    const budget = this.#known.get(pair)?.budget ?? this.#createBudget(KNOWN_FAILURES);
    putLast(this.#known, pair, { failures: NONE, budget }, MAX_KNOWN);
  }

  /** What counts for an attempt: the failures whose delay it has to wait for, and the budgets from
   * which a wrong password takes. */
  #limitsOf(attempt: Attempt) {
    const known = this.#known.get(pairOf(attempt));
    if (known !== undefined)
      return { known, failures: this.#recent(known.failures), budgets: [known.budget] };
    const network = networkOf(attempt.address);
    const failures = this.#recent(this.#networks.get(network));
    if (network === 'loopback') return { failures, budgets: [this.#loopback] };
    if (failures.count === 0) return { failures, budgets: [this.#first] };
    return { failures, budgets: [this.#userBudget(attempt.user), this.#repeated] };
  }

  #recent(failures: Failures = NONE): Failures {
    return this.#clock.nowMs() - failures.lastMs < FORGET_MS ? failures : NONE;
  }

  #userBudget(user: string): TokenBucket {
    const name = digest(user);
    const budget = this.#users.get(name) ?? this.#createBudget(USER_FAILURES);
    putLast(this.#users, name, budget, MAX_ENTRIES);
    return budget;
  }

  #createBudget(rate: { readonly burst: number; readonly perSecond: number }): TokenBucket {
    return new TokenBucket({ ...rate, nowMs: this.#clock.nowMs() });
  }
}

/** Milliseconds from the last of so many failures to the next attempt. */
function delayAfter(count: number): number {
  if (count < FREE_FAILURES) return 0;
  return Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** (count - FREE_FAILURES));
}

function pairOf({ address, user }: Attempt): string {
  return `${networkOf(address)} ${digest(user)}`;
}

/** Of one length, however long the name. */
function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64');
}

/** Sets an entry as the last one, and drops the first beyond a number. */
function putLast<T>(map: Map<string, T>, key: string, value: T, maxEntries: number): void {
  map.delete(key);
  map.set(key, value);
  for (const first of map.keys()) {
    if (map.size <= maxEntries) break;
    map.delete(first);
  }
}
