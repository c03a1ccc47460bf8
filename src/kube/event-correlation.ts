import { createHash } from 'node:crypto';
import { Lru } from './lru.ts';
import { TokenBucket } from './token-bucket.ts';

/** The object that an event is about. */
export interface Regarding {
  readonly kind: string;
  readonly apiVersion: string;
  readonly namespace?: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion?: string;
}

export interface EventInput {
  readonly regarding: Regarding;
  readonly type: 'Normal' | 'Warning';
  /** CamelCase word. */
  readonly reason: string;
  readonly message: string;
  /** Instead of the recorder's own. */
  readonly component?: string;
  /** Is not dropped for the rate of Normal events, and goes before them. */
  readonly isAlwaysTold?: true;
}

/** One event object, made or to be made, with what is still untold about it. */
export interface Series {
  readonly input: EventInput;
  message: string;
  count: number;
  readonly firstMs: number;
  lastMs: number;
  /** Name of the object at the API server; undefined: not written yet. */
  name: string | undefined;
  writtenCount: number;
  writtenAtMs: number;
  /** Waiting to be written, or being written: repeats are only counted. */
  isPending: boolean;
}

export type Verdict =
  | { readonly kind: 'write'; readonly series: Series }
  /** Counted in a series that is waiting to be written, or was written a moment ago. */
  | { readonly kind: 'coalesced' }
  | { readonly kind: 'spam' };

export interface CorrelatorOptions {
  /** An event that repeats is written again at most this often; a changed message is a new event at
   * once. */
  readonly repeatAfterMs: number;
}

/** Per object and type, as client-go has it: so many at once, then one every five minutes. */
const SPAM = { burst: 25, perSecond: 1 / 300 };
/** So many different messages of one reason, none more than ten minutes after the one before,
 * become one event. */
const SIMILAR = { most: 10, withinMs: 600_000, prefix: '(combined from similar events): ' };
const MEMORY = 4096;
/** The API server takes more; this is far more than anybody reads. */
const MAX_MESSAGE_LENGTH = 65_536;
/** Longer messages are remembered by their digest. */
const MAX_KEY_LENGTH = 256;

/** Decides what of a stream of events is worth a request. Remembers a bounded number of objects. */
export class EventCorrelator {
  readonly #series = new Lru<string, Series>(MEMORY);
  readonly #similar = new Lru<string, { readonly messages: Set<string>; lastMs: number }>(MEMORY);
  readonly #spam = new Lru<string, TokenBucket>(MEMORY);
  readonly #options: CorrelatorOptions;

  constructor(options: CorrelatorOptions) {
    this.#options = options;
  }

  take(event: EventInput, nowMs: number): Verdict {
    const { regarding, type, reason, component } = event;
    const object = JSON.stringify([
      component,
      regarding.apiVersion,
      regarding.kind,
      regarding.namespace,
      regarding.name,
      regarding.uid,
      type,
    ]);
    const message = shorten(event.message);
    const told =
      message.length <= MAX_KEY_LENGTH
        ? message
        : createHash('sha256').update(message).digest('base64');
    const isCombined = this.#isCombined(JSON.stringify([object, reason]), told, nowMs);
    const key = JSON.stringify(isCombined ? [object, reason] : [object, reason, told]);
    const known = this.#series.get(key);
    if (known)
      return this.#again(known, isCombined ? SIMILAR.prefix + message : message, { object, nowMs });
    if (!this.#maySpend(object, nowMs)) return { kind: 'spam' };
    const series: Series = {
      input: { ...event, message },
      message: isCombined ? SIMILAR.prefix + message : message,
      count: 1,
      firstMs: nowMs,
      lastMs: nowMs,
      name: undefined,
      writtenCount: 0,
      writtenAtMs: -Infinity,
      isPending: false,
    };
    this.#series.set(key, series);
    return { kind: 'write', series };
  }

  #again(
    series: Series,
    message: string,
    { object, nowMs }: { object: string; nowMs: number },
  ): Verdict {
    series.count++;
    series.lastMs = nowMs;
    series.message = message;
    if (series.isPending || nowMs - series.writtenAtMs < this.#options.repeatAfterMs)
      return { kind: 'coalesced' };
    return this.#maySpend(object, nowMs) ? { kind: 'write', series } : { kind: 'spam' };
  }

  #isCombined(key: string, message: string, nowMs: number): boolean {
    let similar = this.#similar.get(key);
    if (similar === undefined || nowMs - similar.lastMs > SIMILAR.withinMs) {
      similar = { messages: new Set(), lastMs: nowMs };
      this.#similar.set(key, similar);
    }
    similar.lastMs = nowMs;
    if (similar.messages.has(message)) return false;
    if (similar.messages.size >= SIMILAR.most - 1) return true;
    similar.messages.add(message);
    return false;
  }

  #maySpend(object: string, nowMs: number): boolean {
    let bucket = this.#spam.get(object);
    if (bucket === undefined) {
      bucket = new TokenBucket({ ...SPAM, nowMs });
      this.#spam.set(object, bucket);
    }
    return bucket.take(nowMs);
  }
}

function shorten(message: string): string {
  return message.length <= MAX_MESSAGE_LENGTH
    ? message
    : `${message.slice(0, MAX_MESSAGE_LENGTH - 1)}…`;
}
