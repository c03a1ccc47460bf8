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
  /** Connections that have received bytes and had no turn lately; the first one has the next. */
  readonly #fresh = new Set<ThrottledSocket>();
  /** Connections that have had a turn. They share every second turn, and all that nobody fresh
   * needs: a caller with one call need not wait behind those who flood, nor a caller with many
   * behind strangers who come back again and again. */
  readonly #backlogged = new Set<ThrottledSocket>();
  #wasFresh = false;
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
      if (!this.#backlogged.has(waiting)) this.#fresh.add(waiting);
      this.#giveTurns();
    });
  }

  #giveTurns(): void {
    // While a socket has its turn, it or another one may ask for the next: the loop comes to it.
    if (this.#isGivingTurns) return;
    this.#isGivingTurns = true;
    this.#refill();
    while (this.#credit > 0) {
      this.#wasFresh = !this.#wasFresh && this.#fresh.size > 0;
      const isFresh = this.#wasFresh || this.#backlogged.size === 0;
      const [socket] = isFresh ? this.#fresh : this.#backlogged;
      if (socket === undefined) break;
      this.#fresh.delete(socket);
      this.#backlogged.delete(socket);
      const cost = socket.passOn(TURN_COST);
      this.#credit -= cost;
      // Now it is last. One that was fresh is not fresh again before the others had their turns, or
      // floods that pause for a moment would always be first.
      if (isFresh || (cost > 0 && socket.hasMore)) this.#backlogged.add(socket);
    }
    this.#isGivingTurns = false;
    if (this.#fresh.size + this.#backlogged.size === 0 || this.#isTicking) return;
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
  /** The rest of what was read from the socket. */
  #rest: Buffer | undefined;
  /** Whether the reader has to take what was passed on before it gets more. */
  #isFull = false;
  readonly #askForTurn: () => void;

  constructor(socket: Socket, askForTurn: (socket: ThrottledSocket) => void) {
    super();
    this.#socket = socket;
    this.#askForTurn = (): void => askForTurn(this);
    // Not 'data', which gives what arrived in parts one by one: each would need a turn.
    socket.on('readable', this.#askForTurn);
    socket.on('end', () => this.push(null));
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', () => this.destroy());
  }

  /** Whether it needs another turn. */
  get hasMore(): boolean {
    if (this.destroyed || this.#socket.destroyed || this.#isFull) return false;
    return this.#rest !== undefined || this.#socket.readableLength > 0;
  }

  /** Passes on received bytes.
   * @returns their cost, which may be above `credit` by that of one frame */
  passOn(credit: number): number {
    let spent = 0;
    while (spent < credit && !this.#isFull && !this.destroyed) {
      // Reading also makes the socket receive more.
      const chunk = this.#rest ?? (this.#socket.read() as Buffer | null);
      if (chunk === null) break;
      const { bytes, cost } = this.#meter.take(chunk, credit - spent);
      this.#rest = bytes < chunk.length ? chunk.subarray(bytes) : undefined;
      this.#isFull = !this.push(chunk.subarray(0, bytes));
      spent += cost;
    }
    return spent;
  }

  // Received bytes are pushed when they have their turn. HTTP/2 stops reading while its peer does
  // not read what it writes.
  override _read(): void {
    if (!this.#isFull) return;
    this.#isFull = false;
    if (this.hasMore) this.#askForTurn();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void) {
    this.#socket.write(chunk, done);
  }

  override _final(done: () => void): void {
    this.#socket.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#rest = undefined;
    this.#socket.destroy();
    done(error);
  }
}
