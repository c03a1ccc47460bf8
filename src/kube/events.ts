import { randomInt, randomUUID } from 'node:crypto';
import { Counter, type Registry } from 'prom-client';
import { systemClock, type Clock } from '../runtime/clock.ts';
import type { Logger } from '../runtime/log.ts';
import type { KubeClient } from './client.ts';
import { EventCorrelator, type EventInput, type Series } from './event-correlation.ts';
import { isAlreadyExists, isNotFound, KubeError } from './kube-error.ts';
import type { Event } from './objects.ts';
import * as resources from './resources.ts';
import { TokenBucket } from './token-bucket.ts';

export type { EventInput, Regarding } from './event-correlation.ts';

/** Kubernetes Events, best effort: they never block, never throw and never slow anything else. */
export interface EventRecorder {
  record(event: EventInput): void;
  /** Sends what it can within the time, drops the rest. */
  close(graceMs?: number): Promise<void>;
}

export interface EventRecorderOptions {
  readonly client: KubeClient;
  /** source.component and reportingComponent. */
  readonly component: string;
  readonly log: Logger;
  readonly metrics?: Registry;
  readonly clock?: Clock;
  /** Normal events beyond this are dropped; Warnings have no rate but the lane's own. */
  readonly normalPerSecond?: number;
  readonly normalBurst?: number;
  /** See CorrelatorOptions. */
  readonly repeatAfterMs?: number;
  /** Pause before a write that failed for want of an answer is tried again. */
  readonly retryAfterMs?: number;
}

const NORMAL_PER_SECOND = 50;
const NORMAL_BURST = 500;
const REPEAT_AFTER_MS = 60_000;
const RETRY_AFTER_MS = 5_000;
const MAX_QUEUED = 1000;
/** Requests of the lane under way at once. */
const WIDTH = 2;
const MAX_TRIES = 12;
const SEND_TIMEOUT_MS = 10_000;
const CLOSE_GRACE_MS = 2000;

type Result =
  'created' | 'updated' | 'coalesced' | 'dropped-rate' | 'dropped-full' | 'dropped-spam' | 'failed';

/** By whom events of a driver are sent, as upstream spells it: driver, host and a UUID of this
 * process. */
export function eventComponent(
  driver: string,
  env: Readonly<Record<string, string | undefined>>,
): string {
  return `${driver}_${env['HOSTNAME'] ?? 'local'}_${randomUUID()}`;
}

/** Starts nothing until the first event. */
export function createEventRecorder(options: EventRecorderOptions): EventRecorder {
  const clock = options.clock ?? systemClock;
  const { log } = options;
  const correlator = new EventCorrelator({
    repeatAfterMs: options.repeatAfterMs ?? REPEAT_AFTER_MS,
  });
  const normals = new TokenBucket({
    burst: options.normalBurst ?? NORMAL_BURST,
    perSecond: options.normalPerSecond ?? NORMAL_PER_SECOND,
    nowMs: clock.nowMs(),
  });
  const queue = new EventQueue();
  const count = createCounter(options.metrics);
  const stopped = new AbortController();
  let isClosed = false;
  let lanes = 0;
  let whenIdle: (() => void) | undefined;

  const drain = async (): Promise<void> => {
    for (
      let series = queue.next();
      series !== undefined && !stopped.signal.aborted;
      series = queue.next()
    ) {
      await write(series);
      series.isPending = false;
    }
    lanes--;
    if (lanes === 0) whenIdle?.();
  };

  /** One event to its end. Never throws. */
  const write = async (series: Series): Promise<void> => {
    const { type, regarding, reason } = series.input;
    for (let tries = 1; ; tries++) {
      try {
        count(type, await send(series));
        return;
      } catch (error) {
        const mayRepeat =
          error instanceof KubeError &&
          (error.code === 0 || error.code >= 500 || error.code === 429);
        if (!mayRepeat || tries >= MAX_TRIES || stopped.signal.aborted) {
          count(type, 'failed');
          log.debug(
            {
              object: regarding.name,
              reason,
              error: error instanceof Error ? error.message : String(error),
            },
            'event not sent',
          );
          return;
        }
        await clock.sleep(
          error.retryAfterMs ?? options.retryAfterMs ?? RETRY_AFTER_MS,
          stopped.signal,
        );
      }
    }
  };

  const send = async (series: Series): Promise<Result> => {
    const o = { signal: stopped.signal, timeoutMs: SEND_TIMEOUT_MS };
    const namespace = namespaceOf(series.input);
    const written = { count: series.count, atMs: series.lastMs };
    const settle = (result: Result): Result => {
      series.writtenCount = written.count;
      series.writtenAtMs = written.atMs;
      return result;
    };
    if (series.writtenCount > 0 && series.name !== undefined) {
      const body = {
        count: written.count,
        lastTimestamp: secondsOf(written.atMs),
        message: series.message,
      };
      try {
        await options.client.patch(
          resources.events,
          { namespace, name: series.name },
          { type: 'merge', body },
          o,
        );
        return settle('updated');
      } catch (error) {
        // Events live for an hour: it is gone, so it is told anew.
        if (!isNotFound(error)) throw error;
        series.name = undefined;
      }
    }
    series.name ??= eventName(series.input.regarding.name, series.firstMs);
    try {
      await options.client.create(
        resources.events,
        namespace,
        toEvent(series, series.name, options.component),
        o,
      );
    } catch (error) {
      // An earlier try whose answer was lost.
      if (!isAlreadyExists(error)) throw error;
    }
    return settle('created');
  };

  return {
    record(event) {
      if (isClosed) return;
      try {
        const nowMs = clock.nowMs();
        const verdict = correlator.take(event, nowMs);
        if (verdict.kind === 'coalesced') return count(event.type, 'coalesced');
        if (verdict.kind === 'spam') return count(event.type, 'dropped-spam');
        const isOrdinary = event.type === 'Normal' && event.isAlwaysTold !== true;
        if (isOrdinary && !normals.take(nowMs)) return count('Normal', 'dropped-rate');
        const dropped = queue.add(verdict.series);
        if (dropped) count(dropped, 'dropped-full');
        log.debug(
          {
            object: event.regarding.name,
            namespace: event.regarding.namespace,
            type: event.type,
            reason: event.reason,
          },
          'event',
        );
        if (lanes >= WIDTH || queue.size === 0) return;
        lanes++;
        void drain();
      } catch (error) {
        log.error({ err: error, reason: event.reason }, 'event not recorded');
      }
    },
    async close(graceMs = CLOSE_GRACE_MS) {
      isClosed = true;
      if (lanes > 0) {
        const timer = setTimeout(
          () => stopped.abort(new Error('the event recorder is closed')),
          graceMs,
        );
        await new Promise<void>((resolve) => {
          whenIdle = resolve;
        });
        clearTimeout(timer);
      }
      stopped.abort();
    },
  };
}

