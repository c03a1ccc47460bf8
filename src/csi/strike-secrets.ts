import { STRIPPED } from '../runtime/loggable.ts';
import { shorten } from '../runtime/printable.ts';
import { type TextView, viewsOf } from './text-views.ts';

/** Stands for a text of the driver that is kept back because it can't be searched for secrets. */
export const WITHHELD = {
  short:
    "the driver's message is withheld, because a value of the call's secret is shorter than 4 " +
    "characters and can't be struck from it; see the driver's own log, or let jobs show it with " +
    '--show-messages-with-short-secrets',
  unsearchable:
    "the driver's message is withheld, because it can't be searched for values of the call's " +
    "secret; see the driver's own log",
} as const;

/** Shorter values stay in a text: striking them would garble it and show where they were. */
const MIN_CHARACTERS = 4;
/** So many bytes of a longer value are struck by themselves: a driver may cut what it shows. */
const PIECE_BYTES = 24;

/** Removes the secrets of a call from a text of the driver: some drivers quote what they received.
 * A value is found also if it is trimmed, escaped, quoted, percent-encoded, in base64 or in hex (or
 * in several of these at once), in other upper and lower case, and by each of its lines. Takes time
 * in proportion to text and secrets together. */
export function strikeSecrets(text: string, secrets: Iterable<string>): string {
  const pieces = collectPieces(secrets);
  if (pieces.size === 0 || text === '') return text;
  const views = viewsOf(text);
  if (views === undefined) return WITHHELD.unsearchable;
  const { bytes, from, to } = joinViews(views);
  const isStruck = new Uint8Array(Buffer.byteLength(text));
  for (const [length, values] of pieces) {
    const onFound = (start: number): void => {
      isStruck.fill(1, from[start], to[start + length - 1]);
    };
    findPieces(fold(bytes), { length, values, onFound });
  }
  return isStruck.includes(1) ? replaceStruck(Buffer.from(text, 'utf8'), isStruck) : text;
}

/** Never a part of UTF-8, so that nothing is found across two views. */
const BETWEEN_VIEWS = 0xff;

/** All views in a row, so that each secret is searched for once. */
function joinViews(views: readonly TextView[]): TextView {
  const length = views.reduce((sum, view) => sum + view.bytes.length + 1, 0);
  const joined = {
    bytes: Buffer.alloc(length, BETWEEN_VIEWS),
    from: new Int32Array(length),
    to: new Int32Array(length),
  };
  let start = 0;
  for (const view of views) {
    joined.bytes.set(view.bytes, start);
    joined.from.set(view.from, start);
    joined.to.set(view.to, start);
    start += view.bytes.length + 1;
  }
  return joined;
}

/** The longest text of a driver that is shown; with what is said around it, it fits an event. */
const MAX_SHOWN_CHARACTERS = 800;

/** A text of the driver as it may be shown: cut, and without the secrets of the call, or withheld
 * where a value is too short to be struck.
 * @param o.showsShort  shows the text all the same, with the short values in it */
export function redactDriverText(
  text: string,
  secrets: readonly string[],
  { showsShort }: { readonly showsShort: boolean },
): string {
  if (hasShortValue(secrets) && !showsShort) return WITHHELD.short;
  // Cut afterwards: a part of a secret at the end would not be found.
  return shorten(strikeSecrets(text, secrets), MAX_SHOWN_CHARACTERS);
}

/** Whether a value is too short to be struck. A value without characters hides nothing. */
function hasShortValue(secrets: Iterable<string>): boolean {
  return [...secrets].some((secret) => {
    const { length } = trim(secret);
    return length > 0 && length < MIN_CHARACTERS;
  });
}

/** What to search for, by the length of the pieces: the values, and each without surrounding white
 * space and quotes, and their lines. */
function collectPieces(secrets: Iterable<string>): ReadonlyMap<number, readonly Buffer[]> {
  const texts = new Set<string>();
  for (const secret of secrets) {
    if (secret.length >= MIN_CHARACTERS) texts.add(secret);
    // A longer part of a value is found by the value's own pieces.
    for (const part of [trim(secret), ...secret.split(/[\r\n]/).map(trim)])
      if (part.length >= MIN_CHARACTERS && part.length < PIECE_BYTES) texts.add(part);
  }
  const byLength = new Map<number, Buffer[]>();
  for (const text of texts) {
    const bytes = fold(Buffer.from(text, 'utf8'));
    const length = Math.min(bytes.length, PIECE_BYTES);
    const values = byLength.get(length);
    if (values === undefined) byLength.set(length, [bytes]);
    else values.push(bytes);
  }
  return byLength;
}

