/** The part of DER (X.690) that a certificate needs. */
function tagged(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([tag]), lengthOf(body.length), body]);
}

function lengthOf(length: number): Buffer {
  if (length < 0x80) return Buffer.from([length]);
  const bytes = length < 0x100 ? [length] : [length >> 8, length & 0xff];
  return Buffer.from([0x80 | bytes.length, ...bytes]);
}

export const sequence = (...parts: readonly Uint8Array[]): Buffer => tagged(0x30, ...parts);
export const setOf = (...parts: readonly Uint8Array[]): Buffer => tagged(0x31, ...parts);
export const octets = (bytes: Uint8Array): Buffer => tagged(0x04, bytes);
export const bits = (bytes: Uint8Array, unused = 0): Buffer =>
  tagged(0x03, Buffer.from([unused]), bytes);
export const text = (value: string): Buffer => tagged(0x0c, Buffer.from(value));
export const boolean = (value: boolean): Buffer => tagged(0x01, Buffer.from([value ? 0xff : 0]));
/** Constructed, context-specific: `[n] EXPLICIT`. */
export const explicit = (n: number, ...parts: readonly Uint8Array[]): Buffer =>
  tagged(0xa0 | n, ...parts);
/** Primitive, context-specific: `[n] IMPLICIT`. */
export const implicit = (n: number, bytes: Uint8Array): Buffer => tagged(0x80 | n, bytes);

/** A positive integer from its big-endian bytes. */
export function integer(bytes: Uint8Array): Buffer {
  let from = 0;
  while (from < bytes.length - 1 && bytes[from] === 0) from += 1;
  const trimmed = bytes.subarray(from);
  return tagged(
    0x02,
    (trimmed[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.from([0]), trimmed]) : trimmed,
  );
}

/** An object identifier in dotted notation; arcs below 2^28. */
export function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number);
  const bytes = [first * 40 + second];
  for (const arc of rest) {
    const groups = [arc & 0x7f];
    for (let left = arc >> 7; left > 0; left >>= 7) groups.unshift((left & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return tagged(0x06, Buffer.from(bytes));
}

/** UTCTime, which certificates use for dates before 2050. */
export function utcTime(at: Date): Buffer {
  return tagged(0x17, Buffer.from(`${at.toISOString().slice(2, 19).replace(/[-:T]/g, '')}Z`));
}
