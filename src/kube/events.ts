import QuickLRU from 'quick-lru';
import { hash, randomUUID } from 'node:crypto';
import type { Counter, Registry } from 'prom-client';
import { type Clock, systemClock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { metricsIn } from '../runtime/metrics.ts';
import { escapeControls, shorten } from '../runtime/printable.ts';
import { TokenBucket } from '../runtime/token-bucket.ts';
import type { KubeClient } from './client.ts';
import { isAlreadyExists, isNotFound, isOutage, KubeError } from './kube-error.ts';
import type { Event } from './objects.ts';
import { events } from './resources.ts';

/** The object of an event. */
export interface Regarding {
  readonly kind: string;
  readonly apiVersion: string;
  readonly namespace?: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion?: string;
}

/** Makes the `regarding` of an event about a claim. */
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
  /** Appended to the message. Never cut, even if the message is. */
  readonly nextStep?: string;
  /** The reporter, if it is not the recorder's component. */
  readonly component?: string;
  /** Exempts a Normal event from the rate limit, and writes it before other Normal events. */
  readonly isAlwaysTold?: true;
}

/** An Event object, whether the API server has it yet or not, and the number of its repeats. */
interface Series {
  readonly event: Event;
  count: number;
  lastMs: number;
  /** -Infinity before the first write. */
  writtenAtMs: number;
  /** Whether it is queued or being written. Meanwhile repeats are only counted. */
  isPending: boolean;
}

/** Normal events above this rate are dropped. Warnings have no such limit. */
const NORMALS = { burst: 500, perSecond: 50 };
/** Events per object and type: 25 at once, then one every five minutes, as in client-go
 * tools/record/events_cache.go. */
const SPAM = { burst: 25, perSecond: 1 / 300 };
/** Minimum time between two writes of a repeating event. */
const REPEAT_AFTER_MS = 10_000;
const RETRY_AFTER_MS = 5_000;
const MAX_TRIES = 12;
/** Length of each queue: one holds Normal events, the other one all others. */
const MAX_QUEUED = 2_000;
const MAX_REMEMBERED = 4_096;
const CONCURRENT_WRITES = 2;
const CLOSE_GRACE_MS = 2_000;
const TIMEOUT_MS = 10_000;
/** Longer messages are cut, and end with their full length. events.k8s.io allows 1,024. */
const MAX_MESSAGE_LENGTH = 1_000;

type Result =
  'created' | 'updated' | 'coalesced' | 'dropped-rate' | 'dropped-full' | 'dropped-spam' | 'failed';

/** The component of a driver's events, formatted as upstream does: driver, host and a UUID of this
 * process. */
export function eventComponent(
  driver: string,
  env: Readonly<Record<string, string | undefined>>,
): string {
  return `${driver}_${env['HOSTNAME'] ?? 'local'}_${randomUUID()}`;
}

/** Records Kubernetes Events. Never blocks or throws; drops events rather than delay other work.
 * Equal events become one Event object, whose count grows. Sends up to two requests, Warnings
 * first. */
export class EventRecorder {
  readonly #client: Pick<KubeClient, 'create' | 'patch'>;
  readonly #component: string;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #results: Counter<'type' | 'result'>;
  readonly #series = new QuickLRU<string, Series>({ maxSize: MAX_REMEMBERED });
  readonly #spam = new QuickLRU<string, TokenBucket>({ maxSize: MAX_REMEMBERED });
  readonly #normalRate: TokenBucket;
  readonly #urgent = new Set<Series>();
  readonly #normals = new Set<Series>();
  readonly #stopped = new AbortController();
  #activeWorkers = 0;
  #onIdle: (() => void) | undefined;
  #isClosed = false;

