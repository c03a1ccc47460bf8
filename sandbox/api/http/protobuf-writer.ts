/** One length-delimited field: a text, bytes, or an encoded message. */
export function field(number: number, value: string | Uint8Array): Buffer {
  const body = typeof value === 'string' ? Buffer.from(value) : value;
  return Buffer.concat([varint((number << 3) | 2), varint(body.length), body]);
}

/** A message of encoded fields. */
export function message(...fields: readonly Uint8Array[]): Buffer {
  return Buffer.concat(fields);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let left = value;
  while (left > 0x7f) {
    bytes.push((left & 0x7f) | 0x80);
    left >>>= 7;
  }
  bytes.push(left);
  return Buffer.from(bytes);
}
