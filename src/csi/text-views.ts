/** A text as one way of decoding shows it: its bytes, and from which bytes of the original text
 * each of them came. */
export interface TextView {
  readonly bytes: Buffer;
  /** First byte of the original text, by index in `bytes`. */
  readonly from: Int32Array;
  /** The byte behind the last one. */
  readonly to: Int32Array;
}

/** Bytes to look at in all views of one text. A text with so many nested encodings is none that a
 * person should read. */
const MAX_BYTES = 2 * 1024 * 1024;
/** Encodings within one another, as JSON in a quoted Go string in a URL. */
const MAX_DEPTH = 3;

/** The text itself, and what is left of it when percent-encoding, backslash escapes, doubled
 * quotes, base64 and hex in it are decoded, also within one another. A part that is not encoded
 * decodes to nonsense, which does no harm to a search.
 * @returns undefined if there are too many bytes to look at */
export function viewsOf(text: string): readonly TextView[] | undefined {
  const original = plainView(text);
  const views = [original];
  let bytes = original.bytes.length;
  const queue: Step[] = [{ view: original, depth: 0, isPacked: false }];
  for (let step = queue.shift(); step !== undefined; step = queue.shift()) {
    for (const next of decodeOnce(step)) {
      const { view } = next;
      if (views.some((known) => known.bytes.equals(view.bytes))) continue;
      bytes += view.bytes.length;
      if (bytes > MAX_BYTES) return undefined;
      views.push(view);
      if (next.depth < MAX_DEPTH) queue.push(next);
    }
  }
  return views;
}

interface Step {
  readonly view: TextView;
  readonly depth: number;
  /** Whether base64 or hex was decoded on the way. Both turn ordinary words into bytes, so that
   * decoding them again and again would never end. */
  readonly isPacked: boolean;
}

function decodeOnce({ view, depth, isPacked }: Step): readonly Step[] {
  const latin1 = view.bytes.toString('latin1');
  const escaped = ESCAPES.map((escape) => replaceTokens(view, latin1, escape));
  const packed = isPacked ? [] : PACKINGS.map((packing) => unpack(view, latin1, packing));
  const toStep = (next: TextView | undefined, packedNow: boolean): readonly Step[] =>
    next === undefined ? [] : [{ view: next, depth: depth + 1, isPacked: packedNow }];
  return [
    ...escaped.flatMap((next) => toStep(next, isPacked)),
    ...packed.flatMap((next) => toStep(next, true)),
  ];
}

function plainView(text: string): TextView {
  const bytes = Buffer.from(text, 'utf8');
  const from = Int32Array.from(bytes.keys());
  return { bytes, from, to: from.map((index) => index + 1) };
}

/** An encoding of single characters. */
interface Escape {
  /** Matches what stands for a character, in the view's bytes as Latin-1. */
  readonly token: RegExp;
  readonly decode: (match: RegExpExecArray) => Uint8Array;
}

const HEX = '[0-9a-fA-F]';
/** A surrogate pair, a character by its number, a byte, or a letter. */
const BACKSLASH = [
  String.raw`\\(?:u([dD][89abAB]${HEX}{2})\\u([dD][c-fC-F]${HEX}{2})`,
  `u(${HEX}{4})`,
  `U(${HEX}{8})`,
  `x(${HEX}{2})`,
  '([0-7]{1,3})',
  '([^]))',
].join('|');

const ESCAPES: readonly Escape[] = [
  { token: /%([0-9a-f]{2})/gi, decode: ([, hex = '']) => Buffer.from(hex, 'hex') },
  // JSON, Go's %q, C, and a shell's backslashes.
  { token: new RegExp(BACKSLASH, 'g'), decode: decodeBackslash },
  // The same where every backslash was escaped again, or stands behind one that belongs to what is
  // before it.
  { token: new RegExp(`\\\\*${BACKSLASH}`, 'g'), decode: decodeBackslash },
  // Quotes within quotes of a shell, and doubled ones of SQL, CSV and YAML.
  {
    token: /'\\''|'"'"'|''|""/g,
    decode: ([token]) => Buffer.from(token.slice(0, 1)),
  },
];

const LETTERS: Readonly<Record<string, string>> = {
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
};

function decodeBackslash(match: RegExpExecArray): Uint8Array {
  const [, high, low, short, long, hex, octal, other = ''] = match;
  if (high !== undefined && low !== undefined)
    return Buffer.from(String.fromCharCode(Number.parseInt(high, 16), Number.parseInt(low, 16)));
  const point = Number.parseInt(short ?? long ?? '', 16);
  if (point <= 0x10_ffff) return Buffer.from(String.fromCodePoint(point));
  if (hex !== undefined) return Buffer.from(hex, 'hex');
  if (octal !== undefined) return Buffer.of(Number.parseInt(octal, 8) & 0xff);
  return Buffer.from(LETTERS[other] ?? other, 'latin1');
}

