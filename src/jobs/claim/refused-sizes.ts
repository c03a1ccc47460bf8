import type { Clock } from '../../runtime/clock.ts';

/** How long a driver that refused a volume for want of room counts as too small for it. */
const REFUSAL_MS = 30_000;

/** The sizes that the driver has refused for want of room a short time ago, whatever it says about
 * its capacity. Classes may have storage of their own, so each has a size of its own. */
export class RefusedSizes {
  readonly #clock: Clock;
  readonly #byClass = new Map<string, { readonly bytes: bigint; readonly untilMs: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  note(className: string, bytes: bigint): void {
    const untilMs = this.#clock.nowMs() + REFUSAL_MS;
    this.#byClass.set(className, { bytes, untilMs });
  }

  /** Whether a volume of this class and size, or of a smaller one, was refused. */
  includes(className: string, bytes: bigint): boolean {
    const refused = this.#byClass.get(className);
    return refused !== undefined && bytes >= refused.bytes && this.#clock.nowMs() < refused.untilMs;
  }
}
