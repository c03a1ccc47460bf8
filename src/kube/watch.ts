import { excerpt, KubeError } from './kube-error.ts';

export type WatchEventType = 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';

/** One line of a watch. The object of an ERROR is a Status, that of a BOOKMARK only carries a
 * resourceVersion. */
export interface WatchEvent {
  readonly type: WatchEventType;
  readonly object: unknown;
}

export interface WatchOptions {
  readonly namespace?: string;
  /** Changes after this version. */
  readonly resourceVersion: string;
  /** Ask for bookmarks, so that the version moves on even where nothing changes. */
  readonly bookmarks?: boolean;
  /** The server ends the watch after this long. */
  readonly timeoutSeconds?: number;
  /** Give up the connection when the server said nothing for this long. */
  readonly idleTimeoutMs: number;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  readonly signal?: AbortSignal;
  /** The server accepted the watch. */
  readonly onOpen?: () => void;
  /** A throw ends the watch with that error. */
  readonly onEvent: (event: WatchEvent) => void;
}

/** Query string of a watch. */
export function watchQuery(o: WatchOptions): string {
  const query = new URLSearchParams({ watch: 'true', resourceVersion: o.resourceVersion });
  if (o.bookmarks === true) query.set('allowWatchBookmarks', 'true');
  if (o.timeoutSeconds !== undefined) query.set('timeoutSeconds', String(o.timeoutSeconds));
  if (o.labelSelector !== undefined) query.set('labelSelector', o.labelSelector);
  if (o.fieldSelector !== undefined) query.set('fieldSelector', o.fieldSelector);
  return query.toString();
}

const NEWLINE = 10;
/** etcd stores 1.5 MB per object; what is much longer isn't a watch. */
const MAX_LINE_BYTES = 64 * 1024 * 1024;

/** Cuts a stream into lines and these into events. Works on bytes up to the newline, so a character
 * split over two pieces stays whole. */
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
      if (this.#restBytes === 0) {
        this.#line(piece);
      } else {
        const line = Buffer.concat([...this.#rest, piece]);
        this.#rest = [];
        this.#restBytes = 0;
        this.#line(line);
      }
    }
    if (start === chunk.length) return;
    this.#rest.push(chunk.subarray(start));
    this.#restBytes += chunk.length - start;
    if (this.#restBytes > MAX_LINE_BYTES)
      throw this.#undecodable(`a line is longer than ${MAX_LINE_BYTES} bytes`);
  }

  /** The stream ended; an unfinished line is dropped: the next watch brings its event again. */
  end(): void {
    this.#rest = [];
    this.#restBytes = 0;
  }

  #line(bytes: Buffer): void {
    if (bytes.length === 0) return;
    const text = bytes.toString('utf8');
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      throw this.#undecodable(excerpt(text));
    }
    if (!isEvent(value)) throw this.#undecodable(excerpt(text));
    this.#onEvent(value);
  }

  #undecodable(words: string): KubeError {
    return new KubeError({
      code: 0,
      reason: 'Undecodable',
      serverMessage: `not a watch event: ${words}`,
      request: this.#title,
    });
  }
}

function isEvent(value: unknown): value is WatchEvent {
  return (
    typeof value === 'object' &&
    value !== null &&
    'object' in value &&
    'type' in value &&
    (value.type === 'ADDED' ||
      value.type === 'MODIFIED' ||
      value.type === 'DELETED' ||
      value.type === 'BOOKMARK' ||
      value.type === 'ERROR')
  );
}
