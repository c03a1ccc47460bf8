/* Decodes what the API server sends: objects, and the events of a watch as they arrive. */
import { excerpt, isFields, parseJson } from '../runtime/json.ts';
import { type KubeError, undecodableError } from './kube-error.ts';

const MANAGED_FIELDS = '"managedFields":';

/** Parses JSON without its members `managedFields`, at whatever depth, that are arrays or objects.
 * They are up to half of an object, nothing here reads them, and each of their keys would stay in
 * memory.
 * @returns undefined if the text is not JSON */
export function parseObject(text: string): unknown {
  let kept = '';
  let from = 0;
  for (const { start, end } of managedFieldsIn(text)) {
    kept += text.slice(from, start);
    from = end;
  }
  return parseJson(kept + text.slice(from));
}

/** Where the members begin and end, each with one of its commas. A quote after a brace or comma
 * begins a string: within a string it would be escaped, and after a string that it ends nothing but
 * punctuation may follow. So what is found is the name of a member, not a part of a text. */
function* managedFieldsIn(text: string): Generator<{ start: number; end: number }> {
  let at = text.indexOf(MANAGED_FIELDS);
  while (at !== -1) {
    const valueAt = at + MANAGED_FIELDS.length;
    const isAfterComma = text[at - 1] === ',';
    const isMember = isAfterComma || text[at - 1] === '{';
    const end = isMember ? endOfValue(text, valueAt) : -1;
    if (end !== -1)
      yield isAfterComma ? { start: at - 1, end } : { start: at, end: afterComma(text, end) };
    at = text.indexOf(MANAGED_FIELDS, Math.max(end, valueAt));
  }
}

/** A string as a whole, or a bracket. */
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{}]/g;

/** The position after the array or object that begins here; -1 if none does, or it has no end. */
function endOfValue(text: string, from: number): number {
  if (text[from] !== '[' && text[from] !== '{') return -1;
  TOKEN.lastIndex = from;
  let depth = 0;
  for (let found = TOKEN.exec(text); found !== null; found = TOKEN.exec(text)) {
    const [token] = found;
    if (token === '[' || token === '{') depth += 1;
    else if (token === ']' || token === '}') depth -= 1;
    if (depth === 0) return TOKEN.lastIndex;
  }
  return -1;
}

/** The position after a comma that follows; the given one if none does. */
function afterComma(text: string, from: number): number {
  const found = /\s*,/y;
  found.lastIndex = from;
  return found.test(text) ? found.lastIndex : from;
}

const EVENT_TYPES = ['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR'] as const;

/** One line of a watch. The object of an ERROR is a Status; that of a BOOKMARK has only metadata;
 * the others come without managedFields. */
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
    const text = bytes.toString('utf8');
    const value = parseObject(text);
    if (!isEvent(value)) throw this.#error(excerpt(text));
    this.#onEvent(value);
  }

  #error(why: string): KubeError {
    return undecodableError(this.#title, `not a watch event: ${why}`);
  }
}

function isEvent(value: unknown): value is WatchEvent {
  return isFields(value) && 'object' in value && EVENT_TYPES.some((type) => type === value['type']);
}
