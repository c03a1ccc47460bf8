/* Parses objects of the API server from the bytes of an answer without their managedFields. These
 * are up to half of an object, nothing here reads them, and each of their keys would stay in
 * memory. */
import { parseJson } from '../runtime/json.ts';

const MANAGED_FIELDS = Buffer.from('"managedFields":');
const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
export const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** Parses JSON without its members `managedFields`, at whatever depth, that are arrays or objects.
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
export class JsonNesting {
  depth = 0;
  isInString = false;
  #isEscaped = false;

  /** Goes on with a piece of an array or object.
   * @returns the position after its end; -1 if it goes on in the next piece, or if the first piece
   *   does not begin with a bracket */
  endOf(bytes: Buffer, from: number): number {
    if (this.depth === 0 && !isOpening(bytes[from] ?? 0)) return -1;
    for (let at = from; at < bytes.length;) {
      at = this.isInString ? this.#readString(bytes, at) : this.#readBrackets(bytes, at);
      if (this.depth === 0) return at;
    }
    return -1;
  }

  /** Goes on with one byte. */
  step(byte: number): void {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (this.isInString) {
      this.#isEscaped = byte === BACKSLASH;
      this.isInString = byte !== QUOTE;
    } else if (byte === QUOTE) this.isInString = true;
    else if (isOpening(byte)) this.depth += 1;
    else if (isClosing(byte)) this.depth -= 1;
  }

  /** @returns the position after the string, or the end of the piece */
  #readString(bytes: Buffer, from: number): number {
    let at = this.#isEscaped ? from + 1 : from;
    for (; at < bytes.length; at += 1) {
      const byte = bytes[at];
      if (byte === BACKSLASH) at += 1;
      else if (byte === QUOTE) {
        this.#isEscaped = false;
        this.isInString = false;
        return at + 1;
      }
    }
    this.#isEscaped = at > bytes.length;
    return bytes.length;
  }

  /** @returns the position after the next quote or the last bracket, or the end of the piece */
  #readBrackets(bytes: Buffer, from: number): number {
    let { depth } = this;
    let at = from;
    for (let isFound = false; !isFound && at < bytes.length; at += 1) {
      const byte = bytes[at] ?? 0;
      if (isOpening(byte)) depth += 1;
      else if (isClosing(byte)) depth -= 1;
      this.isInString = byte === QUOTE;
      isFound = this.isInString || depth === 0;
    }
    this.depth = depth;
    return at;
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
