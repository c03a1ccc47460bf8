/** Pieces of a text with a hole between each two; a plain text is one piece. */
type Template = readonly string[];

type Token =
  | { readonly kind: 'text'; readonly pieces: Template; readonly inside: readonly Token[] }
  | { readonly kind: 'word' | 'sign'; readonly text: string };

/** What the source of a test file says of the titles of its tests. */
export interface TestTitles {
  /** Of `it` and `test`; the title of a loop has a hole where the source puts something in. */
  readonly titles: readonly Template[];
  /** What may fill a hole: the texts, numbers and keys that the source spells out. */
  readonly fillers: readonly Template[];
}

/** Reads the titles in a source, without running it. */
export function readTitles(source: string): TestTitles {
  const tokens = new Scanner(source).tokens();
  // Which tests stand in a describe that is left out isn't read here: the whole file is taken for
  // left out then.
  const isLeftOut = tokens.some(
    (token, at) =>
      isWord(token, /^(describe|suite)$/) &&
      (isLeftOutBy(tokens, at) || isSign(tokens[at + 1], '.')),
  );
  return {
    titles: isLeftOut ? [] : tokens.flatMap((_, at) => titleAt(tokens, at)),
    fillers: fillersIn(tokens),
  };
}

/** Whether a call of a title and options has an option by which the test does not run. */
function isLeftOutBy(tokens: readonly Token[], at: number): boolean {
  if (!isSign(tokens[at + 4], '{')) return false;
  const end = tokens.findIndex((token, index) => index > at + 4 && isSign(token, '}'));
  return tokens.slice(at + 4, end).some((token) => isWord(token, /^(skip|todo)$/));
}

function isWord(token: Token | undefined, pattern: RegExp): boolean {
  return token?.kind === 'word' && pattern.test(token.text);
}

function titleAt(tokens: readonly Token[], at: number): readonly Template[] {
  const token = tokens[at];
  if (
    token?.kind !== 'word' ||
    !/^(it|test)$/.test(token.text) ||
    isSign(tokens[at - 1], '.') ||
    !isSign(tokens[at + 1], '(')
  )
    return [];
  const title = tokens[at + 2];
  if (title === undefined || !isSign(tokens[at + 3], ',') || isLeftOutBy(tokens, at)) return [];
  if (title.kind === 'text') return [title.pieces];
  return title.kind === 'word' ? [['', '']] : [];
}

function fillersIn(tokens: readonly Token[]): readonly Template[] {
  return tokens.flatMap((token, at) => {
    if (token.kind === 'text')
      return [...(isGivenFirst(tokens, at) ? [] : [token.pieces]), ...fillersIn(token.inside)];
    return token.kind === 'word' && (isSign(tokens[at + 1], ':') || /^\d/.test(token.text))
      ? [[token.text]]
      : [];
  });
}

/** The first argument of a call is no row of a table; it may be the title of another test. */
function isGivenFirst(tokens: readonly Token[], at: number): boolean {
  return isSign(tokens[at - 1], '(') && tokens[at - 2]?.kind === 'word';
}

/** Whether some test can have this title, whole. Each hole has to be filled with what the source
 * spells out, and `id`, which must be in the title, may not be put together of pieces: so a table
 * vouches for the numbers that it lists, and for no other. */
export function hasTitle({ titles, fillers }: TestTitles, title: string, id: string): boolean {
  const number = new RegExp(`\\b${id}\\b`, 'g');
  const seal = (text: string): string => text.replace(number, '\0');
  const sealed = seal(title);
  if (!sealed.includes('\0')) return false;
  const parts = fillers.map((pieces) => pieces.map(seal));
  return titles.some((pieces) =>
    ends(sealed, 0, pieces.map(seal), [parts, parts.filter(isPlain)]).includes(sealed.length),
  );
}

const isPlain = (pieces: Template): boolean => pieces.length === 1;

/** Where a template can end that begins at `from`. Its holes are filled from the first list;
 * theirs, if those have any, from the next. */
function ends(
  text: string,
  from: number,
  [piece = '', ...rest]: Template,
  fillers: readonly (readonly Template[])[],
): readonly number[] {
  if (!text.startsWith(piece, from)) return [];
  const at = from + piece.length;
  if (rest.length === 0) return [at];
  const [own = [], ...deeper] = fillers;
  const filled = new Set(own.flatMap((filler) => ends(text, at, filler, deeper)));
  return [...filled].flatMap((next) => ends(text, next, rest, fillers));
}

function isSign(token: Token | undefined, text: string): boolean {
  return token?.kind === 'sign' && token.text === text;
}

const SKIPPED = /(?:\s+|\/\/.*|\/\*[^]*?\*\/)+/y;
const QUOTED = /'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"/y;
const WORD = /[\w$]+/y;
const REGEX = /\/(?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/\w*/y;
const PIECE = /(?:[^`\\$]|\\[^]|\$(?!\{))*/y;

/** Cuts TypeScript into texts, words and signs; of comments and regular expressions nothing is left
 * but a slash. */
class Scanner {
  readonly #source: string;
  #at = 0;

  constructor(source: string) {
    this.#source = source;
  }

  /** Up to the end of the source, or of the hole of a template that it stands in. */
  tokens(): readonly Token[] {
    const found: Token[] = [];
    let last: Token | undefined;
    let depth = 0;
    for (this.#take(SKIPPED); this.#at < this.#source.length; this.#take(SKIPPED)) {
      if (depth === 0 && this.#source[this.#at] === '}') break;
      last = this.#next(mayBeginRegex(last));
      depth += isSign(last, '{') ? 1 : isSign(last, '}') ? -1 : 0;
      found.push(last);
    }
    return found;
  }

  #next(isRegexAllowed: boolean): Token {
    const sign = this.#source[this.#at] ?? '';
    if (sign === '`') return this.#template();
    const quoted = this.#take(QUOTED);
    if (quoted !== '')
      return { kind: 'text', pieces: [unescaped(quoted.slice(1, -1))], inside: [] };
    const word = this.#take(WORD);
    if (word !== '') return { kind: 'word', text: word };
    if (sign !== '/' || !isRegexAllowed || this.#take(REGEX) === '') this.#at += 1;
    return { kind: 'sign', text: sign };
  }

  #template(): Token {
    const inside: Token[] = [];
    this.#at += 1;
    const pieces = [unescaped(this.#take(PIECE))];
    while (this.#source.startsWith('${', this.#at)) {
      this.#at += 2;
      inside.push(...this.tokens());
      this.#at += 1;
      pieces.push(unescaped(this.#take(PIECE)));
    }
    this.#at += 1;
    return { kind: 'text', pieces, inside };
  }

  #take(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#source)?.[0] ?? '';
    this.#at += found.length;
    return found;
  }
}

/** A slash behind a value divides. */
function mayBeginRegex(last: Token | undefined): boolean {
  if (last?.kind === 'word') return /^(return|of|in|typeof|case)$/.test(last.text);
  return last?.kind !== 'text' && !/^[)\]}/]$/.test(last?.text ?? '');
}

function unescaped(text: string): string {
  return text.replace(/\\([^])/g, '$1');
}
