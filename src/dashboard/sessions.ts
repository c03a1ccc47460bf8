import { createHash, randomBytes } from 'node:crypto';
import type { Clock } from '../runtime/clock.ts';

/** How long a login lasts. */
export const SESSION_MS = 12 * 3_600_000;

/** Enough for every browser of a team; the oldest login ends first. */
const MAX_SESSIONS = 1000;

/** Logins of browsers, in memory: a restart ends them all. */
export class Sessions {
  readonly #clock: Clock;
  /** By digest, so that how long a look-up takes says nothing about a token. Insertion order is
   * age. */
  readonly #endsAtMs = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @returns the token, which only the browser keeps */
  open(): string {
    const token = randomBytes(32).toString('base64url');
    this.#endsAtMs.set(digest(token), this.#clock.nowMs() + SESSION_MS);
    for (const oldest of this.#endsAtMs.keys()) {
      if (this.#endsAtMs.size <= MAX_SESSIONS) break;
      this.#endsAtMs.delete(oldest);
    }
    return token;
  }

  isOpen(token: string): boolean {
    const key = digest(token);
    const endsAtMs = this.#endsAtMs.get(key);
    if (endsAtMs === undefined) return false;
    if (endsAtMs > this.#clock.nowMs()) return true;
    this.#endsAtMs.delete(key);
    return false;
  }

  end(token: string): void {
    this.#endsAtMs.delete(digest(token));
  }
}

function digest(token: string): string {
  return createHash('sha256').update(token).digest('base64');
}
