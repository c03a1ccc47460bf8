import { type Fields, isFields } from '../runtime/json.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** In ASCII, brackets and braces differ in one bit. */
const BRACE_BIT = 0x20;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
/** Depth of an item: inside the list and its array. */
const ITEM_DEPTH = 3;

/** Parses a list of the API server, each item by itself. Parsed as one text, each page would stay
 * in memory until the next full collection: 80 MiB more for 20,000 PVs and claims.
 * @returns the list, whose items are objects; undefined if it is not a JSON object */
export function parseList(json: Buffer): (Fields & { readonly items: Fields[] }) | undefined {
  const cut: unknown[] = [];
  // The list, with a number in the place of each item.
  let frame = '';
  let framed = 0;
  try {
    for (const { start, end } of itemsIn(json)) {
      frame += json.toString('utf8', framed, start) + String(cut.length);
      framed = end;
      cut.push(JSON.parse(json.toString('utf8', start, end)));
    }
    const list: unknown = JSON.parse(frame + json.toString('utf8', framed));
    if (!isFields(list)) return undefined;
    const numbers = Array.isArray(list['items']) ? list['items'] : [];
    return { ...list, items: numbers.map((number) => cut[Number(number)]).filter(isFields) };
  } catch {
    return undefined;
  }
}

/** Finds where each item begins and ends. */
function* itemsIn(json: Buffer): Generator<{ readonly start: number; readonly end: number }> {
  let depth = 0;
  let start = 0;
  for (let at = 0; at < json.length; at += 1) {
    const byte = json[at] ?? 0;
    if (byte === QUOTE) at = endOfString(json, at);
    else if ((byte | BRACE_BIT) === OPEN_BRACE) {
      depth += 1;
      if (depth === ITEM_DEPTH) start = at;
    } else if ((byte | BRACE_BIT) === CLOSE_BRACE) {
      if (depth === ITEM_DEPTH) yield { start, end: at + 1 };
      depth -= 1;
    }
  }
}

/** @param from  position of the string's first quote
 * @returns the position of its last quote */
function endOfString(json: Buffer, from: number): number {
  for (let at = from + 1; at < json.length; at += 1)
    if (json[at] === BACKSLASH) at += 1;
    else if (json[at] === QUOTE) return at;
  return json.length;
}
