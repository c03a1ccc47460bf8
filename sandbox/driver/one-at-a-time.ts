import { Code } from '#src/csi/status.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { DriverStatus } from './driver-status.ts';

/** Lets one call work on a name or handle; as many real drivers do, it tells a second one to come
 * again. */
export class OneAtATime {
  readonly #busy = new Set<string>();
  readonly #clock: Clock;
  readonly #delayMs: number;

  /** @param options.delayMs  how long each piece of work takes, at least; an answer that needs none
   *                         comes at once */
  constructor(options: { readonly clock: Clock; readonly delayMs: number }) {
    this.#clock = options.clock;
    this.#delayMs = options.delayMs;
  }

  /** @throws DriverStatus Aborted while work on that is under way */
  mustBeFree(what: string): void {
    if (this.#busy.has(what))
      throw new DriverStatus(Code.Aborted, `an operation on ${what} is under way`);
  }

  /** @throws DriverStatus Aborted while other work on the same thing is under way */
  async run<T>(what: string, work: () => T): Promise<T> {
    this.mustBeFree(what);
    this.#busy.add(what);
    try {
      // Like real storage, the work goes on whether or not the caller still waits.
      if (this.#delayMs > 0) await this.#clock.sleep(this.#delayMs);
      return work();
    } finally {
      this.#busy.delete(what);
    }
  }
}
