import { excerpt, isFields } from '../runtime/json.ts';
import { undecodableError, type KubeError } from './kube-error.ts';
import { parseObject } from './object-json.ts';
import type { KubeObject } from './objects.ts';

const EVENT_TYPES = ['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR'] as const;

/** One line of a watch. The object of an ERROR is a Status; that of a BOOKMARK has only metadata;
 * the others come without managedFields. */
export interface WatchEvent {
  readonly type: (typeof EVENT_TYPES)[number];
  readonly object: unknown;
}

export interface WatchOptions {
  readonly namespace?: string | undefined;
  /** The watch reports the changes after this version. Absent: it begins with all objects, each as
   * ADDED, and then sends a bookmark (isEndOfList). */
  readonly resourceVersion?: string | undefined;
  /** Asks for bookmarks: events that only say up to which version the watch has come. */
  readonly bookmarks?: boolean;
  /** The server ends the watch after this long. */
  readonly timeoutSeconds?: number;
  /** The watch fails when nothing was received for this long. */
  readonly idleTimeoutMs: number;
  readonly labelSelector?: string | undefined;
  readonly fieldSelector?: string | undefined;
  /** The objects have only their metadata. */
  readonly metadataOnly?: boolean | undefined;
  readonly signal?: AbortSignal;
  /** Called when the server has accepted the watch. */
  readonly onOpen?: () => void;
  /** An error that it throws ends the watch with that error. */
  readonly onEvent: (event: WatchEvent) => void;
}

/** Query parameters of a watch. */
export function watchQuery(o: WatchOptions): Readonly<Record<string, string | number | undefined>> {
  const isList = o.resourceVersion === undefined;
  return {
    watch: 'true',
    resourceVersion: o.resourceVersion,
    sendInitialEvents: isList ? 'true' : undefined,
    resourceVersionMatch: isList ? 'NotOlderThan' : undefined,
    allowWatchBookmarks: o.bookmarks === true || isList ? 'true' : undefined,
    timeoutSeconds: o.timeoutSeconds,
    labelSelector: o.labelSelector,
    fieldSelector: o.fieldSelector,
  };
}

/** Whether an event ends the list with which a watch without a version begins. */
export function isEndOfList({ type, object }: WatchEvent): boolean {
  if (type !== 'BOOKMARK') return false;
  const { metadata } = object as Partial<KubeObject>;
  return metadata?.annotations?.['k8s.io/initial-events-end'] === 'true';
}

const NEWLINE = 10;
/** Far above the size of an object, which etcd limits to 1.5 MB. A longer line is no event. */
const MAX_LINE_BYTES = 64 * 1024 * 1024;

/** Decodes a stream of bytes into events, one per line. Bytes are decoded only when their line is
 * complete, so that a character may be split over two pieces. An unfinished line at the end of the
 * stream is dropped; the next watch brings its event again. */
export class WatchDecoder {
  readonly #title: string;
  readonly #onEvent: (event: WatchEvent) => void;
  #rest: Buffer[] = [];
  #restBytes = 0;

  constructor(title: string, onEvent: (event: WatchEvent) => void) {
    this.#title = title;
    this.#onEvent = onEvent;
  }

  /** @throws KubeError if a line is not an event */
  push(chunk: Buffer): void {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      const piece = chunk.subarray(start, end);
      start = end + 1;
      const line = this.#restBytes === 0 ? piece : Buffer.concat([...this.#rest, piece]);
      this.#rest = [];
      this.#restBytes = 0;
      this.#decode(line);
    }
    if (start === chunk.length) return;
    this.#rest.push(chunk.subarray(start));
    this.#restBytes += chunk.length - start;
    if (this.#restBytes > MAX_LINE_BYTES)
      throw this.#error(`a line is longer than ${MAX_LINE_BYTES} bytes`);
  }

  #decode(bytes: Buffer): void {
    if (bytes.length === 0) return;
    const value = parseObject(bytes);
    if (!isEvent(value)) throw this.#error(excerpt(bytes.toString('utf8')));
    this.#onEvent(value);
  }

  #error(why: string): KubeError {
    return undecodableError(this.#title, `not a watch event: ${why}`);
  }
}

function isEvent(value: unknown): value is WatchEvent {
  return isFields(value) && 'object' in value && EVENT_TYPES.some((type) => type === value['type']);
}
