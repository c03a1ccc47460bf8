import type { Socket } from 'node:net';
import {
  FRAME_HEAD_BYTES,
  frame,
  FrameFlag,
  FrameType,
  PREFACE,
  SETTINGS_ACK,
  windowUpdateFrame,
} from '../csi-frames.ts';

/** Longest payload of a frame that every peer accepts. */
const MAX_FRAME_BYTES = 16 * 1024;
const DEFAULT_WINDOW_BYTES = 65_535;
const INITIAL_WINDOW_SETTING = 4;

/** An HTTP/2 connection of a caller that writes frames by itself. It obeys the flow control of the
 * gateway and answers its SETTINGS and PING, so that it is not cut off for that. */
export class RawConnection {
  readonly #socket: Socket;
  readonly #streamWindows = new Map<number, number>();
  #connectionWindow = DEFAULT_WINDOW_BYTES;
  #initialWindow = DEFAULT_WINDOW_BYTES;
  #unread = Buffer.alloc(0);
  #receivedBytes = 0;
  #headerBytes = 0;
  readonly #ended = new Map<number, 'answer' | 'reset'>();
  #stream = -1;
  readonly #waiting: (() => void)[] = [];

  /** @param socket  connected */
  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('close', () => this.#announceChange());
    socket.on('drain', () => this.#announceChange());
    socket.write(Buffer.concat([PREFACE, frame(FrameType.settings)]));
  }

  get isClosed(): boolean {
    return this.#socket.destroyed || !this.#socket.writable;
  }

  /** The number of a stream that was not used yet. */
  newStream(): number {
    this.#stream += 2;
    return this.#stream;
  }

  /** Writes bytes and waits until the operating system has taken them.
   * @throws Error if the connection is closed */
  async send(...chunks: readonly Buffer[]): Promise<void> {
    if (this.isClosed) throw new Error('the connection is closed');
    const isTaken = this.#socket.write(Buffer.concat(chunks));
    if (isTaken) return new Promise((resolve) => setImmediate(resolve));
    await this.#waitUntil(() => !this.#socket.writableNeedDrain);
  }

  /** Sends a body in DATA frames as fast as the gateway's windows allow. The stream stays open.
   * @throws Error if the connection is closed */
  async sendBody(stream: number, body: Buffer): Promise<void> {
    let sent = 0;
    while (sent < body.length) {
      await this.#waitUntil(() => this.#windowOf(stream) > 0);
      // Another body may have taken it meanwhile.
      if (this.#windowOf(stream) <= 0) continue;
      const bytes = Math.min(MAX_FRAME_BYTES, body.length - sent, this.#windowOf(stream));
      this.#spendWindow(stream, bytes);
      await this.send(
        frame(FrameType.data, { stream, payload: body.subarray(sent, sent + bytes) }),
      );
      sent += bytes;
    }
  }

  /** Sends equal DATA frames, many with one write.
   * @param frames.bytes  payload of each
   * @throws Error if the connection is closed */
  async sendFrames(
    stream: number,
    frames: { readonly count: number; readonly bytes: number },
  ): Promise<void> {
    const one = frame(FrameType.data, { stream, payload: Buffer.alloc(frames.bytes) });
    for (let left = frames.count; left > 0;) {
      await this.#waitUntil(() => this.#windowOf(stream) >= frames.bytes);
      if (this.#windowOf(stream) < frames.bytes) continue;
      const fitting = frames.bytes === 0 ? left : Math.floor(this.#windowOf(stream) / frames.bytes);
      const count = Math.min(left, fitting, 5_000);
      this.#spendWindow(stream, count * frames.bytes);
      await this.send(Buffer.alloc(count * one.length, one));
      left -= count;
    }
  }

  /** Ends a body.
   * @throws Error if the connection is closed */
  async endBody(stream: number): Promise<void> {
    await this.send(frame(FrameType.data, { stream, flags: FrameFlag.endStream }));
  }

  /** Waits until the gateway has ended a stream, or the connection.
   * @returns which, and the bytes of all headers received by then */
  async ended(stream: number): Promise<{
    readonly by: 'answer' | 'reset' | 'close';
    readonly headerBytes: number;
  }> {
    while (!this.isClosed && !this.#ended.has(stream)) await this.#nextChange();
    return { by: this.#ended.get(stream) ?? 'close', headerBytes: this.#headerBytes };
  }

  /** Waits until the gateway has reset a stream, maybe after an answer.
   * @throws Error if the connection is closed */
  async wasReset(stream: number): Promise<void> {
    await this.#waitUntil(() => this.#ended.get(stream) === 'reset');
  }

  /** Resolves once the connection is closed. */
  async closed(): Promise<void> {
    while (!this.isClosed) await this.#nextChange();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #windowOf(stream: number): number {
    return Math.min(
      this.#connectionWindow,
      this.#initialWindow + (this.#streamWindows.get(stream) ?? 0),
    );
  }

  #spendWindow(stream: number, bytes: number): void {
    this.#connectionWindow -= bytes;
    this.#addToStream(stream, -bytes);
  }

  #addToStream(stream: number, bytes: number): void {
    this.#streamWindows.set(stream, (this.#streamWindows.get(stream) ?? 0) + bytes);
  }

  async #waitUntil(condition: () => boolean): Promise<void> {
    while (!condition()) {
      if (this.isClosed) throw new Error('the connection is closed');
      await this.#nextChange();
    }
  }

  #nextChange(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #read(chunk: Buffer): void {
    this.#unread = Buffer.concat([this.#unread, chunk]);
    for (;;) {
      if (this.#unread.length < FRAME_HEAD_BYTES) break;
      const end = FRAME_HEAD_BYTES + this.#unread.readUIntBE(0, 3);
      if (this.#unread.length < end) break;
      this.#takeFrame(this.#unread.subarray(0, end));
      this.#unread = this.#unread.subarray(end);
    }
    this.#openWindow(chunk.length);
    this.#announceChange();
  }

  #announceChange(): void {
    const waiting = this.#waiting.splice(0);
    for (const resolve of waiting) resolve();
  }

  #takeFrame(bytes: Buffer): void {
    const [type, flags] = [bytes[3], bytes[4] ?? 0];
    const stream = bytes.readUInt32BE(5);
    const payload = bytes.subarray(FRAME_HEAD_BYTES);
    this.#noteEnd(type, { flags, stream, payload });
    const isAck = (flags & FrameFlag.ack) !== 0;
    if (type === FrameType.settings && !isAck) {
      this.#takeSettings(payload);
      this.#reply(SETTINGS_ACK);
    } else if (type === FrameType.ping && !isAck) {
      this.#reply(frame(FrameType.ping, { flags: FrameFlag.ack, payload }));
    } else if (type === FrameType.goaway) {
      // The gateway has had enough, so that it may no longer read. Attackers come back.
      this.destroy();
    } else if (type === FrameType.windowUpdate && stream === 0) {
      this.#connectionWindow += payload.readUInt32BE(0);
    } else if (type === FrameType.windowUpdate) {
      this.#addToStream(stream, payload.readUInt32BE(0));
    }
  }

  #noteEnd(
    type: number | undefined,
    { flags, stream, payload }: { flags: number; stream: number; payload: Buffer },
  ): void {
    const isHeaders = type === FrameType.headers || type === FrameType.continuation;
    if (isHeaders) this.#headerBytes += payload.length;
    const hasEnd = isHeaders || type === FrameType.data;
    if (hasEnd && (flags & FrameFlag.endStream) !== 0) this.#ended.set(stream, 'answer');
    if (type === FrameType.reset) this.#ended.set(stream, 'reset');
  }

  #takeSettings(payload: Buffer): void {
    for (let at = 0; at + 6 <= payload.length; at += 6)
      if (payload.readUInt16BE(at) === INITIAL_WINDOW_SETTING)
        this.#initialWindow = payload.readUInt32BE(at + 2);
  }

  /** Lets the gateway send more answers, now and then. */
  #openWindow(bytes: number): void {
    this.#receivedBytes += bytes;
    if (this.#receivedBytes < DEFAULT_WINDOW_BYTES / 4) return;
    this.#reply(windowUpdateFrame(0, this.#receivedBytes));
    this.#receivedBytes = 0;
  }

  #reply(bytes: Buffer): void {
    if (!this.isClosed) this.#socket.write(bytes);
  }
}