const AROUND = /[\s"'`]/;

/** Removes white space and quotes at both ends. A loop, since a RegExp for the end of a text takes
 * quadratic time. */
function trim(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && AROUND.test(text[start] ?? '')) start += 1;
  while (end > start && AROUND.test(text[end - 1] ?? '')) end -= 1;
  return text.slice(start, end);
}

/** Upper case becomes lower case, and "+", which stands for a space in forms, a space. */
const FOLDED = Uint8Array.from({ length: 256 }, (_, byte) => {
  if (byte === 0x2b) return 0x20;
  return byte >= 0x41 && byte <= 0x5a ? byte + 0x20 : byte;
});

function fold(bytes: Buffer): Buffer {
  const folded = Buffer.allocUnsafe(bytes.length);
  for (let index = 0; index < bytes.length; index += 1)
    folded[index] = FOLDED[bytes[index] ?? 0] ?? 0;
  return folded;
}

interface Search {
  /** Bytes of a piece. */
  readonly length: number;
  readonly values: readonly Buffer[];
  /** Called once for each place of a piece. */
  readonly onFound: (start: number) => void;
}

/** Finds where any `length` bytes in a row of the values occur in the text. */
function findPieces(text: Buffer, { length, values, onFound }: Search): void {
  if (text.length < length) return;
  const index = new PieceIndex(text, length);
  for (const value of values)
    forEachHash(value, length, (start, hash) => {
      if (index.has(hash)) index.take(value, start, hash).forEach(onFound);
    });
}

/** All pieces of one length in a text, by their hash. */
class PieceIndex {
  readonly #text: Buffer;
  readonly #length: number;
  /** By the lowest bits of the hash: the first place with such a hash, or -1. */
  readonly #first: Int32Array;
  /** By place: the next one, or -1. */
  readonly #next: Int32Array;

  constructor(text: Buffer, length: number) {
    this.#text = text;
    this.#length = length;
    this.#first = new Int32Array(2 ** Math.ceil(Math.log2(text.length * 2))).fill(-1);
    this.#next = new Int32Array(text.length);
    forEachHash(text, length, (start, hash) => {
      const slot = this.#slot(hash);
      this.#next[start] = this.#first[slot] ?? -1;
      this.#first[slot] = start;
    });
  }

  has(hash: number): boolean {
    return this.#first[this.#slot(hash)] !== -1;
  }

  /** Removes the places of one piece of a value and returns them. As they are removed, a text and a
   * value that repeat themselves don't take quadratic time. */
  take(value: Buffer, start: number, hash: number): readonly number[] {
    const taken: number[] = [];
    const kept: number[] = [];
    const slot = this.#slot(hash);
    const length = this.#length;
    for (let place = this.#first[slot] ?? -1; place !== -1; place = this.#next[place] ?? -1) {
      const order = this.#text.compare(value, start, start + length, place, place + length);
      (order === 0 ? taken : kept).push(place);
    }
    this.#first[slot] = -1;
    for (const place of kept) {
      this.#next[place] = this.#first[slot] ?? -1;
      this.#first[slot] = place;
    }
    return taken;
  }

  #slot(hash: number): number {
    return (hash ^ (hash >>> 15)) & (this.#first.length - 1);
  }
}

const FACTOR = 0x01_00_01_93;

/** Calls back with the hash of each `length` bytes in a row; each is computed from the one before
 * (Rabin and Karp). */
function forEachHash(
  bytes: Buffer,
  length: number,
  onHash: (start: number, hash: number) => void,
): void {
  let leaving = 1;
  for (let count = 1; count < length; count += 1) leaving = Math.imul(leaving, FACTOR);
  let hash = 0;
  for (let end = 0; end < bytes.length; end += 1) {
    const start = end - length + 1;
    if (start > 0) hash = (hash - Math.imul(bytes[start - 1] ?? 0, leaving)) | 0;
    hash = (Math.imul(hash, FACTOR) + (bytes[end] ?? 0)) | 0;
    if (start >= 0) onHash(start, hash);
  }
}

/** Replaces the characters all of whose bytes are struck. */
function replaceStruck(bytes: Buffer, isStruck: Uint8Array): string {
  const parts: Buffer[] = [];
  let shownFrom = 0;
  for (let start = 0, end = 1; start < bytes.length; start = end, end += 1) {
    while (isWithinCharacter(bytes[end])) end += 1;
    if (isStruck.subarray(start, end).includes(0)) continue;
    if (shownFrom < start || start === 0) parts.push(bytes.subarray(shownFrom, start), REPLACEMENT);
    shownFrom = end;
  }
  return Buffer.concat([...parts, bytes.subarray(shownFrom)]).toString('utf8');
}

const REPLACEMENT = Buffer.from(STRIPPED);

/** Whether a byte of UTF-8 continues a character. */
function isWithinCharacter(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}
