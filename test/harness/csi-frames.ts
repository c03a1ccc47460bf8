/* HTTP/2 frames as bytes, for callers that behave as no library does. */

/** The first bytes of every client. */
export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

/** One frame (RFC 9113 section 4.1). */
export function frame(
  type: number,
  options: { readonly flags?: number; readonly stream?: number; readonly payload?: Buffer } = {},
): Buffer {
  const { flags = 0, stream = 0, payload = Buffer.alloc(0) } = options;
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

export const EMPTY_SETTINGS = frame(4);

/** SETTINGS and WINDOW_UPDATE of a client that accepts responses of any size. */
export const ENDLESS_WINDOWS = Buffer.concat([
  frame(4, { payload: Buffer.from([0, 4, 0x7f, 0xff, 0xff, 0xff]) }),
  frame(8, { payload: Buffer.from([0x7f, 0, 0, 0]) }),
]);

/** The frames of a complete call with an empty request. */
export function emptyCall(stream: number, path: string): Buffer {
  const headers = {
    ':method': 'POST',
    ':scheme': 'http',
    ':authority': 'localhost',
    ':path': path,
    'content-type': 'application/grpc',
  };
  // HPACK literals without indexing; no text here is longer than 126 bytes.
  const literals = Object.entries(headers).flatMap(([name, value]) => [
    0,
    name.length,
    ...Buffer.from(name),
    value.length,
    ...Buffer.from(value),
  ]);
  return Buffer.concat([
    frame(1, { flags: 4, stream, payload: Buffer.from(literals) }),
    frame(0, { flags: 1, stream, payload: Buffer.alloc(5) }),
  ]);
}
