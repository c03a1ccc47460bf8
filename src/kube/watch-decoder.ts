import { excerpt, isFields, parseJson } from '../runtime/json.ts';
import { type KubeError, unansweredError } from './kube-error.ts';

const EVENT_TYPES = ['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR'] as const;

/** One line of a watch. The object of an ERROR is a Status; that of a BOOKMARK has only metadata.
 */
export interface WatchEvent {
  readonly type: (typeof EVENT_TYPES)[number];
  readonly object: unknown;
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

  /** @param title  of the call, for errors */
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
      this.#decode(line.toString('utf8'));
    }
    if (start === chunk.length) return;
    this.#rest.push(chunk.subarray(start));
    this.#restBytes += chunk.length - start;
    if (this.#restBytes > MAX_LINE_BYTES)
      throw this.#error(`a line is longer than ${MAX_LINE_BYTES} bytes`);
  }

  #decode(line: string): void {
    if (line === '') return;
    const value = parseJson(line);
    if (!isEvent(value)) throw this.#error(excerpt(line));
    this.#onEvent(value);
  }

  #error(why: string): KubeError {
    return unansweredError(this.#title, 'Undecodable', `not a watch event: ${why}`);
  }
}

function isEvent(value: unknown): value is WatchEvent {
  return isFields(value) && 'object' in value && EVENT_TYPES.some((type) => type === value['type']);
}
