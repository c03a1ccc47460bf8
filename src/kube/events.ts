import { randomUUID } from 'node:crypto';
import type { Counter } from 'prom-client';
import { type Clock, systemClock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { metricsIn, Registry } from '../runtime/metrics.ts';
import type { KubeClient } from './client.ts';
import { EventCorrelator, type EventInput, type Series } from './event-correlation.ts';
import { isAlreadyExists, isNotFound, isOutage, KubeError } from './kube-error.ts';
import type { Event } from './objects.ts';
import type { CallOptions } from './request-sender.ts';
import { events } from './resources.ts';
import { TokenBucket } from '../runtime/token-bucket.ts';

export interface EventRecorderOptions {
  readonly client: KubeClient;
  /** source.component and reportingComponent. */
  readonly component: string;
  readonly log: Logger;
  readonly metrics?: Registry;
  readonly clock?: Clock;
  /** Normal events above this rate are dropped. Warnings have no such limit. */
  readonly normalPerSecond?: number;
  readonly normalBurst?: number;
  /** Least time between two writes of a repeating event. */
  readonly repeatAfterMs?: number;
}

const NORMAL_PER_SECOND = 50;
const NORMAL_BURST = 500;
const REPEAT_AFTER_MS = 10_000;
const RETRY_AFTER_MS = 5_000;
const MAX_QUEUED = 4000;
/** A Normal event waits while more requests than this are under way, but not for longer than
 * MAX_YIELD_MS: it must not slow down what it is about. */
const BUSY_REQUESTS = 4;
const MAX_YIELD_MS = 100;
const YIELD_MS = 20;
const CONCURRENT_WRITES = 2;
const MAX_TRIES = 12;
const CLOSE_GRACE_MS = 2000;
const TIMEOUT_MS = 10_000;

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

/** Records Kubernetes Events as best effort: it never blocks, never throws, and drops events rather
 * than delay other work. Events that are worth a request are queued, and up to two workers write
 * them. */
export class EventRecorder {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #correlator: EventCorrelator;
  readonly #normals: TokenBucket;
  readonly #queue = new EventQueue();
  readonly #stopped = new AbortController();
  readonly #client: KubeClient;
  readonly #component: string;
  readonly #callOptions: CallOptions;
  readonly #results: Counter<'type' | 'result'>;
  #activeWorkers = 0;
  #onIdle: (() => void) | undefined;
  #isClosed = false;

  constructor(options: EventRecorderOptions) {
    this.#log = options.log;
    this.#clock = options.clock ?? systemClock;
    this.#correlator = new EventCorrelator(options.repeatAfterMs ?? REPEAT_AFTER_MS);
    this.#normals = new TokenBucket({
      burst: options.normalBurst ?? NORMAL_BURST,
      perSecond: options.normalPerSecond ?? NORMAL_PER_SECOND,
      nowMs: this.#clock.nowMs(),
    });
    this.#client = options.client;
    this.#component = options.component;
    this.#callOptions = { signal: this.#stopped.signal, timeoutMs: TIMEOUT_MS };
    this.#results = metricsIn(options.metrics ?? new Registry()).counter(
      'sutler_kube_events_total',
      'Kubernetes Events by what became of them.',
      ['type', 'result'],
    );
  }

  record(event: EventInput): void {
    if (this.#isClosed) return;
    try {
      this.#enqueue(event);
      if (this.#activeWorkers >= CONCURRENT_WRITES || this.#queue.size === 0) return;
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

  #enqueue(event: EventInput): void {
    const { regarding, type, reason } = event;
    const nowMs = this.#clock.nowMs();
    const isLimited = !isUrgent(event);
    // Under load most events end here, before anything is remembered of them.
    if (isLimited && this.#normals.waitMs(nowMs) > 0) return this.#count('Normal', 'dropped-rate');
    const series = this.#correlator.take(event, nowMs);
    if (typeof series === 'string') return this.#count(type, series);
    if (isLimited) this.#normals.take(nowMs);
    const dropped = this.#queue.add(series);
    if (dropped) this.#count(dropped, 'dropped-full');
    const { name: object, namespace } = regarding;
    this.#log.debug({ object, namespace, type, reason }, 'event');
  }

  #count(type: EventInput['type'], result: Result): void {
    this.#results.inc({ type, result });
  }

  async #drain(): Promise<void> {
    const { signal } = this.#stopped;
    let series = this.#queue.next();
    while (series !== undefined && !signal.aborted) {
      if (!isUrgent(series.input)) await this.#yieldToOthers();
      await this.#write(series);
      series.isPending = false;
      series = this.#queue.next();
    }
    this.#activeWorkers -= 1;
    if (this.#activeWorkers === 0) this.#onIdle?.();
  }

  /** Waits while many requests are under way, for a short time at most. */
  async #yieldToOthers(): Promise<void> {
    for (let waitedMs = 0; waitedMs < MAX_YIELD_MS; waitedMs += YIELD_MS) {
      if (this.#isClosed || this.#client.inFlight <= BUSY_REQUESTS) return;
      await this.#clock.sleep(YIELD_MS, this.#stopped.signal);
    }
  }

  /** Writes one event, and repeats that during outages. Never throws. */
  async #write(series: Series): Promise<void> {
    const { type, regarding, reason } = series.input;
    for (let tries = 1; ; tries++) {
      try {
        return this.#count(type, await this.#writeOnce(series));
      } catch (error) {
        const isTemporary = error instanceof KubeError && isOutage(error);
        if (!isTemporary || tries >= MAX_TRIES || this.#stopped.signal.aborted) {
          const object = regarding.name;
          this.#log.debug({ object, reason, error: messageOf(error) }, 'event not sent');
          return this.#count(type, 'failed');
        }
        await this.#clock.sleep(error.retryAfterMs ?? RETRY_AFTER_MS, this.#stopped.signal);
      }
    }
  }

  /** Creates the Event object of a series, or updates its count, time and message.
   * @throws KubeError */
  async #writeOnce(series: Series): Promise<'created' | 'updated'> {
    // More repeats may be counted while the request is under way.
    const { count, lastMs } = series;
    const isUpdated = series.writtenCount > 0 && (await this.#update(series));
    const result = isUpdated ? 'updated' : await this.#create(series);
    series.writtenCount = count;
    series.writtenAtMs = lastMs;
    return result;
  }

  /** @returns false if the object does not exist any more: API servers keep events for an hour */
  async #update(series: Series): Promise<boolean> {
    try {
      await this.#patch(series, { count: series.count });
      return true;
    } catch (error) {
      if (!isNotFound(error)) throw error;
      return false;
    }
  }

  /** Creates the Event, or renews the one that exists already: another worker, an earlier process,
   * or an attempt whose answer was lost has created it. Its count is known from the answer only
   * (upstream's role may not read events), so the next renewal adds this one. */
  async #create(series: Series): Promise<'created' | 'updated'> {
    const event = toEvent(series, series.input.component ?? this.#component);
    try {
      const { namespace } = event.metadata;
      await this.#client.create(events, namespace, event, this.#callOptions);
      return 'created';
    } catch (error) {
      if (!isAlreadyExists(error)) throw error;
    }
    const { count } = await this.#patch(series, {});
    series.count += count ?? 0;
    return 'updated';
  }

  #patch({ lastMs, message, name, input }: Series, fields: { count?: number }): Promise<Event> {
    const ref = { namespace: namespaceOf(input), name };
    const body = { ...fields, lastTimestamp: formatTime(lastMs), message };
    return this.#client.patch<Event>(events, ref, { type: 'merge', body }, this.#callOptions);
  }
}

