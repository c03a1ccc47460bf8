import type { OutgoingHttpHeaders } from 'node:http2';

/* The parts of gRPC over HTTP/2 that unary calls need, after grpc/grpc doc/PROTOCOL-HTTP2.md.
 * unary-call.ts says why sutler's own calls do not use grpc-js. */

/** Received headers as [name, value] pairs, in their order and with duplicates. */
export type HeaderPairs = readonly (readonly [string, string])[];

/** Converts Node's flat list of names and values. */
export function toPairs(rawHeaders: readonly string[]): HeaderPairs {
  const pairs: (readonly [string, string])[] = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2)
    pairs.push([rawHeaders[i] ?? '', rawHeaders[i + 1] ?? '']);
  return pairs;
}

/** Returns the value of a header that occurs exactly once; otherwise undefined. */
export function getSingle(pairs: HeaderPairs, name: string): string | undefined {
  let value: string | undefined;
  for (const [key, each] of pairs) {
    if (key !== name) continue;
    if (value !== undefined) return undefined;
    value = each;
  }
  return value;
}

// Headers that belong to one connection (RFC 9113 section 8.2.2), that both sides set themselves,
// or that gRPC does not need. Gateway and driver do not compress messages.
const HOP_HEADERS = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'host',
  'te',
  'content-type',
  'content-length',
  'date',
  'grpc-timeout',
  'grpc-encoding',
  'grpc-accept-encoding',
  'grpc-status',
  'grpc-message',
]);

/** Whether a header is not forwarded: pseudo headers, HOP_HEADERS, and gateways' own `sutler-*`. */
export function isHopHeader(name: string): boolean {
  return name.startsWith(':') || name.startsWith('sutler-') || HOP_HEADERS.has(name);
}

/** Returns the headers to forward. */
export function stripHopHeaders(pairs: HeaderPairs): OutgoingHttpHeaders {
  // No prototype, so that a header named __proto__ is an ordinary key.
  const headers = Object.create(null) as Record<string, string | string[]>;
  for (const [name, value] of pairs) {
    if (isHopHeader(name)) continue;
    const earlier = headers[name];
    headers[name] = earlier === undefined ? value : [earlier, value].flat();
  }
  return headers;
}

/** The longest grpc-timeout, 24.8 days. grpc-js reads the header as a 32-bit integer, and takes a
 * longer time for one in the past. */
const LONGEST_MS = 2 ** 31 - 1;

/** Formats a grpc-timeout header. It may have 8 digits, so large values get a larger unit. Rounds
 * up, so that it is never 0. */
export function formatTimeout(ms: number): string {
  if (ms < 100) return `${Math.max(1, Math.ceil(ms * 1000))}u`;
  return ms < 1e8 ? `${Math.ceil(ms)}m` : `${Math.floor(Math.min(ms, LONGEST_MS) / 1000)}S`;
}

/** Decodes the text of a grpc-message header. Keeps malformed escapes. */
export function decodeStatusMessage(header: string): string {
  const bytes = Buffer.from(
    header.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) =>
      String.fromCharCode(parseInt(hex, 16)),
    ),
    'latin1',
  );
  return bytes.toString('utf8');
}

/** Parses a grpc-status header; undefined if it is malformed. */
export function parseStatusCode(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,9}$/.test(text) ? Number(text) : undefined;
}

/** Extracts the message from a body; undefined if the body is not exactly one length-prefixed
 * message. Compressed messages are refused, since sutler does not offer compression. */
export function unframeMessage(body: Buffer): Buffer | undefined {
  if (body.length < 5 || body[0] !== 0 || body.readUInt32BE(1) !== body.length - 5)
    return undefined;
  return body.subarray(5);
}

/** Adds the length prefix to an uncompressed message. */
export function frameMessage(message: Uint8Array): Buffer {
  const body = Buffer.allocUnsafe(5 + message.length);
  body[0] = 0;
  body.writeUInt32BE(message.length, 1);
  body.set(message, 5);
  return body;
}
