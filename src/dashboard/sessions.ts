import { createHash, randomBytes } from 'node:crypto';
import type { Clock } from '../runtime/clock.ts';

/** How long a login lasts. */
export const SESSION_MS = 12 * 3_600_000;
/** Beyond this number, the oldest session ends. */
const MAX_SESSIONS = 1000;

/** Sessions of logged-in browsers. They are in memory, so a restart ends them. */
export class Sessions {
  readonly #clock: Clock;
  /** By the token's digest, so that the time of a look-up reveals nothing about a token. The oldest
   * session first. */
  readonly #endsAtMs = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @returns the token, which is not stored here */
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
    return (this.#endsAtMs.get(digest(token)) ?? 0) > this.#clock.nowMs();
  }

  end(token: string): void {
    this.#endsAtMs.delete(digest(token));
  }
}

function digest(token: string): string {
  return createHash('sha256').update(token).digest('base64');
}
