import { create, toBinary } from '@bufbuild/protobuf';
import type { EventEmitter } from 'node:events';
import {
  createServer,
  type Http2Session,
  type OutgoingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type ServerOptions,
} from 'node:http2';
import type { Socket } from 'node:net';
import {
  ControllerGetCapabilitiesResponseSchema,
  CreateVolumeResponseSchema,
  GetPluginCapabilitiesResponseSchema,
  GetPluginInfoResponseSchema,
  ProbeResponseSchema,
} from '#src/csi/generated/csi_pb.ts';
import { frameMessage, toPairs, type HeaderPairs } from '#src/csi/grpc-wire.ts';

/** The message with which a driver answers CreateVolume: a volume with the handle `h`. */
export const CREATED_VOLUME = toBinary(
  CreateVolumeResponseSchema,
  create(CreateVolumeResponseSchema, { volume: { volumeId: 'h' } }),
);

/** A call as it was received, for a script that answers with frames. */
export interface RawCall {
  readonly path: string;
  readonly headers: HeaderPairs;
  readonly body: Buffer;
  readonly stream: ServerHttp2Stream;
  readonly session: Http2Session;
  /** Destroys the sockets of all connections, without a GOAWAY frame. */
  readonly cut: () => void;
}

export interface RawDriver {
  readonly calls: readonly RawCall[];
  close(): Promise<void>;
}

/** Starts a driver whose answers are scripted as HTTP/2 frames.
 * @param script  called for each call. Returns false if it does not answer: Identity calls then get
 *   the answers of a ready driver, and others Unimplemented */
export async function startRawDriver(
  socket: string,
  script: (call: RawCall) => unknown,
  options: ServerOptions = {},
): Promise<RawDriver> {
  const calls: RawCall[] = [];
  const sessions = new Set<ServerHttp2Session>();
  const sockets = new Set<Socket>();
  const server = createServer(options);
  server.on('connection', (connection: Socket) =>
    sockets.add(connection.once('close', () => sockets.delete(connection))),
  );
  server.on('session', (session) => {
    sessions.add(session);
    session.on('error', () => undefined);
  });
  server.on('sessionError', () => undefined);
  const events: EventEmitter = server;
  events.on(
    'stream',
    (
      stream: ServerHttp2Stream,
      headers: Record<string, string>,
      _flags: number,
      raw: readonly string[],
    ) => {
      const chunks: Buffer[] = [];
      stream.on('error', () => undefined);
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        const session = stream.session;
        if (session === undefined) return;
        const path = headers[':path'] ?? '';
        const cut = (): void => sockets.forEach((each) => each.destroy());
        const call = {
          path,
          headers: toPairs(raw),
          body: Buffer.concat(chunks),
          stream,
          session,
          cut,
        };
        calls.push(call);
        if (script(call) !== false) return;
        const identity = IDENTITY.get(path);
        if (identity === undefined)
          answerStatus(call, { 'grpc-status': '12', 'grpc-message': 'not scripted' });
        else answerOk(call, identity);
      });
    },
  );
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  return {
    calls,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const session of sessions) session.destroy();
      }),
  };
}

const IDENTITY: ReadonlyMap<string, Uint8Array> = new Map([
  [
    '/csi.v1.Identity/Probe',
    toBinary(ProbeResponseSchema, create(ProbeResponseSchema, { ready: true })),
  ],
  [
    '/csi.v1.Identity/GetPluginInfo',
    toBinary(
      GetPluginInfoResponseSchema,
      create(GetPluginInfoResponseSchema, { name: 'raw.test' }),
    ),
  ],
  [
    '/csi.v1.Identity/GetPluginCapabilities',
    toBinary(GetPluginCapabilitiesResponseSchema, create(GetPluginCapabilitiesResponseSchema)),
  ],
  [
    '/csi.v1.Controller/ControllerGetCapabilities',
    toBinary(
      ControllerGetCapabilitiesResponseSchema,
      create(ControllerGetCapabilitiesResponseSchema),
    ),
  ],
]);

const GRPC = { ':status': 200, 'content-type': 'application/grpc' };

/** Answers with headers, these bytes, and trailers. */
export function answerBytes(
  { stream }: RawCall,
  body: Buffer,
  trailers: OutgoingHttpHeaders,
  headers: OutgoingHttpHeaders = {},
): void {
  stream.on('wantTrailers', () => stream.sendTrailers(trailers));
  stream.respond({ ...GRPC, ...headers }, { waitForTrailers: true });
  stream.end(body);
}

/** Answers OK with one message. */
export function answerOk(call: RawCall, message: Uint8Array): void {
  answerBytes(call, frameMessage(message), { 'grpc-status': '0' });
}

/** Answers with headers, no message, and exactly these trailers. */
export function answerStatus(call: RawCall, trailers: OutgoingHttpHeaders): void {
  answerBytes(call, Buffer.alloc(0), trailers);
}

/** Answers with a single header block that ends the stream. */
export function answerTrailersOnly({ stream }: RawCall, headers: OutgoingHttpHeaders): void {
  stream.respond({ ...GRPC, ...headers }, { endStream: true });
}