  /** @param o.component  source.component and reportingComponent */
  constructor(o: {
    readonly client: Pick<KubeClient, 'create' | 'patch'>;
    readonly component: string;
    readonly log: Logger;
    readonly metrics: Registry;
    readonly clock?: Clock;
  }) {
    this.#client = o.client;
    this.#component = o.component;
    this.#log = o.log;
    this.#clock = o.clock ?? systemClock;
    this.#normalRate = new TokenBucket({ ...NORMALS, nowMs: this.#clock.nowMs() });
    this.#results = metricsIn(o.metrics).counter(
      'sutler_kube_events_total',
      'Kubernetes Events by type and result.',
      ['type', 'result'],
    );
  }

  record(event: EventInput): void {
    if (this.#isClosed) return;
    try {
      const lost = this.#enqueue(event);
      if (lost !== undefined) return this.#count(event, lost);
      const { regarding, type, reason } = event;
      const { name: object, namespace } = regarding;
      this.#log.debug({ object, namespace, type, reason }, 'event');
      if (this.#activeWorkers >= CONCURRENT_WRITES) return;
      this.#activeWorkers += 1;
      void this.#drain();
    } catch (error) {
      this.#log.error({ err: error, reason: event.reason }, 'event not recorded');
    }
  }

  /** Writes the queued events within the given time, and drops the others. */
  async close(graceMs = CLOSE_GRACE_MS): Promise<void> {
    this.#isClosed = true;
    if (this.#activeWorkers > 0) {
      const timer = setTimeout(
        () => this.#stopped.abort(new Error('the event recorder is closed')),
        graceMs,
      );
      await new Promise<void>((resolve) => (this.#onIdle = resolve));
      clearTimeout(timer);
    }
    this.#stopped.abort();
  }

  /** @returns undefined if the event is queued, otherwise its result */
  #enqueue(event: EventInput): Result | undefined {
    const nowMs = this.#clock.nowMs();
    const isLimited = event.type === 'Normal' && event.isAlwaysTold !== true;
    // Under load most events end here, before they use any memory.
    if (isLimited && this.#normalRate.waitMs(nowMs) > 0) return 'dropped-rate';
    const series = this.#seriesOf(event, nowMs);
    series.count += 1;
    series.lastMs = nowMs;
    if (series.isPending || nowMs - series.writtenAtMs < REPEAT_AFTER_MS) return 'coalesced';
    if (!this.#isWithinRate(event, nowMs)) return 'dropped-spam';
    const queue = isLimited ? this.#normals : this.#urgent;
    if (queue.size >= MAX_QUEUED) return 'dropped-full';
    if (isLimited) this.#normalRate.take(nowMs);
    series.isPending = true;
    queue.add(series);
    return undefined;
  }

  #seriesOf(input: EventInput, nowMs: number): Series {
    const event = toEvent(input, input.component ?? this.#component, nowMs);
    const { name } = event.metadata;
    const known = this.#series.get(name);
    if (known !== undefined) return known;
    const series = { event, count: 0, lastMs: nowMs, writtenAtMs: -Infinity, isPending: false };
    this.#series.set(name, series);
    return series;
  }

  #isWithinRate({ regarding, type }: EventInput, nowMs: number): boolean {
    const key = `${type} ${regarding.uid}`;
    const bucket = this.#spam.get(key) ?? new TokenBucket({ ...SPAM, nowMs });
    this.#spam.set(key, bucket);
    if (bucket.waitMs(nowMs) > 0) return false;
    bucket.take(nowMs);
    return true;
  }

  #count({ type }: Pick<EventInput, 'type'>, result: Result): void {
    this.#results.inc({ type, result });
  }

  #next(): Series | undefined {
    const queue = this.#urgent.size > 0 ? this.#urgent : this.#normals;
    const [first] = queue;
    if (first !== undefined) queue.delete(first);
    return first;
  }

  async #drain(): Promise<void> {
    for (let series = this.#next(); series !== undefined; series = this.#next()) {
      if (this.#stopped.signal.aborted) break;
      await this.#write(series);
      series.isPending = false;
    }
    this.#activeWorkers -= 1;
    if (this.#activeWorkers === 0) this.#onIdle?.();
  }

  /** Writes one event; retries during outages. Never throws. */
  async #write(series: Series): Promise<void> {
    const { event } = series;
    for (let tries = 1; ; tries++) {
      try {
        // More repeats may be counted while the request is under way.
        const { lastMs } = series;
        const result = await this.#writeOnce(series);
        series.writtenAtMs = lastMs;
        return this.#count(event, result);
      } catch (error) {
        const isTemporary = error instanceof KubeError && isOutage(error);
        if (!isTemporary || tries >= MAX_TRIES || this.#stopped.signal.aborted) {
          const { name } = event.involvedObject;
          this.#log.debug({ object: name, error: messageOf(error) }, 'event not sent');
          return this.#count(event, 'failed');
        }
        await this.#clock.sleep(error.retryAfterMs ?? RETRY_AFTER_MS, this.#stopped.signal);
      }
    }
  }

  /** Creates the Event, or renews the existing one, which this recorder, another worker, an earlier
   * process, or an attempt whose answer was lost has created.
   * @throws KubeError */
  async #writeOnce(series: Series): Promise<'created' | 'updated'> {
    const { event, count, writtenAtMs } = series;
    const lastTimestamp = formatTime(series.lastMs);
    const options = { signal: this.#stopped.signal, timeoutMs: TIMEOUT_MS };
    const patch = (body: Partial<Event>): Promise<Event> =>
      this.#client.patch<Event>(events, event.metadata, { type: 'merge', body }, options);
    try {
      if (writtenAtMs !== -Infinity) {
        await patch({ count, lastTimestamp });
        return 'updated';
      }
    } catch (error) {
      // API servers keep events for an hour.
      if (!isNotFound(error)) throw error;
    }
    try {
      const body = { ...event, count, lastTimestamp };
      await this.#client.create(events, event.metadata.namespace, body, {
        ...options,
        isAnswerNeeded: false,
      });
      return 'created';
    } catch (error) {
      if (!isAlreadyExists(error)) throw error;
    }
    // Upstream's role can't read events, so only this answer has the count. The next write adds
    // ours.
    const before = await patch({ lastTimestamp });
    series.count += before.count ?? 0;
    return 'updated';
  }
}

/** Makes an Event. Its name is `OBJECT.DIGEST`, as other components name Events. The digest covers
 * object, type, reason and message, so that all processes that report the same write one Event. */
function toEvent(input: EventInput, component: string, nowMs: number): Event {
  const { regarding, type, reason, nextStep = '' } = input;
  // Line breaks and tabs are harmless in an event.
  const escaped = input.message.replaceAll(/[^\n\t]+/g, escapeControls);
  const message = shorten(escaped, MAX_MESSAGE_LENGTH - nextStep.length) + nextStep;
  const what = JSON.stringify([regarding.uid, type, reason, message]);
  const digest = hash('sha256', what).slice(0, 16);
  const begin = regarding.name.slice(0, 253 - 17).replace(/[-.]+$/, '');
  return {
    apiVersion: 'v1',
    kind: 'Event',
    // Events about cluster-scoped objects are in the namespace default.
    metadata: { name: `${begin}.${digest}`, namespace: regarding.namespace || 'default' },
    involvedObject: { ...regarding },
    type,
    reason,
    message,
    source: { component },
    firstTimestamp: formatTime(nowMs),
    eventTime: null,
    reportingComponent: component,
    reportingInstance: '',
  };
}

/** A metav1.Time: whole seconds. */
function formatTime(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
}