function isUrgent({ type, isAlwaysTold }: EventInput): boolean {
  return type === 'Warning' || isAlwaysTold === true;
}

/** A bounded queue. Warnings, and events that are always sent, come first; when the queue is full,
 * each of them replaces the oldest Normal event. */
class EventQueue {
  readonly #urgent = new Set<Series>();
  readonly #normals = new Set<Series>();

  get size(): number {
    return this.#urgent.size + this.#normals.size;
  }

  /** @returns the type of the event that was dropped, if any */
  add(series: Series): EventInput['type'] | undefined {
    const { type } = series.input;
    const isFirst = isUrgent(series.input);
    const isFull = this.size >= MAX_QUEUED;
    const [oldestNormal] = this.#normals;
    if (isFull && (!isFirst || oldestNormal === undefined)) return type;
    if (isFull && oldestNormal !== undefined) {
      this.#normals.delete(oldestNormal);
      oldestNormal.isPending = false;
    }
    series.isPending = true;
    (isFirst ? this.#urgent : this.#normals).add(series);
    return isFull ? 'Normal' : undefined;
  }

  next(): Series | undefined {
    const lane = this.#urgent.size > 0 ? this.#urgent : this.#normals;
    const [first] = lane;
    if (first !== undefined) lane.delete(first);
    return first;
  }
}

/** Events about cluster-scoped objects are in the namespace default. */
function namespaceOf({ regarding }: EventInput): string {
  return regarding.namespace || 'default';
}

/** A metav1.Time: whole seconds. */
function formatTime(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
}

function toEvent(series: Series, component: string): Event {
  const { name } = series;
  const { regarding, type, reason } = series.input;
  return {
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { name, namespace: namespaceOf(series.input) },
    involvedObject: { ...regarding },
    type,
    reason,
    message: series.message,
    source: { component },
    firstTimestamp: formatTime(series.firstMs),
    lastTimestamp: formatTime(series.lastMs),
    count: series.count,
    eventTime: null,
    reportingComponent: component,
    reportingInstance: '',
  };
}