/** @returns undefined if nothing is encoded */
function replaceTokens(view: TextView, latin1: string, escape: Escape): TextView | undefined {
  const result = new ViewBuilder(view);
  let end = 0;
  for (const match of latin1.matchAll(escape.token)) {
    result.copy(end, match.index);
    end = match.index + match[0].length;
    for (const byte of escape.decode(match)) result.add(byte, match.index, end);
  }
  if (end === 0) return undefined;
  result.copy(end, latin1.length);
  return result.build();
}

/** An encoding of whole texts, read from one of its possible beginnings. */
interface Packing {
  readonly encoding: 'base64' | 'hex';
  readonly bitsPerCharacter: number;
  /** Matches a run of its characters, long enough for a secret of four bytes. */
  readonly run: RegExp;
  /** Matches what may be between the digits of a run. */
  readonly separators: RegExp;
  /** Characters of a run that are left out. */
  readonly skipped: number;
}

/** Runs may be broken into lines. */
const BASE64_RUN = /[\w+/-]{2,}(?:\r?\n[ \t]*[\w+/-]+)*/g;
/** Or bytes with a space, a colon or a hyphen between them. */
const HEX_RUN = /[0-9a-f]{8,}|[0-9a-f]{2}(?:[ :-][0-9a-f]{2}){3,}/gi;

const PACKINGS: readonly Packing[] = [
  ...[0, 1, 2, 3].map((skipped) => ({
    encoding: 'base64' as const,
    bitsPerCharacter: 6,
    run: BASE64_RUN,
    separators: /\s+/g,
    skipped,
  })),
  ...[0, 1].map((skipped) => ({
    encoding: 'hex' as const,
    bitsPerCharacter: 4,
    run: HEX_RUN,
    separators: /[ :-]/g,
    skipped,
  })),
];

/** Never a part of UTF-8, so that no secret is found across two runs. */
const BETWEEN_RUNS = 0xff;

/** @returns undefined if there are no runs */
function unpack(view: TextView, latin1: string, packing: Packing): TextView | undefined {
  const { encoding, bitsPerCharacter, run, separators, skipped } = packing;
  const result = new ViewBuilder(view);
  let hasRuns = false;
  for (const match of latin1.matchAll(run)) {
    const digits = match[0].replaceAll(separators, '').slice(skipped);
    const bytes = Buffer.from(digits, encoding);
    const position = locateDigits(match, digits.length + skipped, separators);
    for (let index = 0; index < bytes.length; index += 1) {
      const first = position(skipped + Math.floor((index * 8) / bitsPerCharacter));
      const last = position(skipped + Math.floor((index * 8 + 7) / bitsPerCharacter));
      result.add(bytes[index] ?? 0, first, last + 1);
    }
    result.add(BETWEEN_RUNS, match.index, match.index + 1);
    hasRuns ||= bytes.length > 0;
  }
  return hasRuns ? result.build() : undefined;
}

/** @returns a function that says where in the view the digit with a given number is */
function locateDigits(
  match: RegExpExecArray,
  count: number,
  separators: RegExp,
): (digit: number) => number {
  const [run] = match;
  if (run.length === count) return (digit) => match.index + digit;
  const isSeparator = new Uint8Array(run.length);
  for (const found of run.matchAll(separators))
    isSeparator.fill(1, found.index, found.index + found[0].length);
  const places = Int32Array.from(isSeparator.keys()).filter((at) => isSeparator[at] === 0);
  return (digit) => match.index + (places[digit] ?? run.length - 1);
}

/** Puts a view together from parts of another one. No encoding is shorter than what it encodes. */
class ViewBuilder {
  readonly #source: TextView;
  readonly #bytes: Buffer;
  readonly #from: Int32Array;
  readonly #to: Int32Array;
  #length = 0;

  constructor(source: TextView) {
    const { length } = source.bytes;
    this.#source = source;
    this.#bytes = Buffer.allocUnsafe(length);
    this.#from = new Int32Array(length);
    this.#to = new Int32Array(length);
  }

  /** Adds bytes of the source as they are. */
  copy(start: number, end: number): void {
    this.#bytes.set(this.#source.bytes.subarray(start, end), this.#length);
    this.#from.set(this.#source.from.subarray(start, end), this.#length);
    this.#to.set(this.#source.to.subarray(start, end), this.#length);
    this.#length += end - start;
  }

  /** Adds a byte that `start` to `end` of the source stand for. */
  add(byte: number, start: number, end: number): void {
    this.#bytes[this.#length] = byte;
    this.#from[this.#length] = this.#source.from[start] ?? 0;
    this.#to[this.#length] = this.#source.to[end - 1] ?? 0;
    this.#length += 1;
  }

  build(): TextView {
    return {
      bytes: this.#bytes.subarray(0, this.#length),
      from: this.#from.subarray(0, this.#length),
      to: this.#to.subarray(0, this.#length),
    };
  }
}
