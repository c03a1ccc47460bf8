import type { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { ConnectionLimit } from '../runtime/connection-limit.ts';
import { networkOf } from '../runtime/network-of.ts';
import { TokenBucket } from '../runtime/token-bucket.ts';

/** New connections that begin at once, and per second from then on. With TLS they cost at most some
 * 30 % of a CPU: about 1 ms for a handshake. */
const BEGINNINGS = { burst: 32, perSecond: 250 };
/** Connections that have not begun. One more ends the oldest of its network, or of the network that
 * has most. They hold little: nothing is read from them. */
const WAITING = { total: 2_048, perNetwork: 1_536 };
/** Connections that have begun and of which it is not known yet who calls, likewise. */
const UNKNOWN = { total: 512, perNetwork: 128 };
const TICK_MS = 5;

export interface NewSocketsOptions {
  /** Longest wait for the first bytes and the turn. */
  readonly maxWaitMs: number;
  /** Begins TLS or HTTP/2 on a connection. */
  readonly begin: (socket: Socket) => void;
  /** Called with a connection that was ended before it began. */
  readonly onRefused: (socket: Socket) => void;
}

/** The TCP connections of one listener before it is known who calls. Each begins when its first
 * bytes have arrived, so that silent ones cost nothing, and at a limited rate: networks take turns,
 * and of one network's connections the newest is first. A flood of connections can neither occupy
 * the gateway nor make a new one wait behind thousands. */
export class NewSockets {
  readonly #options: NewSocketsOptions;
  readonly #waitingLimit = new ConnectionLimit(WAITING);
  /** Connections that can begin, the newest last, by network; the first network has the turn. */
  readonly #ready = new Map<string, Set<Socket>>();
  readonly #beginnings = new TokenBucket({ ...BEGINNINGS, nowMs: performance.now() });
  /** Those that wait, each with what stops that. */
  readonly #waiting = new Map<Socket, () => void>();
  /** Those that have begun and are not identified, by peer. */
  readonly #unknown = new Map<string, Socket>();
  readonly #unknownLimit = new ConnectionLimit(UNKNOWN);
  #isTicking = false;

  constructor(options: NewSocketsOptions) {
    this.#options = options;
  }

  /** Takes in a connection, which must be paused, and begins it when it has its turn. */
  add(socket: Socket): void {
    const network = networkOf(socket.remoteAddress ?? '');
    // Nobody else listens for its errors yet; 'close' follows.
    socket.on('error', () => undefined);
    const timer = setTimeout(() => socket.destroy(), this.#options.maxWaitMs);
    const endWait = (): void => {
      if (!this.#waiting.delete(socket)) return;
      clearTimeout(timer);
      this.#waitingLimit.remove(socket);
      const ready = this.#ready.get(network);
      if (ready?.delete(socket) === true && ready.size === 0) this.#ready.delete(network);
    };
    this.#waiting.set(socket, endWait);
    socket.once('close', () => {
      if (this.#waiting.has(socket)) this.#options.onRefused(socket);
      endWait();
    });
    this.#waitingLimit.add(socket);
    // This does not read: the bytes stay in the socket's buffer.
    socket.once('readable', () => {
      // The peer has closed it.
      if (socket.readableLength === 0) return void socket.destroy();
      this.#ready.set(network, (this.#ready.get(network) ?? new Set()).add(socket));
      this.#beginNext();
    });
  }

  /** Limits a connection that has begun, until it is known who calls or the connection ends. */
  addUnknown(socket: Socket): void {
    const peer = peerOf(socket);
    this.#unknown.set(peer, socket);
    this.#unknownLimit.add(socket);
    socket.once('close', () => {
      if (this.#unknown.get(peer) === socket) this.#unknown.delete(peer);
    });
  }

  /** It is known now who calls.
   * @param socket  the connection, or its TLS socket, which has the same peer */
  identified(socket: Socket): void {
    const peer = peerOf(socket);
    const below = this.#unknown.get(peer);
    this.#unknown.delete(peer);
    if (below !== undefined) this.#unknownLimit.remove(below);
  }

  /** Ends all connections that wait or have not been identified. */
  endAll(): void {
    for (const socket of [...this.#waiting.keys(), ...this.#unknown.values()]) socket.destroy();
  }

  #beginNext(): void {
    for (const [network, sockets] of this.#ready) {
      if (!this.#beginnings.take(performance.now())) break;
      const newest = [...sockets].at(-1);
      if (newest === undefined) continue;
      this.#waiting.get(newest)?.();
      // The network is last now.
      if (this.#ready.delete(network)) this.#ready.set(network, sockets);
      if (!newest.destroyed) this.#options.begin(newest);
    }
    if (this.#ready.size === 0 || this.#isTicking) return;
    this.#isTicking = true;
    setTimeout(() => {
      this.#isTicking = false;
      this.#beginNext();
    }, TICK_MS);
  }
}

function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress ?? ''} ${remotePort ?? 0}`;
}
