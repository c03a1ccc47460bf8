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
    const { input } = series;
    const event = toEvent(series, input.component ?? this.#component);
    try {
      await this.#client.createUnread(events, namespaceOf(input), event, this.#callOptions);
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
