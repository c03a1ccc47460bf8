import { constants, type OutgoingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { Code } from '../csi/status.ts';
import { encodeStatusMessage, frameMessage, unframeMessage } from '../csi/grpc-wire.ts';
import { eachField } from './protobuf-fields.ts';
import { respond } from './write-reply.ts';

const SERVING = 1;
const NOT_SERVING = 2;
const SERVICE_UNKNOWN = 3;
/** Services with a health status: the gateway as a whole, and the CSI services it forwards. */
const SERVICES = new Set(['', 'csi.v1.Identity', 'csi.v1.Controller', 'csi.v1.Node']);
/** The largest request, which only names a service. */
export const MAX_HEALTH_BYTES = 1_024;
const MAX_SHOWN_CHARACTERS = 200;
const POLL_INTERVAL_MS = 250;
const MAX_WATCHES = 100;
const HEADERS = { ':status': 200, 'content-type': 'application/grpc' };
const SHUTTING_DOWN = {
  'grpc-status': String(Code.Unavailable),
  'grpc-message': 'the gateway is shutting down',
};

/** Whether a call is for the gateway's health service. Such calls never go to the driver. */
export function isHealthPath(path: string): boolean {
  return path.startsWith('/grpc.health.v1.Health/');
}

/** The health service of gRPC (grpc/grpc doc/health-checking.md), for probes that speak gRPC. The
 * status is SERVING while calls can be forwarded, as in /readyz. */
export class HealthService {
  readonly #isServing: () => boolean;
  readonly #facts: () => OutgoingHttpHeaders;
  readonly #watches = new Map<ServerHttp2Stream, { service: string; lastStatus: number }>();
  #timer: NodeJS.Timeout | undefined;

  /** @param facts  trailers by which the gateway says something of itself */
  constructor(isServing: () => boolean, facts: () => OutgoingHttpHeaders) {
    this.#isServing = isServing;
    this.#facts = facts;
  }

  /** Answers one call. Watch stays open and sends each change of the status.
   * @returns whether the answer is complete */
  handle(stream: ServerHttp2Stream, path: string, body: Buffer): boolean {
    const service = decodeService(body);
    if (service === undefined)
      return endWithError(stream, Code.InvalidArgument, 'the request is not a HealthCheckRequest');
    if (path.endsWith('/Watch')) return this.#watch(stream, service);
    if (!path.endsWith('/Check')) {
      const details = `grpc.health.v1.Health has Check and Watch here, not ${path.slice(0, MAX_SHOWN_CHARACTERS)}`;
      return endWithError(stream, Code.Unimplemented, details);
    }
    if (!SERVICES.has(service)) {
      const details = `the health of service ${JSON.stringify(service.slice(0, MAX_SHOWN_CHARACTERS))} is unknown`;
      return endWithError(stream, Code.NotFound, details);
    }
    const trailers = { 'grpc-status': '0', ...this.#facts() };
    if (begin(stream, trailers)) stream.end(encodeStatus(this.#statusOf(service)));
    return true;
  }

  /** Sends watchers the last change of the status and ends their streams. */
  close(): void {
    this.#notifyWatchers();
    for (const stream of this.#watches.keys()) stream.end();
  }

  #watch(stream: ServerHttp2Stream, service: string): boolean {
    if (!begin(stream, SHUTTING_DOWN)) return true;
    this.#makeRoom();
    const lastStatus = this.#statusOf(service);
    stream.write(encodeStatus(lastStatus));
    this.#watches.set(stream, { service, lastStatus });
    this.#timer ??= setInterval(() => this.#notifyWatchers(), POLL_INTERVAL_MS);
    stream.once('close', () => {
      this.#watches.delete(stream);
      if (this.#watches.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    });
    return false;
  }

  /** Ends the oldest watch of the connection that has most, if there are too many. */
  #makeRoom(): void {
    if (this.#watches.size < MAX_WATCHES) return;
    const bySession = new Map<unknown, ServerHttp2Stream[]>();
    for (const stream of this.#watches.keys())
      bySession.set(stream.session, [...(bySession.get(stream.session) ?? []), stream]);
    const [oldest] = [...bySession.values()].reduce((a, b) => (b.length > a.length ? b : a));
    oldest?.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    if (oldest !== undefined) this.#watches.delete(oldest);
  }

  #notifyWatchers(): void {
    for (const [stream, watch] of this.#watches) {
      const status = this.#statusOf(watch.service);
      if (status === watch.lastStatus) continue;
      watch.lastStatus = status;
      // Messages for a watcher that does not read must not pile up in memory.
      if (stream.writableLength > 1_000) stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      else stream.write(encodeStatus(status));
    }
  }

  #statusOf(service: string): number {
    if (!SERVICES.has(service)) return SERVICE_UNKNOWN;
    return this.#isServing() ? SERVING : NOT_SERVING;
  }
}

function decodeService(body: Buffer): string | undefined {
  const message = unframeMessage(body);
  if (message === undefined || message.compressed) return undefined;
  try {
    let service = '';
    eachField(message.bytes, 1, WireType.LengthDelimited, (reader) => (service = reader.string()));
    return service;
  } catch {
    return undefined;
  }
}

function encodeStatus(status: number): Buffer {
  return frameMessage(new BinaryWriter().tag(1, WireType.Varint).int32(status).finish());
}

/** Begins an answer with a body.
 * @returns false if the caller has ended the stream */
function begin(stream: ServerHttp2Stream, trailers: OutgoingHttpHeaders): boolean {
  stream.once('wantTrailers', () => {
    // A stream that was just reset wants trailers too.
    if (!stream.destroyed && !stream.closed) stream.sendTrailers(trailers);
  });
  return respond(stream, HEADERS, { waitForTrailers: true });
}

function endWithError(stream: ServerHttp2Stream, code: number, details: string): true {
  const status = { 'grpc-status': String(code), 'grpc-message': encodeStatusMessage(details) };
  respond(stream, { ...HEADERS, ...status }, { endStream: true });
  return true;
}
