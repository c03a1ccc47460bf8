/* HTTP/2 frames as bytes, for callers that behave as no library does. */

/** The first bytes of every client. */
export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

/** Types of frames (RFC 9113 section 6). */
export const FrameType = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

/** Flags of frames. */
export const FrameFlag = { endStream: 1, ack: 1, endHeaders: 4 } as const;

/** Reset codes (RFC 9113 section 7). */
export const ResetCode = { none: 0, cancel: 8 } as const;

export const FRAME_HEAD_BYTES = 9;

/** One frame (RFC 9113 section 4.1). */
export function frame(
  type: number,
  options: { readonly flags?: number; readonly stream?: number; readonly payload?: Buffer } = {},
): Buffer {
  const { flags = 0, stream = 0, payload = Buffer.alloc(0) } = options;
  const head = Buffer.alloc(FRAME_HEAD_BYTES);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

export const EMPTY_SETTINGS = frame(FrameType.settings);
export const SETTINGS_ACK = frame(FrameType.settings, { flags: FrameFlag.ack });

/** The headers with which a CSI caller starts a call. */
export function grpcHeaders(path: string): Readonly<Record<string, string>> {
  return {
    ':method': 'POST',
    ':scheme': 'http',
    ':authority': 'localhost',
    ':path': path,
    'content-type': 'application/grpc',
  };
}

/** A HEADERS frame that is complete.
 * @param options.endStream  whether the request has no body */
export function headersFrame(
  stream: number,
  headers: Readonly<Record<string, string>>,
  options: { readonly endStream?: boolean } = {},
): Buffer {
  const flags = FrameFlag.endHeaders + (options.endStream === true ? FrameFlag.endStream : 0);
  return frame(FrameType.headers, { flags, stream, payload: hpackLiterals(headers) });
}

/** An RST_STREAM frame. */
export function resetFrame(stream: number, code: number): Buffer {
  return frame(FrameType.reset, { stream, payload: uint32(code) });
}

/** A WINDOW_UPDATE frame; 0 for the stream means the connection. */
export function windowUpdateFrame(stream: number, bytes: number): Buffer {
  return frame(FrameType.windowUpdate, { stream, payload: uint32(bytes) });
}

/** A PRIORITY frame of the lowest weight. */
export function priorityFrame(stream: number, dependsOn: number): Buffer {
  const payload = Buffer.concat([uint32(dependsOn), Buffer.from([0])]);
  return frame(FrameType.priority, { stream, payload });
}

/** The frames of a complete call with an empty request. */
export function emptyCall(stream: number, path: string): Buffer {
  return Buffer.concat([
    headersFrame(stream, grpcHeaders(path)),
    frame(FrameType.data, { flags: FrameFlag.endStream, stream, payload: Buffer.alloc(5) }),
  ]);
}

/** A header block of HPACK literals without indexing (RFC 7541 section 6.2.2). */
export function hpackLiterals(headers: Readonly<Record<string, string>>): Buffer {
  return Buffer.concat(
    Object.entries(headers).map(([name, value]) => hpackLiteral(0, name, value)),
  );
}

/** A header as an HPACK literal that the receiver adds to its table (RFC 7541 section 6.2.1). It
 * becomes the newest entry, which the byte `HPACK_NEWEST` repeats. */
export function hpackAddedLiteral(name: string, value: string): Buffer {
  return hpackLiteral(0x40, name, value);
}

/** The newest entry of the receiver's table: number 62, after the static ones. */
export const HPACK_NEWEST = 0x80 + 62;

function hpackLiteral(kind: number, name: string, value: string): Buffer {
  return Buffer.concat([Buffer.from([kind]), hpackText(name), hpackText(value)]);
}

function hpackText(text: string): Buffer {
  const bytes = Buffer.from(text, 'latin1');
  return Buffer.concat([hpackLength(bytes.length), bytes]);
}

/** A length with a prefix of seven bits (RFC 7541 section 5.1). */
function hpackLength(length: number): Buffer {
  if (length < 127) return Buffer.from([length]);
  const bytes = [127];
  let rest = length - 127;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push(128 + (rest % 128));
  return Buffer.from([...bytes, rest]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}
