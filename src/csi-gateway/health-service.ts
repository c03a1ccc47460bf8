import { constants, type ServerHttp2Stream } from 'node:http2';
import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { Code } from '../csi/status.ts';
import { encodeStatusMessage, frameMessage, unframeMessage } from './grpc-wire.ts';

/* grpc.health.v1, for probes that speak gRPC (facts: grpc/grpc doc/health-checking.md). */

const SERVING = 1;
const NOT_SERVING = 2;
const SERVICE_UNKNOWN = 3;
/** Services that have a health: all of it, and what of the driver passes. */
const SERVICES = new Set(['', 'csi.v1.Identity', 'csi.v1.Controller', 'csi.v1.Node']);
const LOOK_MS = 250;
const MAX_WATCHES = 100;
const HEADERS = { ':status': 200, 'content-type': 'application/grpc' };

/** Whether a call asks for the gateway's health; such a call never goes to the driver. */
export function isHealthPath(path: string): boolean {
  return path.startsWith('/grpc.health.v1.Health/');
}

/** Answers grpc.health.v1: SERVING while calls can be forwarded, as /readyz. */
export class HealthService {
  readonly #isServing: () => boolean;
  readonly #watches = new Map<ServerHttp2Stream, { readonly service: string; told: number }>();
  #timer: NodeJS.Timeout | undefined;

  constructor(isServing: () => boolean) {
    this.#isServing = isServing;
  }

  /** Answers one call; Watch stays open and tells each change.
   * @returns whether the answer is whole */
  handle(stream: ServerHttp2Stream, path: string, body: Buffer): boolean {
    const service = requestedService(body);
    if (service === undefined)
      return end(stream, Code.InvalidArgument, 'the request is no HealthCheckRequest');
    if (path.endsWith('/Watch')) return this.#watch(stream, service);
    if (!path.endsWith('/Check'))
      return end(
        stream,
        Code.Unimplemented,
        `grpc.health.v1.Health has Check and Watch here, not ${path.slice(0, 200)}`,
      );
    if (!SERVICES.has(service))
      return end(
        stream,
        Code.NotFound,
        `no health is known of the service ${JSON.stringify(service)}`,
      );
    stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    stream.respond(HEADERS, { waitForTrailers: true });
    stream.end(statusMessage(this.#statusOf(service)));
    return true;
  }

  /** Says NOT_SERVING to the watchers and lets them go. */
  close(): void {
    this.#tell();
    for (const stream of this.#watches.keys()) stream.end();
  }

  #watch(stream: ServerHttp2Stream, service: string): boolean {
    if (this.#watches.size >= MAX_WATCHES)
      return end(stream, Code.ResourceExhausted, `${MAX_WATCHES} health watches are open already`);
    stream.once('wantTrailers', () =>
      stream.sendTrailers({
        'grpc-status': String(Code.Unavailable),
        'grpc-message': 'the gateway is shutting down',
      }),
    );
    stream.respond(HEADERS, { waitForTrailers: true });
    const told = this.#statusOf(service);
    stream.write(statusMessage(told));
    this.#watches.set(stream, { service, told });
    this.#timer ??= setInterval(() => this.#tell(), LOOK_MS);
    stream.once('close', () => {
      this.#watches.delete(stream);
      if (this.#watches.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    });
    return false;
  }

  #tell(): void {
    for (const [stream, watch] of this.#watches) {
      const status = this.#statusOf(watch.service);
      if (status === watch.told) continue;
      watch.told = status;
      // One that does not read must not be stored up for.
      if (stream.writableLength > 1_000) stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      else stream.write(statusMessage(status));
    }
  }

  #statusOf(service: string): number {
    if (!SERVICES.has(service)) return SERVICE_UNKNOWN;
    return this.#isServing() ? SERVING : NOT_SERVING;
  }
}

function requestedService(body: Buffer): string | undefined {
  const message = unframeMessage(body);
  if (message === undefined || message.compressed) return undefined;
  try {
    const reader = new BinaryReader(message.bytes);
    let service = '';
    while (reader.pos < reader.len) {
      const [field, wireType] = reader.tag();
      if (field === 1 && wireType === WireType.LengthDelimited) service = reader.string();
      else reader.skip(wireType, field);
    }
    return service;
  } catch {
    return undefined;
  }
}

function statusMessage(status: number): Buffer {
  return frameMessage(new BinaryWriter().tag(1, WireType.Varint).int32(status).finish());
}

function end(stream: ServerHttp2Stream, code: number, details: string): true {
  stream.respond(
    { ...HEADERS, 'grpc-status': String(code), 'grpc-message': encodeStatusMessage(details) },
    { endStream: true },
  );
  return true;
}
