import { createHash, timingSafeEqual } from 'node:crypto';
import type { Request } from 'express';
import { Counter, type Registry } from 'prom-client';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { FailureLimit } from './failure-limit.ts';
import { addressOf } from './proxies.ts';

export interface PasswordCheckOptions {
  readonly user: string;
  readonly password: string;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly clock: Clock;
}

export interface Verdict {
  readonly result: 'ok' | 'wrong' | 'limited';
  /** How long who is limited has to wait; otherwise 0. */
  readonly waitSeconds: number;
}

/** Checks the user and password of a request, counts the results, and limits the failures. */
export class PasswordCheck {
  readonly #log: Logger;
  readonly #limit: FailureLimit;
  readonly #user: Buffer;
  readonly #password: Buffer;
  readonly #results: Counter<'result'>;

  constructor({ user, password, log, metrics, clock }: PasswordCheckOptions) {
    this.#log = log;
    this.#limit = new FailureLimit(clock);
    this.#user = digest(user);
    this.#password = digest(password);
    this.#results = new Counter({
      name: 'sutler_dashboard_logins_total',
      help: 'Passwords sent to the dashboard, HTTP basic included, by result: ok, wrong, limited.',
      labelNames: ['result'],
      registers: [metrics],
    });
  }

  /** Who is limited is refused even with the right password. */
  check(request: Request, user: string, password: string): Verdict {
    const attempt = { address: addressOf(request), user };
    const waitMs = this.#limit.waitMs(attempt);
    const isRight = waitMs === 0 && this.#isRight(user, password);
    const result = waitMs > 0 ? 'limited' : isRight ? 'ok' : 'wrong';
    this.#results.inc({ result });
    if (result === 'ok') this.#limit.countSuccess(attempt);
    if (result === 'wrong') {
      this.#limit.countFailure(attempt);
      const { path } = request;
      this.#log.warn({ address: attempt.address, path }, 'dashboard: wrong user or password');
    }
    return { result, waitSeconds: Math.ceil(waitMs / 1000) };
  }

  /** Takes the same time however many characters are right. */
  #isRight(user: string, password: string): boolean {
    const isUser = timingSafeEqual(digest(user), this.#user);
    return timingSafeEqual(digest(password), this.#password) && isUser;
  }
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
