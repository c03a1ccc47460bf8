/** One field of length-delimited wire type: a text, bytes, or a message that was already written.
 */
export function field(number: number, value: string | Uint8Array): Buffer {
  const body = typeof value === 'string' ? Buffer.from(value) : value;
  return Buffer.concat([varint((number << 3) | 2), varint(body.length), body]);
}

/** Fields put together to a message. */
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
