import { setTimeout as delay } from 'node:timers/promises';
import { frame, FrameFlag, FrameType, grpcHeaders, headersFrame } from '../csi-frames.ts';
import type { RawConnection } from './raw-connection.ts';
import type { Stranger } from './stranger.ts';

/* Attacks with the body of a request: its size, its frames, and that it never ends. */

export const HEALTH_CHECK = '/grpc.health.v1.Health/Check';
export const CREATE = '/csi.v1.Controller/CreateVolume';
const REFUSED = '/csi.v1.Node/NodeStageVolume';
const MIB = 1024 * 1024;
/** Frames of one flood: more than the gateway of d2e6633 survived. */
const FLOOD_FRAMES = 3_000_000;
const UNFINISHED_BYTES = 128 * MIB;
const CONNECTIONS = 4;
const STREAMS = 4;

/** Sends health checks for a service whose name is long and must be percent-encoded in a header. */
export function checkHealthOf(serviceBytes: number): (stranger: Stranger) => Promise<void> {
  const body = healthRequest('é'.repeat(serviceBytes / 2));
  return async (stranger) => {
    const connection = await stranger.open();
    for (;;) {
      const stream = connection.newStream();
      await connection.send(headersFrame(stream, grpcHeaders(HEALTH_CHECK)));
      await connection.sendBody(stream, body);
      await connection.endBody(stream);
      await delay(20);
    }
  };
}

/** Sends one body after another as DATA frames of one size. The requests never end.
 * @param headers  of the requests */
export function floodFrames(
  headers: Readonly<Record<string, string>>,
  bytes: number,
): (stranger: Stranger) => Promise<void> {
  return async (stranger) => {
    const connection = await stranger.open();
    const stream = connection.newStream();
    await connection.send(headersFrame(stream, headers));
    await connection.sendFrames(stream, { count: FLOOD_FRAMES, bytes });
    await connection.closed();
  };
}

/** The requests of the floods of frames, by what the gateway makes of them. */
export const FLOODED_REQUESTS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'a health check': grpcHeaders(HEALTH_CHECK),
  'an allowed method': grpcHeaders(CREATE),
  'a refused method': grpcHeaders(REFUSED),
  'a request that is not gRPC': { ...grpcHeaders(CREATE), 'content-type': 'text/html' },
};

/** Sends 128 MiB in messages that never end. */
export async function leaveMessagesUnfinished(stranger: Stranger): Promise<void> {
  const body = Buffer.alloc(UNFINISHED_BYTES / CONNECTIONS / STREAMS);
  body.writeUInt32BE(body.length - 4, 1);
  await leaveBodiesOpen(stranger, body);
}

/** Sends 128 MiB of empty messages, 5 bytes each, in bodies that never end. */
export async function sendEmptyMessages(stranger: Stranger): Promise<void> {
  const body = Buffer.alloc(UNFINISHED_BYTES / CONNECTIONS / STREAMS);
  await leaveBodiesOpen(stranger, body);
}

/** Sends bodies over several connections and streams, half of them to the health service, which
 * everybody may call, half to a method. */
async function leaveBodiesOpen(stranger: Stranger, body: Buffer): Promise<void> {
  const start = async (connection: RawConnection, path: string): Promise<void> => {
    const stream = connection.newStream();
    await connection.send(headersFrame(stream, grpcHeaders(path)));
    await connection.sendBody(stream, body);
  };
  await Promise.all(
    Array.from({ length: Math.min(CONNECTIONS, stranger.maxSockets) }, async () => {
      const connection = await stranger.open();
      const paths = Array.from({ length: STREAMS }, (_, i) =>
        i % 2 === 0 ? HEALTH_CHECK : CREATE,
      );
      await Promise.allSettled(paths.map((path) => start(connection, path)));
      await connection.closed();
    }),
  );
}

/** A framed HealthCheckRequest. */
export function healthRequest(service: string): Buffer {
  const name = Buffer.from(service);
  const message = Buffer.concat([Buffer.from([0x0a, ...varint(name.length)]), name]);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/** The frames of a complete health check of the gateway itself. */
export function healthCheck(stream: number): Buffer {
  return Buffer.concat([
    headersFrame(stream, grpcHeaders(HEALTH_CHECK)),
    frame(FrameType.data, { stream, flags: FrameFlag.endStream, payload: Buffer.alloc(5) }),
  ]);
}

function varint(value: number): readonly number[] {
  return value < 128 ? [value] : [128 + (value % 128), ...varint(Math.floor(value / 128))];
}
