import { constants, type OutgoingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import {
  Code,
  DRAINING_TRAILER,
  DRIVER_STATUS_TRAILER,
  NOT_FORWARDED_TRAILER,
} from '../csi/status.ts';
import type { Reply } from './forwarder.ts';
import { encodeStatusMessage, stripHopHeaders } from './grpc-wire.ts';

// The date, if any, is the driver's to say (the typings don't know sendDate, so these are not
// literals in place).
const WHOLE = { endStream: true, sendDate: false };
const WITH_TRAILERS = { waitForTrailers: true, sendDate: false };

/** Writes what a caller gets: the driver's answer as it came, marked as the driver's, or the
 * gateway's own status. */
export function writeReply(stream: ServerHttp2Stream, reply: Reply): void {
  if (stream.destroyed || stream.closed) return;
  if (reply.kind === 'gateway') {
    stream.respond(ownStatus(reply), WHOLE);
    return;
  }
  const { headers, trailers, body } = reply.answer;
  const marked = { ...stripHopHeaders(trailers), [DRIVER_STATUS_TRAILER]: '1' };
  try {
    if (headers === undefined) {
      stream.respond({ ':status': 200, ...marked }, WHOLE);
      return;
    }
    stream.once('wantTrailers', () => sendTrailers(stream, marked));
    stream.respond({ ':status': 200, ...stripHopHeaders(headers) }, WITH_TRAILERS);
    stream.end(body);
  } catch (error) {
    // Header fields that came in but can't go out again. The driver acted, its answer is lost:
    // ambiguous.
    if (stream.headersSent) throw error;
    const why = error instanceof Error ? error.message : String(error);
    const details = `the driver's answer has a header that can't be passed on: ${why}`;
    stream.respond(ownStatus({ code: Code.Internal, details, notForwarded: false }), WHOLE);
  }
}

/** Answers what is not gRPC. */
export function rejectHttp(stream: ServerHttp2Stream, status: number): void {
  stream.respond({ ':status': status }, { endStream: true });
  // Read to the end and forgotten: closing the stream here would lose the answer on some releases
  // of Node (seen on 22).
  stream.resume();
}

function sendTrailers(stream: ServerHttp2Stream, trailers: OutgoingHttpHeaders): void {
  try {
    stream.sendTrailers(trailers);
  } catch {
    // Without trailers the caller sees a cut call: ambiguous, as it must be.
    stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  }
}

function ownStatus(reply: {
  readonly code: number;
  readonly details: string;
  readonly notForwarded: boolean;
  readonly draining?: number;
}): OutgoingHttpHeaders {
  return {
    ':status': 200,
    'content-type': 'application/grpc',
    'grpc-status': String(reply.code),
    'grpc-message': encodeStatusMessage(reply.details),
    ...(reply.notForwarded ? { [NOT_FORWARDED_TRAILER]: '1' } : {}),
    ...(reply.draining === undefined ? {} : { [DRAINING_TRAILER]: String(reply.draining) }),
  };
}
