import { randomUUID } from 'node:crypto';
import type { KubeClient } from '#src/kube/client.ts';
import type { WatchEvent } from '#src/kube/watch-decoder.ts';
import { claims, type Resource, volumes } from '#src/kube/resources.ts';
import type { Clock } from '#src/runtime/clock.ts';
import type { Logger } from '#src/runtime/log.ts';
import { cloudEvent, type EventMode, type EventObject, type ObjectChange } from './cloud-event.ts';
import type { Sink } from './sink.ts';

export interface EventSenderOptions {
  readonly client: KubeClient;
  readonly sink: Sink;
  readonly mode: EventMode;
  /** URL of the API server: the source of every event. */
  readonly source: string;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface EventSender {
  /** Resolves when all watches are open: changes from now on are sent. */
  readonly ready: Promise<void>;
  /** Events that were taken, and events that were dropped. */
  readonly sent: number;
  readonly dropped: number;
  stop(): Promise<void>;
}

const PAUSE_AFTER_FAULT_MS = 1000;
const IDLE_TIMEOUT_MS = 5 * 60_000;

/** Sends the changes of claims and PersistentVolumes, as Knative's ApiServerSource does: those that
 * exist when it begins to watch are never announced, and what happens while it does not watch is
 * lost. The events of one kind are sent one after the other. */
export function startEventSender(options: EventSenderOptions): EventSender {
  const stopping = new AbortController();
  const sources = [claims, volumes].map((resource) => new Source(resource, options));
  const runs = sources.map((source) => source.run(stopping.signal));
  const sum = (of: 'sent' | 'dropped') => sources.reduce((total, source) => total + source[of], 0);
  return {
    ready: Promise.all(sources.map((source) => source.ready)).then(() => undefined),
    get sent() {
      return sum('sent');
    },
    get dropped() {
      return sum('dropped');
    },
    async stop() {
      stopping.abort();
      await Promise.all(runs);
    },
  };
}

/** Sends the changes of one kind. */
class Source {
  sent = 0;
  dropped = 0;
  readonly ready: Promise<void>;
  readonly #resource: Resource;
  readonly #options: EventSenderOptions;
  #isOpen: () => void = () => {};
  /** After which version the next watch begins; undefined: from now on. */
  #version: string | undefined;
  #lastSend: Promise<void> = Promise.resolve();

  constructor(resource: Resource, options: EventSenderOptions) {
    this.#resource = resource;
    this.#options = options;
    this.ready = new Promise((resolve) => {
      this.#isOpen = resolve;
    });
  }

  async run(stopping: AbortSignal): Promise<void> {
    const { client, clock, log } = this.#options;
    while (!stopping.aborted) {
      try {
        this.#version ??= (await client.list(this.#resource, { limit: 1 })).resourceVersion;
        await client.watch(this.#resource, {
          resourceVersion: this.#version,
          timeoutSeconds: 300,
          idleTimeoutMs: IDLE_TIMEOUT_MS,
          signal: stopping,
          onOpen: this.#isOpen,
          onEvent: (event) => this.#onEvent(event, stopping),
        });
      } catch (error) {
        if (stopping.aborted) break;
        log.warn({ err: error, resource: this.#resource.plural }, 'the watch failed');
        // A version that is too old stays too old. What happens until the next list is lost.
        this.#version = undefined;
        await clock.sleep(PAUSE_AFTER_FAULT_MS, stopping);
      }
    }
    await this.#lastSend;
  }

  #onEvent({ type, object }: WatchEvent, stopping: AbortSignal): void {
    if (type === 'ERROR') throw new Error(`the server ends the watch: ${JSON.stringify(object)}`);
    const seen = object as EventObject & {
      readonly metadata: { readonly resourceVersion: string };
    };
    this.#version = seen.metadata.resourceVersion;
    if (type === 'BOOKMARK') return;
    const change = { type, object: seen };
    this.#lastSend = this.#lastSend.then(() => this.#send(change, stopping));
  }

  async #send(change: ObjectChange, stopping: AbortSignal): Promise<void> {
    const { sink, mode, source, clock, log } = this.#options;
    const event = cloudEvent(change, { mode, source, id: randomUUID(), nowMs: clock.nowMs() });
    const why = await sink.send(event, stopping);
    if (why === undefined) this.sent += 1;
    else {
      this.dropped += 1;
      const { kind, metadata } = change.object;
      const { namespace, name } = metadata;
      log.warn({ kind, namespace, name, why }, 'an event was dropped');
    }
  }
}
