import type { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { Duplex } from 'node:stream';
import { FrameMeter } from './frame-meter.ts';

/** What a connection may pass on before the next one has its turn: a bit more than one call. */
const TURN_COST = 64;
const TICK_MS = 10;
/** Unused time that may be caught up with. */
const BURST_MS = 20;

/** Limits how fast the gateway reads from connections whose callers have not shown an allowed name.
 * They share a rate, by turns, so that none of them slows the others, and all of them together
 * leave the gateway time for callers with a name. Bytes that have to wait stay in the kernel, which
 * slows their sender. Node's HTTP/2 has no such limit: it reads up to 2 MB of a connection before
 * it looks at the next one. */
export class InboundThrottle {
  readonly #costPerMs: number;
  /** Connections with bytes to pass on; the first one has the next turn. */
  readonly #waiting = new Set<ThrottledSocket>();
  #credit: number;
  #refilledMs = performance.now();
  #isTicking = false;
  #isGivingTurns = false;

  /** @param costPerSecond  of all connections together, in the units of FrameMeter */
  constructor(costPerSecond: number) {
    this.#costPerMs = costPerSecond / 1_000;
    this.#credit = this.#costPerMs * BURST_MS;
  }

  /** The same connection, read at the rate of this throttle. */
  wrap(socket: Socket): Duplex {
    return new ThrottledSocket(socket, (waiting) => {
      this.#waiting.add(waiting);
      this.#giveTurns();
    });
  }

  #giveTurns(): void {
    // While a socket has its turn, it or another one may ask for the next: the loop comes to it.
    if (this.#isGivingTurns) return;
    this.#isGivingTurns = true;
    this.#refill();
    for (const socket of this.#waiting) {
      if (this.#credit <= 0) break;
      this.#waiting.delete(socket);
      this.#credit -= socket.passOn(TURN_COST);
      // Now it is last.
      if (socket.hasMore) this.#waiting.add(socket);
    }
    this.#isGivingTurns = false;
    if (this.#waiting.size === 0 || this.#isTicking) return;
    this.#isTicking = true;
    setTimeout(() => {
      this.#isTicking = false;
      this.#giveTurns();
    }, TICK_MS);
  }

  #refill(): void {
    const nowMs = performance.now();
    const gained = (nowMs - this.#refilledMs) * this.#costPerMs;
    this.#credit = Math.min(this.#credit + gained, this.#costPerMs * BURST_MS);
    this.#refilledMs = nowMs;
  }
}

/** A socket that passes on what it receives only when it has its turn. */
class ThrottledSocket extends Duplex {
  readonly #socket: Socket;
  readonly #meter = new FrameMeter();
  #received: Buffer | undefined;
  #hasEnded = false;
  /** Whether the reader has to take what was passed on before it gets more. */
  #isFull = false;
  readonly #askForTurn: () => void;

  constructor(socket: Socket, askForTurn: (socket: ThrottledSocket) => void) {
    super();
    this.#socket = socket;
    this.#askForTurn = (): void => askForTurn(this);
    socket.on('data', (chunk: Buffer) => {
      socket.pause();
      // A socket may emit what it has buffered after it was destroyed.
      if (this.destroyed) return;
      this.#received = chunk;
      this.#askForTurn();
    });
    socket.on('end', () => {
      this.#hasEnded = true;
      if (this.#received === undefined) this.push(null);
    });
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', () => this.destroy());
    // A new connection may have been paused until its turn.
    socket.resume();
  }

  /** Whether it needs another turn. */
  get hasMore(): boolean {
    return this.#received !== undefined && !this.#isFull;
  }

  /** Passes on received bytes.
   * @returns their cost, which may be above `credit` by that of one frame */
  passOn(credit: number): number {
    const chunk = this.#received;
    if (chunk === undefined || this.#isFull) return 0;
    const { bytes, cost } = this.#meter.take(chunk, credit);
    this.#received = bytes < chunk.length ? chunk.subarray(bytes) : undefined;
    this.#isFull = !this.push(chunk.subarray(0, bytes));
    if (!this.#isFull) this.#readOn();
    return cost;
  }

  /** Reads more of the socket once everything is passed on. */
  #readOn(): void {
    if (this.#received !== undefined || this.destroyed) return;
    if (this.#hasEnded) this.push(null);
    else this.#socket.resume();
  }

  // Received bytes are pushed when they have their turn. HTTP/2 stops reading while its peer does
  // not read what it writes.
  override _read(): void {
    if (!this.#isFull) return;
    this.#isFull = false;
    if (this.#received === undefined) this.#readOn();
    else this.#askForTurn();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void) {
    this.#socket.write(chunk, done);
  }

  override _final(done: () => void): void {
    this.#socket.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#received = undefined;
    this.#socket.destroy();
    done(error);
  }
}
