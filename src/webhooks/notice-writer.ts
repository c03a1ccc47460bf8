import type { ChangeNotice } from './change-notice.ts';

/** Hints that wait for Redis; further ones are refused. */
const MAX_WAITING = 10_000;
/** How long somebody waits for a hint to be stored. */
const WAIT_MS = 2_000;

/** The hint is not stored, or it is not known whether it is. */
export class HintsUnavailable extends Error {
  override readonly name = 'HintsUnavailable';
}

/** Stores hints in Redis, in bounded number and time. */
export class NoticeWriter {
  readonly #append: (hints: readonly ChangeNotice[]) => Promise<void>;
  readonly #trouble: () => string | undefined;
  #waiting = 0;

  /** @param o.trouble  why Redis can't be reached; undefined while it can */
  constructor(o: {
    readonly append: (hints: readonly ChangeNotice[]) => Promise<void>;
    readonly trouble: () => string | undefined;
  }) {
    this.#append = o.append;
    this.#trouble = o.trouble;
  }

  /** Resolves when all hints are stored.
   * @throws HintsUnavailable if they can't be stored now */
  async write(hints: readonly ChangeNotice[]): Promise<void> {
    const trouble = this.#trouble();
    if (trouble !== undefined) throw new HintsUnavailable(trouble);
    if (this.#waiting + hints.length > MAX_WAITING)
      throw new HintsUnavailable('too many hints wait for Redis');
    this.#waiting += hints.length;
    const stored = this.#append(hints).finally(() => (this.#waiting -= hints.length));
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const text = `Redis did not answer within ${WAIT_MS / 1000} s`;
      timer = setTimeout(() => reject(new HintsUnavailable(text)), WAIT_MS);
    });
    try {
      await Promise.race([stored, late]);
    } catch (cause) {
      if (cause instanceof HintsUnavailable) throw cause;
      throw new HintsUnavailable('Redis did not take a hint', { cause });
    } finally {
      clearTimeout(timer);
    }
  }
}
