import { createHash, timingSafeEqual } from 'node:crypto';
import type { Request, Response } from 'express';
import { Counter, type Registry } from 'prom-client';
import type { Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import { FailureLimit } from './failure-limit.ts';

export interface PasswordCheckOptions {
  readonly user: string;
  readonly password: string;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly clock: Clock;
}

/** Checks the user and password of a request, counts the results, and limits the failures of each
 * address. */
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

  /** A limited address is refused even with the right password. */
  check({ socket, path }: Request, user: string, password: string): 'ok' | 'wrong' | 'limited' {
    const address = socket.remoteAddress ?? '';
    const verdict =
      this.#limit.waitMs(address) > 0 ? 'limited' : this.#isRight(user, password) ? 'ok' : 'wrong';
    if (verdict === 'ok') this.#limit.clear(address);
    if (verdict === 'wrong') {
      this.#limit.countFailure(address);
      this.#log.warn({ address, path }, 'dashboard: wrong user or password');
    }
    this.#results.inc({ result: verdict });
    return verdict;
  }

  /** Sets status and headers of the answer to a limited address. */
  limit({ socket }: Request, response: Response): Response {
    const seconds = Math.ceil(this.#limit.waitMs(socket.remoteAddress ?? '') / 1000);
    return response.status(429).set('retry-after', String(Math.max(1, seconds)));
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
