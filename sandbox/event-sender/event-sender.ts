import { randomUUID } from 'node:crypto';
import { request } from 'undici';
import type { KubeClient } from '#src/kube/client.ts';
import type { WatchEvent } from '#src/kube/watch-decoder.ts';
import { claims, type Resource, volumes } from '#src/kube/resources.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { messageOf } from '#src/runtime/error-message.ts';
import type { Logger } from '#src/runtime/log.ts';

export interface EventSenderOptions {
  readonly client: KubeClient;
  /** URL that receives the events. */
  readonly sink: string;
  /** URL of the API server: the source of every event. */
  readonly source: string;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface EventSender {
  /** Resolves when all watches are open: changes from now on are sent. */
  readonly ready: Promise<void>;
  stop(): Promise<void>;
}

interface WatchedObject {
  readonly kind: string;
  readonly apiVersion: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly resourceVersion: string;
  };
}

const PAUSE_AFTER_FAULT_MS = 1000;
const IDLE_TIMEOUT_MS = 5 * 60_000;
/** Pauses before the attempts to send an event after the first one. */
const PAUSES_MS = [100, 200, 400, 800, 1600];
const OPERATIONS = { ADDED: 'add', MODIFIED: 'update', DELETED: 'delete' } as const;

/** Sends the changes of claims and PersistentVolumes, as Knative's ApiServerSource does: it never
 * announces objects that exist when it begins to watch, and misses changes while it does not watch.
 * It sends the events of one kind one after the other. */
export function startEventSender(options: EventSenderOptions): EventSender {
  const stopping = new AbortController();
  const sources = [claims, volumes].map((resource) => new Source(resource, options));
  const runs = sources.map((source) => source.run(stopping.signal));
  return {
    ready: Promise.all(sources.map((source) => source.ready)).then(() => undefined),
    async stop() {
      stopping.abort();
      await Promise.all(runs);
    },
  };
}

/** Sends the changes of one kind. */
class Source {
  readonly ready: Promise<void>;
  readonly #resource: Resource;
  readonly #options: EventSenderOptions;
  #isOpen: () => void = () => {};
  /** The version after which the next watch begins; undefined: the latest. */
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
        // A version that is too old stays too old. Changes before the next list are lost.
        this.#version = undefined;
        await clock.sleep(PAUSE_AFTER_FAULT_MS, stopping);
      }
    }
    await this.#lastSend;
  }

  #onEvent({ type, object }: WatchEvent, stopping: AbortSignal): void {
    if (type === 'ERROR') throw new Error(`the server ends the watch: ${JSON.stringify(object)}`);
    const seen = object as WatchedObject;
    this.#version = seen.metadata.resourceVersion;
    if (type === 'BOOKMARK') return;
    this.#lastSend = this.#lastSend.then(() => this.#send(OPERATIONS[type], seen, stopping));
  }

  async #send(operation: string, object: WatchedObject, stopping: AbortSignal): Promise<void> {
    const { sink, source, clock, log } = this.#options;
    const event = { ...cloudEvent(operation, object, source), signal: stopping };
    for (const pauseMs of [...PAUSES_MS, undefined]) {
      const why = await post(sink, event);
      if (why === undefined || stopping.aborted) return;
      const { name, namespace } = object.metadata;
      if (pauseMs === undefined) log.warn({ namespace, name, why }, 'an event was dropped');
      else await clock.sleep(pauseMs, stopping);
    }
  }
}

/** A CloudEvent in binary mode that says where the object is. */
function cloudEvent(operation: string, object: WatchedObject, source: string) {
  const { kind, apiVersion, metadata } = object;
  const { name, namespace } = metadata;
  // As Knative writes it: /apis also for the core group, and an empty namespace for cluster-scoped
  // objects.
  const place = `/apis/${apiVersion}/namespaces/${namespace ?? ''}`;
  const where = namespace === undefined ? { kind, name } : { kind, namespace, name };
  return {
    headers: {
      'content-type': 'application/json',
      'ce-specversion': '1.0',
      'ce-id': randomUUID(),
      'ce-type': `dev.knative.apiserver.ref.${operation}`,
      'ce-source': source,
      'ce-subject': `${place}/${kind.toLowerCase()}s/${name}`,
      'ce-time': new Date().toISOString(),
    },
    body: JSON.stringify({ ...where, apiVersion }),
  };
}

/** @returns why the receiver did not take the event; undefined if it did */
async function post(
  url: string,
  event: ReturnType<typeof cloudEvent> & { readonly signal: AbortSignal },
): Promise<string | undefined> {
  try {
    const answer = await request(url, { method: 'POST', ...event });
    await answer.body.dump();
    return answer.statusCode < 300 ? undefined : `HTTP ${answer.statusCode}`;
  } catch (error) {
    return messageOf(error);
  }
}
