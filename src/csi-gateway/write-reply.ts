import {
  constants,
  type OutgoingHttpHeaders,
  type ServerHttp2Stream,
  type ServerStreamResponseOptions,
} from 'node:http2';
import {
  Code,
  DRAINING_TRAILER,
  DRIVER_STATUS_TRAILER,
  FULL_TRAILER,
  NOT_FORWARDED_TRAILER,
} from '../csi/status.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { GatewayReply, Reply } from './forwarder.ts';
import { encodeStatusMessage, stripHopHeaders } from '../csi/grpc-wire.ts';

// No date header: only the driver's own, if it sends one. These are constants because Node's types
// don't include sendDate.
const HEADERS_ONLY = { endStream: true, sendDate: false };
const WITH_TRAILERS = { waitForTrailers: true, sendDate: false };

/** The longest text of its own that the gateway sends, in characters. Encoded they may take three
 * times as many bytes. */
const MAX_DETAILS_CHARACTERS = 1_000;

/** Begins an answer. Does nothing if the caller has ended the stream or has an answer already, for
 * which respond() throws.
 * @returns whether the answer has begun */
export function respond(
  stream: ServerHttp2Stream,
  headers: OutgoingHttpHeaders,
  options: ServerStreamResponseOptions & { readonly sendDate?: boolean },
): boolean {
  const { aborted, closed, destroyed, headersSent } = stream;
  if (destroyed || closed || aborted || headersSent) return false;
  stream.respond(headers, options);
  return true;
}

/** Sends a caller the driver's response unchanged, marked as the driver's, or the gateway's own
 * status.
 * @param facts  trailers by which the gateway says something of itself */
export function writeReply(
  stream: ServerHttp2Stream,
  reply: Reply,
  facts: OutgoingHttpHeaders,
): void {
  if (stream.destroyed || stream.closed) return;
  const own = (status: Omit<GatewayReply, 'kind'>): OutgoingHttpHeaders => ({
    ...toHeaders(status),
    ...facts,
  });
  if (reply.kind === 'gateway') return void respond(stream, own(reply), HEADERS_ONLY);
  const { headers, trailers, body } = reply.answer;
  const marked = { ...stripHopHeaders(trailers), [DRIVER_STATUS_TRAILER]: '1', ...facts };
  try {
    if (headers === undefined) return stream.respond({ ':status': 200, ...marked }, HEADERS_ONLY);
    stream.once('wantTrailers', () => sendTrailers(stream, marked));
    stream.respond({ ':status': 200, ...stripHopHeaders(headers) }, WITH_TRAILERS);
    stream.end(body);
  } catch (error) {
    // Node refuses to send a header that it received. The driver has acted and its answer is lost,
    // so the status is ambiguous.
    if (stream.headersSent) throw error;
    const details = `the driver's answer has a header that can't be forwarded: ${messageOf(error)}`;
    respond(stream, own({ code: Code.Internal, details, notForwarded: false }), HEADERS_ONLY);
  }
}

/** Answers a request that is not gRPC with an HTTP status. */
export function rejectHttp(stream: ServerHttp2Stream, status: number): void {
  // The rest of the request is read and discarded. If the stream were closed here, some releases of
  // Node (seen on 22) would lose the answer.
  respond(stream, { ':status': status }, { endStream: true });
}

function sendTrailers(stream: ServerHttp2Stream, trailers: OutgoingHttpHeaders): void {
  try {
    stream.sendTrailers(trailers);
  } catch {
    // The caller sees a call that ended without trailers, which is ambiguous as it should be.
    stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  }
}

function toHeaders(reply: Omit<GatewayReply, 'kind'>): OutgoingHttpHeaders {
  return {
    ':status': 200,
    'content-type': 'application/grpc',
    'grpc-status': String(reply.code),
    'grpc-message': encodeStatusMessage(reply.details.slice(0, MAX_DETAILS_CHARACTERS)),
    ...(reply.notForwarded ? { [NOT_FORWARDED_TRAILER]: '1' } : {}),
    ...(reply.isFull === true ? { [FULL_TRAILER]: '1' } : {}),
    ...(reply.draining === undefined ? {} : { [DRAINING_TRAILER]: String(reply.draining) }),
  };
}
