import { createHash, timingSafeEqual } from 'node:crypto';
import type { Request } from 'express';
import { ipKeyGenerator, MemoryStore, type Options } from 'express-rate-limit';
import type { Counter } from 'prom-client';
import QuickLRU from 'quick-lru';
import { isLoopback } from '../runtime/address.ts';
import type { Logger } from '../runtime/log.ts';
import { metricsIn, type Registry } from '../runtime/metrics.ts';
import { addressOf } from './request-checks.ts';

/** Who sends a request. */
export interface Caller {
  readonly user: string;
  /** Whoever may not only reads. */
  readonly mayAct: boolean;
}

interface Account extends Caller {
  readonly password: string;
}

export interface PasswordCheckOptions {
  readonly accounts: readonly Account[];
  readonly log: Logger;
  readonly metrics: Registry;
  /** How long wrong passwords count; a minute if absent. */
  readonly failureWindowMs?: number;
}

interface Verdict {
  /** Whose user and password it is; undefined: nobody's, or they were not looked at. */
  readonly caller: Caller | undefined;
  /** How long who is limited has to wait; otherwise 0. */
  readonly waitSeconds: number;
}

/** Wrong passwords within the window of one network, or of a user where that user has logged in. */
export const OWN_FAILURES = 5;
/** The same of all networks that have sent none in the last hour, and of all that have: a right
 * password from elsewhere is accepted while others guess. */
export const SHARED_FAILURES = 30;
const WINDOW_MS = 60_000;
const FAILED_MS = 3_600_000;
/** The /64 of an IPv6 address is likely to be one person's. */
const IPV6_PREFIX_BITS = 64;

/** A count of wrong passwords, and how many there may be. */
interface Limit {
  readonly key: string;
  readonly max: number;
}

/** Checks the user and password of a request, counts the results, and limits the wrong ones.
 * Somebody who is limited is refused even with the right password, so that the answer to a guess
 * says nothing. */
export class PasswordCheck {
  readonly #log: Logger;
  readonly #accounts: readonly Account[];
  readonly #results: Counter<'result'>;
  readonly #failures = new MemoryStore();
  /** Networks that have sent a wrong password. */
  readonly #failed = new QuickLRU<string, true>({ maxSize: 10_000, maxAge: FAILED_MS });
  /** Networks and users that have logged in from there. */
  readonly #known = new QuickLRU<string, true>({ maxSize: 1_000 });

  constructor({ accounts, log, metrics, failureWindowMs = WINDOW_MS }: PasswordCheckOptions) {
    this.#log = log;
    this.#accounts = accounts;
    this.#failures.init({ windowMs: failureWindowMs } as Options);
    this.#results = metricsIn(metrics).counter(
      'sutler_dashboard_logins_total',
      'Passwords sent to the dashboard, HTTP basic included, by result: ok, wrong, limited.',
      ['result'],
    );
    for (const result of ['ok', 'wrong', 'limited']) this.#results.inc({ result }, 0);
  }

  /** Who is limited is refused even with the right password. */
  async check(request: Request, user: string, password: string): Promise<Verdict> {
    const address = addressOf(request);
    const network = networkOf(address);
    const limits = this.#limitsOf(network, user);
    const waitMs = await this.#waitMs(limits);
    const account = waitMs > 0 ? undefined : this.#find(user, password);
    const result = waitMs > 0 ? 'limited' : account === undefined ? 'wrong' : 'ok';
    this.#results.inc({ result });
    if (result === 'ok') this.#known.set(pairOf(network, user), true);
    if (result === 'wrong') {
      this.#failed.set(network, true);
      for (const { key } of limits) await this.#failures.increment(key);
      this.#log.warn({ address, path: request.path }, 'dashboard: wrong user or password');
    }
    const caller = account && { user, mayAct: account.mayAct };
    return { caller, waitSeconds: Math.ceil(waitMs / 1000) };
  }

  /** What strangers elsewhere do neither counts over loopback, as through kubectl port-forward, nor
   * where the user has logged in before. */
  #limitsOf(network: string, user: string): readonly Limit[] {
    const pair = pairOf(network, user);
    if (this.#known.has(pair)) return [{ key: pair, max: OWN_FAILURES }];
    const own = { key: network, max: OWN_FAILURES };
    if (network === 'loopback') return [own];
    const key = this.#failed.has(network) ? 'all that failed' : 'all others';
    return [own, { key, max: SHARED_FAILURES }];
  }

  /** How long to wait before a password is looked at; 0 if it may be now. */
  async #waitMs(limits: readonly Limit[]): Promise<number> {
    const waits = await Promise.all(
      limits.map(async ({ key, max }) => {
        const { totalHits = 0, resetTime } = (await this.#failures.get(key)) ?? {};
        return totalHits < max ? 0 : Math.max(1, (resetTime?.getTime() ?? 0) - Date.now());
      }),
    );
    return Math.max(...waits);
  }

  /** Takes the same time however many characters are right. */
  #find(user: string, password: string): Account | undefined {
    const matches = this.#accounts.map((account) => {
      const isUser = isEqual(user, account.user);
      return isEqual(password, account.password) && isUser;
    });
    return this.#accounts[matches.indexOf(true)];
  }
}

/** The network of an address, as far as one person is likely to have all of it. */
function networkOf(address: string): string {
  const network = ipKeyGenerator(address.split('%')[0] ?? address, IPV6_PREFIX_BITS);
  return isLoopback(network) || address === '::1' ? 'loopback' : network;
}

/** Of one length, however long the name. */
function pairOf(network: string, user: string): string {
  return `${network} ${digest(user).toString('base64')}`;
}

function isEqual(given: string, expected: string): boolean {
  return timingSafeEqual(digest(given), digest(expected));
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
