/* Decodes what the API server sends as it arrives: objects, pages of lists, events of a watch. */
import { excerpt, isFields, parseJson } from '../runtime/json.ts';
import { type KubeError, undecodableError } from './kube-error.ts';

const MANAGED_FIELDS = Buffer.from('"managedFields":');
const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** Parses JSON without its members `managedFields`, at whatever depth, that are arrays or objects.
 * They are up to half of an object, nothing here reads them, and each of their keys would stay in
 * memory.
 * @returns undefined if the text is not JSON */
export function parseObject(bytes: Buffer): unknown {
  let text = '';
  let from = 0;
  for (const { start, end } of managedFieldsIn(bytes)) {
    text += bytes.toString('utf8', from, start);
    from = end;
  }
  return parseJson(text + bytes.toString('utf8', from));
}

/** Where the members begin and end, each with one of its commas. A quote after a brace or comma
 * begins a string: within a string it would be escaped, and after a string that it ends nothing but
 * punctuation may follow. So what is found is the name of a member, not a part of a text. */
function* managedFieldsIn(bytes: Buffer): Generator<{ start: number; end: number }> {
  let at = bytes.indexOf(MANAGED_FIELDS);
  while (at !== -1) {
    const valueAt = at + MANAGED_FIELDS.length;
    const isAfterComma = bytes[at - 1] === COMMA;
    const isMember = isAfterComma || bytes[at - 1] === OPEN_BRACE;
    const end = isMember ? new JsonNesting().endOf(bytes, valueAt) : -1;
    if (end !== -1)
      yield isAfterComma ? { start: at - 1, end } : { start: at, end: afterComma(bytes, end) };
    at = bytes.indexOf(MANAGED_FIELDS, Math.max(end, valueAt));
  }
}

/** The position after a comma that follows; the given one if none does. */
function afterComma(bytes: Buffer, from: number): number {
  let at = from;
  while ((bytes[at] ?? QUOTE) <= 0x20) at += 1;
  return bytes[at] === COMMA ? at + 1 : from;
}

/** Follows brackets and strings of a JSON text over any number of pieces. */
class JsonNesting {
  depth = 0;
  isInString = false;
  #isEscaped = false;

  /** Goes on with a piece of an array or object.
   * @returns the position after its end; -1 if it goes on in the next piece, or if the first piece
   *   does not begin with a bracket */
  endOf(bytes: Buffer, from: number): number {
    if (this.depth === 0 && !isOpening(bytes[from] ?? 0)) return -1;
    for (let at = from; at < bytes.length; at += 1) {
      this.step(bytes[at] ?? 0);
      if (this.depth === 0) return at + 1;
    }
    return -1;
  }

  step(byte: number): void {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (this.isInString) {
      this.#isEscaped = byte === BACKSLASH;
      this.isInString = byte !== QUOTE;
    } else if (byte === QUOTE) this.isInString = true;
    else if (isOpening(byte)) this.depth += 1;
    else if (isClosing(byte)) this.depth -= 1;
  }
}

/** In ASCII, brackets and braces differ in one bit. */
const BRACE_BIT = 0x20;

function isOpening(byte: number): boolean {
  return (byte | BRACE_BIT) === OPEN_BRACE;
}

function isClosing(byte: number): boolean {
  return (byte | BRACE_BIT) === CLOSE_BRACE;
}

/** What a page of a list says besides its items. */
export interface PageInfo {
  readonly resourceVersion: string;
  /** Absent on the last page. */
  readonly continueToken?: string;
}

/** Stands in the frame for an item that was cut out: the digit 0. */
const PLACEHOLDER = Buffer.of(0x30);
const ITEMS_BEGIN = /[{,]\s*"items"\s*:\s*\[$/;

/** Cuts a page of a list into its items as it arrives, so that it is never in memory as a whole.
 * What is left of the page, its frame, is parsed at the end. Items come without managedFields;
 * what is no object is no item. */
export class ListDecoder {
  readonly #title: string;
  readonly #onItem: (item: unknown) => void;
  /** Pieces of the page without its items. */
  readonly #frame: Buffer[] = [];
  readonly #nesting = new JsonNesting();
  #isInItems = false;
  /** Pieces of an item that is not complete, and where it stands. */
  #item: { readonly pieces: Buffer[]; readonly nesting: JsonNesting } | undefined;

  /** @param title  of the call, for errors */
  constructor(title: string, onItem: (item: unknown) => void) {
    this.#title = title;
    this.#onItem = onItem;
  }

  /** Takes the next bytes.
   * @throws KubeError if an item is not JSON, and what `onItem` throws */
  push(chunk: Buffer): void {
    for (let at = 0; at < chunk.length;)
      at = this.#item === undefined ? this.#readFrame(chunk, at) : this.#readItem(chunk, at);
  }

  /** To be called at the end of the page.
   * @throws KubeError if it is not a complete JSON object */
  end(): PageInfo {
    const frame = Buffer.concat(this.#frame).toString('utf8');
    const page = parseJson(frame);
    if (!isFields(page))
      throw undecodableError(this.#title, `the answer is not a list: ${excerpt(frame)}`);
    // The name "items" may be written with escapes; then nothing was cut out.
    if (Array.isArray(page['items'])) page['items'].filter(isFields).forEach(this.#onItem);
    const metadata = isFields(page['metadata']) ? page['metadata'] : {};
    const { resourceVersion = '', continue: next = '' } = metadata;
    return {
      resourceVersion: String(resourceVersion),
      ...(next === '' ? {} : { continueToken: String(next) }),
    };
  }

  /** @returns where an item begins, or the chunk ends */
  #readFrame(chunk: Buffer, from: number): number {
    let at = from;
    while (at < chunk.length && this.#item === undefined) {
      const byte = chunk[at] ?? 0;
      const { depth, isInString } = this.#nesting;
      if (isInString || depth !== 2 || byte !== OPEN_BRACE || !this.#isInItems) {
        this.#nesting.step(byte);
        at += 1;
        // Of what begins within the list itself, only "items" has a list of items.
        if (depth === 1 && this.#nesting.depth === 2)
          this.#isInItems = this.#endsWithItems(chunk.subarray(from, at));
      } else this.#item = { pieces: [], nesting: new JsonNesting() };
    }
    // Copied, so that the frame does not keep whole chunks in memory.
    this.#frame.push(Buffer.from(chunk.subarray(from, at)));
    if (this.#item !== undefined) this.#frame.push(PLACEHOLDER);
    return at;
  }

  /** @returns where the item ends, or the chunk */
  #readItem(chunk: Buffer, from: number): number {
    if (this.#item === undefined) return from;
    const { pieces, nesting } = this.#item;
    const end = nesting.endOf(chunk, from);
    if (end === -1) {
      pieces.push(chunk.subarray(from));
      return chunk.length;
    }
    this.#item = undefined;
    const last = chunk.subarray(from, end);
    const item = parseObject(pieces.length === 0 ? last : Buffer.concat([...pieces, last]));
    if (item === undefined) throw undecodableError(this.#title, 'an item of the list is not JSON');
    this.#onItem(item);
    return end;
  }

  #endsWithItems(last: Buffer): boolean {
    return ITEMS_BEGIN.test(Buffer.concat([...this.#frame, last]).toString('utf8'));
  }
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
