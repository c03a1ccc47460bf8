import { isUtf8 } from 'node:buffer';
import { badField } from './problem.ts';

/** Deeper than any object of Kubernetes. */
const MAX_DEPTH = 100;
/** Lists, objects and commas: ten times as many as a thousand events have. A body of nothing but
 * these would take ten times its size when it is parsed, and a tenth of a second. */
const MAX_PARTS = 200_000;

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const OPENING = new Set([0x5b, 0x7b]);
const CLOSING = new Set([0x5d, 0x7d]);
/** Whether a byte outside a string matters for the shape: the brackets, comma and quote. */
const SHAPES = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte === QUOTE || byte === COMMA || OPENING.has(byte) || CLOSING.has(byte) ? 1 : 0,
);

/** Parses one JSON document.
 * @param field  what it is, for the problem: `body`, or a path in it
 * @throws RequestProblem, which names the place and quotes nothing */
export function parseDocument(bytes: Buffer, field: string): unknown {
  if (bytes.length === 0)
    throw badField(
      field,
      'it is empty: send the event as JSON (in Argo Events, give the HTTP trigger a payload)',
    );
  if (!isUtf8(bytes)) throw badField(field, 'it is not valid UTF-8');
  checkShape(bytes, field);
  try {
    return JSON.parse(bytes.toString('utf8').replace(/^\uFEFF/, '')) as unknown;
  } catch (error) {
    const place = /at position (\d+)/.exec(String(error))?.[1];
    const where = place === undefined ? '' : ` from character ${place} on`;
    throw badField(field, `it is not JSON${where}: send one JSON document for each request`);
  }
}

/** Refuses what costs more to parse than its size, before it is parsed. */
function checkShape(bytes: Buffer, field: string): void {
  let depth = 0;
  let parts = 0;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0;
    if (SHAPES[byte] === 0) continue;
    if (byte === QUOTE) {
      at = endOfString(bytes, at);
      continue;
    }
    if (OPENING.has(byte)) depth += 1;
    else if (CLOSING.has(byte)) depth -= 1;
    parts += 1;
    if (depth > MAX_DEPTH)
      throw badField(field, `it is nested deeper than ${MAX_DEPTH} levels, at byte ${at}`);
  }
  if (parts > MAX_PARTS) throw badField(field, `it has more than ${MAX_PARTS} parts`);
}

/** The place of the quote that ends the string. */
function endOfString(bytes: Buffer, start: number): number {
  for (let at = start + 1; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (byte === BACKSLASH) at += 1;
    else if (byte === QUOTE) return at;
  }
  return bytes.length;
}

/** Decodes base64 strictly: Node's decoder skips what it does not know.
 * @returns undefined if it is none */
export function decodeBase64(text: string): Buffer | undefined {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text) || text.length % 4 !== 0) return undefined;
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? bytes : undefined;
}
