import QuickLRU from 'quick-lru';
import { createHash } from 'node:crypto';
import { escapeControls, shorten } from '../runtime/printable.ts';
import { TokenBucket } from '../runtime/token-bucket.ts';

/** The object of an event. */
export interface Regarding {
  readonly kind: string;
  readonly apiVersion: string;
  readonly namespace?: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion?: string;
}

/** What an event on a claim is about. */
export function regardingClaim(claim: Omit<Regarding, 'kind' | 'apiVersion'>): Regarding {
  const { namespace = '', name, uid, resourceVersion } = claim;
  const object = { kind: 'PersistentVolumeClaim', apiVersion: 'v1', namespace, name, uid };
  return resourceVersion === undefined ? object : { ...object, resourceVersion };
}

export interface EventInput {
  readonly regarding: Regarding;
  readonly type: 'Normal' | 'Warning';
  /** One word in CamelCase. */
  readonly reason: string;
  readonly message: string;
  /** Comes after the message, and is not cut where that is too long. */
  readonly nextStep?: string;
  /** The reporter, if it is not the recorder's component. */
  readonly component?: string;
  /** Exempts a Normal event from the rate limit, and writes it before other Normal events. */
  readonly isAlwaysTold?: true;
}

/** An Event object that exists or is to be created, and what has been counted since the last
 * write. */
export interface Series {
  readonly input: EventInput;
  /** Name of the Event object, by what it says about which object: all processes that report the
   * same write one Event. */
  readonly name: string;
  message: string;
  count: number;
  readonly firstMs: number;
  lastMs: number;
  /** The count that was written last; 0 until the Event object was. */
  writtenCount: number;
  writtenAtMs: number;
  /** Whether it is queued or being written; repeats are only counted then. */
  isPending: boolean;
}

/** Events per object and type: 25 at once, then one every five minutes, as in client-go
 * tools/record/events_cache.go. */
const SPAM = { burst: 25, perSecond: 1 / 300 };
/** From the tenth different message of one reason on, messages are combined into one event, until
 * none came for ten minutes. */
const SIMILAR = { most: 10, withinMs: 600_000, prefix: '(combined from similar events): ' };
const MEMORY = 4096;
/** Longer messages are cut: events.k8s.io allows 1,024, and the whole length is told behind. */
const MAX_MESSAGE_LENGTH = 1_000;
/** Longer messages are stored as a digest. */
const MAX_KEY_LENGTH = 256;

/** Decides which events are written and which are only counted or dropped. Remembers a limited
 * number of objects. */
export class EventCorrelator {
  readonly #series = new QuickLRU<string, Series>({ maxSize: MEMORY });
  readonly #similar = new QuickLRU<string, { readonly messages: Set<string>; lastMs: number }>({
    maxSize: MEMORY,
  });
  readonly #spam = new QuickLRU<string, TokenBucket>({ maxSize: MEMORY });
  readonly #repeatAfterMs: number;

  /** @param repeatAfterMs  least time between two writes of a repeating event; one with another
   *                        message is written at once */
  constructor(repeatAfterMs: number) {
    this.#repeatAfterMs = repeatAfterMs;
  }

  /** @returns what is to be written; 'coalesced': the event is counted in a series that is pending
   *   or was written within `repeatAfterMs` */
  take(event: EventInput, nowMs: number): Series | 'coalesced' | 'dropped-spam' {
    const { regarding, type, reason, component, nextStep = '' } = event;
    const object = JSON.stringify([
      component,
      regarding.apiVersion,
      regarding.kind,
      regarding.namespace,
      regarding.name,
      regarding.uid,
      type,
    ]);
    // Line breaks and tabs are harmless in an event.
    const escaped = event.message.replaceAll(/[^\n\t]+/g, escapeControls);
    const plainMessage = shorten(escaped, MAX_MESSAGE_LENGTH - nextStep.length) + nextStep;
    const messageKey =
      plainMessage.length <= MAX_KEY_LENGTH
        ? plainMessage
        : createHash('sha256').update(plainMessage).digest('base64');
    const isCombined = this.#isCombined(JSON.stringify([object, reason]), messageKey, nowMs);
    const key = JSON.stringify(isCombined ? [object, reason] : [object, reason, messageKey]);
    const message = isCombined ? SIMILAR.prefix + plainMessage : plainMessage;
    const known = this.#series.get(key);
    if (known) {
      known.count++;
      known.lastMs = nowMs;
      known.message = message;
      if (known.isPending || nowMs - known.writtenAtMs < this.#repeatAfterMs) return 'coalesced';
    }
    if (!this.#isWithinRate(object, nowMs)) return 'dropped-spam';
    if (known) return known;
    const series: Series = {
      input: { ...event, message },
      message,
      count: 1,
      firstMs: nowMs,
      lastMs: nowMs,
      name: eventName(regarding, isCombined ? [type, reason] : [type, reason, messageKey]),
      writtenCount: 0,
      writtenAtMs: -Infinity,
      isPending: false,
    };
    this.#series.set(key, series);
    return series;
  }

  /** Whether the reason has had too many different messages, so that this one is combined. */
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

  #isWithinRate(object: string, nowMs: number): boolean {
    let bucket = this.#spam.get(object);
    if (bucket === undefined) {
      bucket = new TokenBucket({ ...SPAM, nowMs });
      this.#spam.set(object, bucket);
    }
    return bucket.take(nowMs);
  }
}

/** `OBJECT.DIGEST`, of the form that other components give events. */
function eventName({ name, uid }: Regarding, what: readonly string[]): string {
  const digest = createHash('sha256').update(JSON.stringify([uid, ...what]));
  const begin = name.slice(0, 253 - 17).replace(/[-.]+$/, '');
  return `${begin}.${digest.digest('hex').slice(0, 16)}`;
}
