import type { OutgoingHttpHeaders } from 'node:http2';
import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';

/** gRPC over HTTP/2, unary calls only: the parts that a pass-through has to understand.
 * Facts: grpc/grpc doc/PROTOCOL-HTTP2.md. Why not grpc-js: see driver-call.ts and server.ts. */

/** Headers as they came: [name, value] pairs, duplicates and order kept. */
export type HeaderPairs = readonly (readonly [string, string])[];

/** Node's flat name, value, name, value … list as pairs. */
export function toPairs(rawHeaders: readonly string[]): HeaderPairs {
  const pairs: (readonly [string, string])[] = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2)
    pairs.push([rawHeaders[i] ?? '', rawHeaders[i + 1] ?? '']);
  return pairs;
}

/** The only value of a header; undefined when it is absent or there are several. */
export function getSingle(pairs: HeaderPairs, name: string): string | undefined {
  const found = pairs.filter(([key]) => key === name);
  return found.length === 1 ? found[0]?.[1] : undefined;
}

// Per connection, not per call, or said anew by the sender (RFC 9113 §8.2.2); content-length is of
// no use to gRPC and dropped with them.
const HOP_HEADERS = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'host',
  'te',
  'content-length',
  'grpc-timeout',
]);

/** What passes on: everything but pseudo headers, connection headers and `sutler-*`, which only a
 * gateway may say. */
export function stripHopHeaders(pairs: HeaderPairs): OutgoingHttpHeaders {
  const headers: Record<string, string | string[]> = Object.create(null) as Record<
    string,
    string | string[]
  >;
  for (const [name, value] of pairs) {
    if (name.startsWith(':') || name.startsWith('sutler-') || HOP_HEADERS.has(name)) continue;
    const before = headers[name];
    if (before === undefined) headers[name] = value;
    else if (Array.isArray(before)) before.push(value);
    else headers[name] = [before, value];
  }
  return headers;
}

const TIMEOUT_UNIT_MS: Readonly<Record<string, number>> = {
  n: 1e-6,
  u: 1e-3,
  m: 1,
  S: 1000,
  M: 60_000,
  H: 3_600_000,
};

/** Milliseconds of a grpc-timeout header ("250m", "10S"); undefined if it is not one. */
export function parseTimeoutMs(text: string): number | undefined {
  const match = /^(\d{1,8})([numSMH])$/.exec(text);
  return match === null ? undefined : Number(match[1]) * (TIMEOUT_UNIT_MS[match[2] ?? ''] ?? 0);
}

/** A grpc-timeout header: at most 8 digits, so the unit grows with the number; rounded up so that
 * it is never 0. */
export function formatTimeout(ms: number): string {
  if (ms < 100) return `${Math.max(1, Math.ceil(ms * 1000))}u`;
  if (ms < 1e8) return `${Math.ceil(ms)}m`;
  return ms < 1e11
    ? `${Math.ceil(ms / 1000)}S`
    : `${Math.min(99_999_999, Math.ceil(ms / 3_600_000))}H`;
}

/** A grpc-message header: UTF-8, percent-encoded outside printable ASCII. */
export function encodeStatusMessage(text: string): string {
  let encoded = '';
  for (const byte of Buffer.from(text, 'utf8')) {
    encoded +=
      byte >= 0x20 && byte <= 0x7e && byte !== 0x25
        ? String.fromCharCode(byte)
        : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return encoded;
}

/** The text of a grpc-message header; what is not well-formed stays as it is. */
export function decodeStatusMessage(header: string): string {
  const bytes = Buffer.from(
    header.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) =>
      String.fromCharCode(parseInt(hex, 16)),
    ),
    'latin1',
  );
  return bytes.toString('utf8');
}

/** The number of a grpc-status header; undefined if it is not one. */
export function parseStatusCode(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,9}$/.test(text) ? Number(text) : undefined;
}

/** The bytes of a body that holds exactly one length-prefixed message; otherwise undefined. */
export function unframeMessage(
  body: Buffer,
): { readonly compressed: boolean; readonly bytes: Buffer } | undefined {
  if (body.length < 5) return undefined;
  const flag = body[0];
  if ((flag !== 0 && flag !== 1) || body.readUInt32BE(1) !== body.length - 5) return undefined;
  return { compressed: flag === 1, bytes: body.subarray(5) };
}

/** A message with its length prefix. */
export function frameMessage(message: Uint8Array): Buffer {
  const body = Buffer.allocUnsafe(5 + message.length);
  body[0] = 0;
  body.writeUInt32BE(message.length, 1);
  body.set(message, 5);
  return body;
}

/** The plain bytes of a message; undefined if the encoding is unknown, the bytes are damaged, or
 * they unfold to more than `maxBytes`. Only for looking into a message: what passes on is what
 * came. */
export function decompressMessage(
  body: Buffer,
  encoding: string | undefined,
  maxBytes: number,
): Buffer | undefined {
  const message = unframeMessage(body);
  if (message === undefined || !message.compressed) return message?.bytes;
  try {
    if (encoding === 'gzip') return gunzipSync(message.bytes, { maxOutputLength: maxBytes });
    if (encoding === 'deflate') return inflateSync(message.bytes, { maxOutputLength: maxBytes });
    if (encoding === 'br')
      return brotliDecompressSync(message.bytes, { maxOutputLength: maxBytes });
  } catch {
    // Damaged, or larger than allowed: the caller only needs to know that it can't be read.
  }
  return undefined;
}