/** Warnings, and what is always told, first; bounded; they take the place of the oldest Normal when
 * all places are taken. */
class EventQueue {
  readonly #urgent = new Set<Series>();
  readonly #normals = new Set<Series>();

  get size(): number {
    return this.#urgent.size + this.#normals.size;
  }

  /** @returns the type of the event that found no place */
  add(series: Series): EventInput['type'] | undefined {
    const { type, isAlwaysTold } = series.input;
    const isUrgent = type === 'Warning' || isAlwaysTold === true;
    const isFull = this.size >= MAX_QUEUED;
    const [victim] = this.#normals;
    if (isFull && (!isUrgent || victim === undefined)) return type;
    if (isFull && victim !== undefined) {
      this.#normals.delete(victim);
      victim.isPending = false;
    }
    series.isPending = true;
    (isUrgent ? this.#urgent : this.#normals).add(series);
    return isFull ? 'Normal' : undefined;
  }

  next(): Series | undefined {
    const lane = this.#urgent.size > 0 ? this.#urgent : this.#normals;
    const [first] = lane;
    if (first !== undefined) lane.delete(first);
    return first;
  }
}

function createCounter(
  registry: Registry | undefined,
): (type: EventInput['type'], result: Result) => void {
  if (registry === undefined) return () => {};
  const name = 'sutler_kube_events_total';
  const known = registry.getSingleMetric(name);
  const counter =
    known instanceof Counter
      ? known
      : new Counter({
          name,
          help: 'Kubernetes Events by what became of them.',
          labelNames: ['type', 'result'],
          registers: [registry],
        });
  return (type, result) => counter.inc({ type, result });
}

function namespaceOf({ regarding }: EventInput): string {
  return regarding.namespace === undefined || regarding.namespace === ''
    ? 'default'
    : regarding.namespace;
}

/** `<object>.<nanoseconds, hex>`, as every other component names them; names that would be too long
 * get a random one. */
function eventName(object: string, nowMs: number): string {
  const nanoseconds = BigInt(Math.trunc(nowMs)) * 1_000_000n + BigInt(randomInt(1_000_000));
  const name = `${object}.${nanoseconds.toString(16)}`;
  return name.length <= 253 ? name : randomUUID();
}

/** metav1.Time: whole seconds. */
function secondsOf(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
}

function toEvent(series: Series, name: string, component: string): Event {
  const { regarding, type, reason } = series.input;
  const source = series.input.component ?? component;
  return {
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { name, namespace: namespaceOf(series.input) },
    involvedObject: { ...regarding },
    type,
    reason,
    message: series.message,
    source: { component: source },
    firstTimestamp: secondsOf(series.firstMs),
    lastTimestamp: secondsOf(series.lastMs),
    count: series.count,
    eventTime: null,
    reportingComponent: source,
    reportingInstance: '',
  };
}
