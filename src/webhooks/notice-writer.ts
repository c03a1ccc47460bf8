import type { ChangeNotice } from './change-notice.ts';

/** Hints that go to Redis with one command. */
const MAX_AT_ONCE = 1_000;
/** Hints that wait for Redis; further ones are refused. */
const MAX_WAITING = 10_000;
/** How long somebody waits for a hint to be stored. */
const WAIT_MS = 2_000;

/** The hint is not stored, or it is not known whether it is. */
export class HintsUnavailable extends Error {
  override readonly name = 'HintsUnavailable';
}

/** Hints that are stored together. */
interface Batch {
  /** By what they name, so that equal ones are stored once. */
  readonly hints: Map<string, ChangeNotice>;
  readonly stored: Promise<void>;
  readonly settle: (stored: Promise<void>) => void;
}

/** Stores hints in Redis: those that arrive while a command is under way go together with the
 * next one. */
export class NoticeWriter {
  readonly #append: (hints: readonly ChangeNotice[]) => Promise<void>;
  readonly #trouble: () => string | undefined;
  /** The last one still takes hints. */
  readonly #batches: Batch[] = [];
  #isWriting = false;

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
    const waiting = this.#batches.reduce((sum, batch) => sum + batch.hints.size, 0);
    if (waiting + hints.length > MAX_WAITING)
      throw new HintsUnavailable('too many hints wait for Redis');
    const batches = new Set(hints.map((hint) => this.#add(hint)));
    if (!this.#isWriting) void this.#writeAll();
    await withinTime([...batches].map(({ stored }) => stored));
  }

  #add(hint: ChangeNotice): Batch {
    let batch = this.#batches.at(-1);
    if (batch === undefined || batch.hints.size >= MAX_AT_ONCE) {
      batch = createBatch();
      this.#batches.push(batch);
    }
    const { resource, namespace, name, isEarly } = hint;
    batch.hints.set(`${resource}/${namespace}/${name}/${isEarly}`, hint);
    return batch;
  }

  async #writeAll(): Promise<void> {
    this.#isWriting = true;
    for (let batch = this.#batches.shift(); batch !== undefined; batch = this.#batches.shift()) {
      const stored = this.#append([...batch.hints.values()]);
      batch.settle(stored);
      await stored.catch(() => undefined);
    }
    this.#isWriting = false;
  }
}

function createBatch(): Batch {
  let settle: Batch['settle'] = () => undefined;
  const stored = new Promise<void>((resolve) => (settle = resolve));
  // Those who wait may have given up.
  stored.catch(() => undefined);
  return { hints: new Map(), stored, settle };
}

async function withinTime(stored: readonly Promise<void>[]): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const text = `Redis did not answer within ${WAIT_MS / 1000} s`;
    timer = setTimeout(() => reject(new HintsUnavailable(text)), WAIT_MS);
  });
  try {
    await Promise.race([Promise.all(stored), late]);
  } catch (cause) {
    if (cause instanceof HintsUnavailable) throw cause;
    throw new HintsUnavailable('Redis did not take a hint', { cause });
  } finally {
    clearTimeout(timer);
  }
}
