import { Code } from '#src/csi/status.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { DriverStatus } from './driver-status.ts';

/** Lets one call at a time work on a name or handle. Refuses a second call with Aborted, as many
 * real drivers do. */
export class OperationLocks {
  readonly #busy = new Set<string>();
  readonly #options: { readonly clock: Clock; readonly delayMs: number };

  /** @param options.delayMs  minimum time of each operation */
  constructor(options: { readonly clock: Clock; readonly delayMs: number }) {
    this.#options = options;
  }

  /** @throws DriverStatus Aborted while an operation is under way */
  checkFree(what: string): void {
    if (this.#busy.has(what))
      throw new DriverStatus(Code.Aborted, `an operation on ${what} is under way`);
  }

  /** @throws DriverStatus Aborted while another operation is under way */
  async run<T>(what: string, work: () => T): Promise<T> {
    this.checkFree(what);
    this.#busy.add(what);
    try {
      const { clock, delayMs } = this.#options;
      // As in real storage, the work goes on after the caller has given up.
      if (delayMs > 0) await clock.sleep(delayMs);
      return work();
    } finally {
      this.#busy.delete(what);
    }
  }
}
