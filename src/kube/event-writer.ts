import { randomInt, randomUUID } from 'node:crypto';
import type { CallOptions, KubeClient } from './client.ts';
import type { EventInput, Series } from './event-correlation.ts';
import { isAlreadyExists, isNotFound } from './kube-error.ts';
import type { Event } from './objects.ts';
import { events } from './resources.ts';

const TIMEOUT_MS = 10_000;

/** Creates the Event object of a series, or updates its count, time and message.
 * @throws KubeError */
export class EventWriter {
  readonly #client: KubeClient;
  readonly #component: string;
  readonly #callOptions: CallOptions;

  /** @param component  the reporter of events that name none */
  constructor(client: KubeClient, component: string, signal: AbortSignal) {
    this.#client = client;
    this.#component = component;
    this.#callOptions = { signal, timeoutMs: TIMEOUT_MS };
  }

  async write(series: Series): Promise<'created' | 'updated'> {
    // More repeats may be counted while the request is under way.
    const { count, lastMs } = series;
    const result =
      series.writtenCount > 0 && (await this.#update(series))
        ? 'updated'
        : await this.#create(series);
    series.writtenCount = count;
    series.writtenAtMs = lastMs;
    return result;
  }

  /** @returns false if the object does not exist any more: API servers keep events for an hour */
  async #update(series: Series): Promise<boolean> {
    if (series.name === undefined) return false;
    const { count, lastMs, message, name } = series;
    const body = { count, lastTimestamp: formatTime(lastMs), message };
    try {
      await this.#client.patch(
        events,
        { namespace: namespaceOf(series.input), name },
        { type: 'merge', body },
        this.#callOptions,
      );
      return true;
    } catch (error) {
      if (!isNotFound(error)) throw error;
      series.name = undefined;
      return false;
    }
  }

  async #create(series: Series): Promise<'created'> {
    // The name stays the same if the write is retried.
    series.name ??= eventName(series.input.regarding.name, series.firstMs);
    const event = toEvent(series, series.name, series.input.component ?? this.#component);
    try {
      await this.#client.createUnread(events, namespaceOf(series.input), event, this.#callOptions);
    } catch (error) {
      // An earlier attempt succeeded, and its answer was lost.
      if (!isAlreadyExists(error)) throw error;
    }
    return 'created';
  }
}

/** Events about cluster-scoped objects are in the namespace default. */
function namespaceOf({ regarding }: EventInput): string {
  return regarding.namespace || 'default';
}

/** `OBJECT.NANOSECONDS` in hexadecimal, as other components name events; a random name where this
 * would be too long. */
function eventName(object: string, nowMs: number): string {
  const nanoseconds = BigInt(Math.trunc(nowMs)) * 1_000_000n + BigInt(randomInt(1_000_000));
  const name = `${object}.${nanoseconds.toString(16)}`;
  return name.length <= 253 ? name : randomUUID();
}

/** A metav1.Time: whole seconds. */
function formatTime(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
}

function toEvent(series: Series, name: string, component: string): Event {
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
