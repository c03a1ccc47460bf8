/** Letters, marks, numbers, punctuation, symbols and the plain space: what Go prints unescaped. */
const PRINTABLE = /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]$/u;

const ESCAPES: Readonly<Record<string, string>> = {
  '"': '\\"',
  '\\': '\\\\',
  '\u0007': '\\a',
  '\b': '\\b',
  '\f': '\\f',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\v': '\\v',
};

/** Quotes a user's text as upstream's messages do: on one line, with invisible characters escaped.
 * @see Go strconv.Quote */
export function quote(text: string): string {
  return `"${Array.from(text, escape).join('')}"`;
}

function escape(character: string): string {
  const known = ESCAPES[character];
  if (known !== undefined) return known;
  if (PRINTABLE.test(character)) return character;
  const point = Number(character.codePointAt(0));
  const hex = (digits: number): string => point.toString(16).padStart(digits, '0');
  if (point < 0x20 || point === 0x7f) return `\\x${hex(2)}`;
  return point < 0x10000 ? `\\u${hex(4)}` : `\\U${hex(8)}`;
}
