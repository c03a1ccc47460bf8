import type { ServerResponse } from 'node:http';
import { timerMs } from '#src/runtime/clock.ts';
import { type ApiError, expired } from '../api-error.ts';
import type { ListQuery } from '../list-query.ts';
import { apiVersionOf, type Resource } from '../resource.ts';
import {
  type Change,
  changesAfter,
  type ChangeType,
  type Store,
  type Stored,
  watchFrame,
} from '../store.ts';
import { json, objectBytes, type Presentation } from './answer.ts';

export interface WatchOptions {
  readonly resource: Resource;
  readonly query: ListQuery;
  /** The revision to continue from; 0 sends all objects first. */
  readonly from: number;
  readonly bookmarks: boolean;
  readonly bookmarkIntervalMs: number;
  readonly timeoutMs: number;
  readonly how: Presentation;
  readonly nowMs: () => number;
}

/** A client with more unread bytes is disconnected, as a real server does. It can resume from its
 * last event. */
const BACKLOG_MAX_BYTES = 64 * 1024 * 1024;

/** One running watch. */
export class WatchStream {
  readonly resource: Resource;
  readonly #response: ServerResponse;
  readonly #options: WatchOptions;
  readonly #store: Store;
  readonly #onChange = (change: Change) => this.#sendChange(change);
  readonly #timers: NodeJS.Timeout[] = [];
  #ended = false;

  constructor(store: Store, response: ServerResponse, options: WatchOptions) {
    this.resource = options.resource;
    this.#store = store;
    this.#response = response;
    this.#options = options;
  }

  /** Sends the existing objects or the changes since `from`, then every change until the time-out,
   * {@link end}, or the client disconnects. */
  start(): void {
    const { resource, query, from, bookmarks, timeoutMs, bookmarkIntervalMs } = this.#options;
    const collection = this.#store.collection(resource);
    this.#response.writeHead(200, {
      'content-type': 'application/json',
      'cache-control': 'no-cache, private',
    });
    this.#response.flushHeaders();
    this.#response.once('close', () => this.#stop());
    if (from > 0 && from < collection.compactedTo)
      return this.fail(expired(`too old resource version: ${from} (${collection.compactedTo})`));
    if (from === 0 || query.sendInitialEvents) {
      for (const each of collection.sorted) if (this.#selects(each)) this.#send('ADDED', each);
    } else {
      for (const change of changesAfter(collection, from)) this.#sendChange(change);
    }
    if (query.sendInitialEvents && bookmarks)
      this.#bookmark({ 'k8s.io/initial-events-end': 'true' });
    collection.listeners.add(this.#onChange);
    this.#timers.push(setTimeout(() => this.end(), timerMs(timeoutMs)));
    if (bookmarks) this.#timers.push(setInterval(() => this.#bookmark(), bookmarkIntervalMs));
  }

  /** Ends cleanly with a last bookmark, as at a time-out. */
  end(): void {
    if (this.#ended) return;
    if (this.#options.bookmarks) this.#bookmark();
    this.#stop();
    this.#finish();
  }

  /** Closes the connection without ending the answer. */
  cut(): void {
    this.#stop();
    this.#response.destroy();
  }

  /** Sends an ERROR event and ends. */
  fail(error: ApiError): void {
    if (this.#ended) return;
    this.#response.write(watchFrame('ERROR', json(error.status)));
    this.#stop();
    this.#finish();
  }

  /** Sends corked data before the end of the answer: Node 22 and later would send it afterwards. */
  #finish(): void {
    while (this.#response.writableCorked > 0) this.#response.uncork();
    this.#response.end();
  }

  #stop(): void {
    this.#ended = true;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#store.collection(this.resource).listeners.delete(this.#onChange);
  }

  /** Sends a change as this watch sees it: an object that begins to match is ADDED, one that no
   * longer matches is DELETED. */
  #sendChange(change: Change): void {
    // A watch from a future version is silent until the server reaches it, as on a real server.
    if (change.stored.revision <= this.#options.from) return;
    const is = change.type !== 'DELETED' && this.#selects(change.stored);
    const was = change.previous !== undefined && this.#selects(change.previous);
    if (!is && !was) return;
    const type: ChangeType = is ? (was ? 'MODIFIED' : 'ADDED') : 'DELETED';
    if (type === change.type && this.#options.how.form === 'object') this.#write(change.frame);
    else this.#send(type, type === 'DELETED' ? change.lastState : change.stored);
  }

  #selects(stored: Stored): boolean {
    const { namespace, select } = this.#options.query;
    if (namespace !== undefined && stored.object.metadata.namespace !== namespace) return false;
    return select === undefined || select(stored.object);
  }

  #send(type: ChangeType, stored: Stored): void {
    // The age column uses the time of the event, not of the watch's start.
    const how = { ...this.#options.how, nowMs: this.#options.nowMs() };
    this.#write(watchFrame(type, objectBytes(this.resource, stored, how)));
  }

  #bookmark(annotations?: Record<string, string>): void {
    const resourceVersion = String(this.#store.revision);
    const metadata = { resourceVersion, creationTimestamp: null, annotations };
    const { form } = this.#options.how;
    const head =
      form === 'object'
        ? { kind: this.resource.kind, apiVersion: apiVersionOf(this.resource) }
        : { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1' };
    this.#write(watchFrame('BOOKMARK', json({ ...head, metadata })));
  }

  #write(frame: Buffer): void {
    if (this.#ended) return;
    if (this.#response.writableLength > BACKLOG_MAX_BYTES) return this.cut();
    if (this.#response.writableCorked === 0) {
      // All events of one turn of the event loop are sent as one packet.
      this.#response.cork();
      process.nextTick(() => this.#response.uncork());
    }
    this.#response.write(frame);
  }
}
