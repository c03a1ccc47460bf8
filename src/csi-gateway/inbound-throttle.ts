import type { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { Duplex } from 'node:stream';
import { FrameMeter } from './frame-meter.ts';

/** What a connection may pass on before the next one has its turn: a bit more than one call. */
const TURN_COST = 64;
const TICK_MS = 10;
/** What is taken from a socket at once. It receives more when it holds less than 16 KiB, so a
 * connection that waits for its turn holds no more than one such part and 64 KiB. */
const PART_BYTES = 16 * 1024;
/** Unused time that may be caught up with. */
const BURST_MS = 20;

type Queue = Set<ThrottledSocket>;

/** Limits how fast the gateway reads from connections whose callers have not shown an allowed name.
 * They share a rate, by turns, so that none of them slows the others, and all of them together
 * leave the gateway time for callers with a name. Bytes that have to wait stay in the kernel, which
 * slows their sender. Node's HTTP/2 has no such limit: it reads up to 2 MB of a connection before
 * it looks at the next one. */
export class InboundThrottle {
  readonly #costPerMs: number;
  /** Connections that have received bytes and wait for their turn, in three queues that take turns
   * too. In each, the first one is next.
   * - proven: the driver has answered a call of theirs. Strangers whose calls all fail can't slow
   *   them, however many connections they have.
   * - fresh: others that had no turn lately. A new caller with one call need not wait behind those
   *   who flood.
   * - backlogged: others that had a turn. They need not wait behind strangers who come back again
   *   and again. */
  readonly #queues = {
    proven: new Set<ThrottledSocket>(),
    fresh: new Set<ThrottledSocket>(),
    backlogged: new Set<ThrottledSocket>(),
  };
  /** The queue that has the next turn is first. */
  readonly #order = Object.values(this.#queues);
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
  wrap(socket: Socket): ThrottledSocket {
    const { proven, fresh, backlogged } = this.#queues;
    return new ThrottledSocket(socket, (waiting) => {
      if (waiting.isProven) proven.add(waiting);
      else if (!backlogged.has(waiting)) fresh.add(waiting);
      this.#giveTurns();
    });
  }

  #giveTurns(): void {
    // While a socket has its turn, it or another one may ask for the next: the loop comes to it.
    if (this.#isGivingTurns) return;
    this.#isGivingTurns = true;
    this.#refill();
    while (this.#credit > 0) {
      const queue = this.#nextQueue();
      if (queue === undefined) break;
      this.#giveTurn(queue);
    }
    this.#isGivingTurns = false;
    if (this.#order.every(({ size }) => size === 0) || this.#isTicking) return;
    this.#isTicking = true;
    setTimeout(() => {
      this.#isTicking = false;
      this.#giveTurns();
    }, TICK_MS);
  }

  /** The queue whose turn it is; undefined if nobody waits. Now it is last. */
  #nextQueue(): Queue | undefined {
    const index = this.#order.findIndex(({ size }) => size > 0);
    const [queue] = index < 0 ? [] : this.#order.splice(index, 1);
    if (queue !== undefined) this.#order.push(queue);
    return queue;
  }

  #giveTurn(queue: Queue): void {
    const [socket] = queue;
    if (socket === undefined) return;
    queue.delete(socket);
    const cost = socket.passOn(TURN_COST);
    this.#credit -= cost;
    const { proven, fresh, backlogged } = this.#queues;
    const needsTurn = cost > 0 && socket.hasMore;
    // One that was fresh is not fresh again before the others had their turns, or floods that pause
    // for a moment would always be first.
    if (!socket.isProven && (queue === fresh || needsTurn)) backlogged.add(socket);
    else if (needsTurn) proven.add(socket);
  }

  #refill(): void {
    const nowMs = performance.now();
    const gained = (nowMs - this.#refilledMs) * this.#costPerMs;
    this.#credit = Math.min(this.#credit + gained, this.#costPerMs * BURST_MS);
    this.#refilledMs = nowMs;
  }
}

/** A socket that passes on what it receives only when it has its turn. */
export class ThrottledSocket extends Duplex {
  #isProven = false;
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

  /** The driver has answered a call of this connection. */
  prove(): void {
    this.#isProven = true;
  }

  get isProven(): boolean {
    return this.#isProven;
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
      const { readableLength } = this.#socket;
      const next = Math.min(readableLength, PART_BYTES);
      const chunk = this.#rest ?? (this.#socket.read(next || undefined) as Buffer | null);
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
