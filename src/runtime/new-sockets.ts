import type { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { ConnectionLimit } from './connection-limit.ts';
import { networkOf } from './network-of.ts';
import { TokenBucket } from './token-bucket.ts';

export interface NewSocketLimits {
  /** New connections that begin at once, and per second from then on. */
  readonly burst: number;
  readonly perSecond: number;
  /** Longest wait for the first bytes of a connection. */
  readonly silentMs: number;
  /** Longest wait for the turn. Callers give up sooner; a stranger who is made to wait does not
   * come back at once. */
  readonly turnMs: number;
}

const WAITS = { silentMs: 5_000, turnMs: 30_000 };
/** A TLS handshake and the first call take up to 5 ms of CPU. */
export const tlsLimits: NewSocketLimits = { burst: 8, perSecond: 50, ...WAITS };
export const plaintextLimits: NewSocketLimits = { burst: 32, perSecond: 200, ...WAITS };

/** Connections that have not begun. One more ends the oldest of its network, or of the network that
 * has most. */
const WAITING = { total: 2_048, perNetwork: 1_536 };
/** Bytes of a connection that waits for its turn; more end it. Node reads up to 64 KiB to learn
 * that there are any. Callers send less until the gateway has answered. */
const MAX_WAITING_BYTES = 16 * 1024;
/** Connections that have begun and of which it is not known yet who calls, likewise. */
const UNKNOWN = { total: 512, perNetwork: 128 };
const TICK_MS = 5;

export interface NewSocketsOptions {
  readonly limits: NewSocketLimits;
  /** Begins TLS or HTTP/2 on a connection. */
  readonly begin: (socket: Socket) => void;
  /** Called with a connection that was ended before it began, for others or because of its silence
   * or its many bytes; not with one whose peer ended it. */
  readonly onRefused: (socket: Socket) => void;
}

/** The TCP connections of one listener before it is known who calls. Each begins when its first
 * bytes have arrived, so that silent ones cost nothing, and at a limited rate: networks take turns,
 * and of one network's connections the newest is first, mostly. A flood of connections can neither
 * occupy the gateway nor make a new one wait behind thousands. */
export class NewSockets {
  readonly #options: NewSocketsOptions;
  readonly #waitingLimit = new ConnectionLimit(WAITING);
  /** Connections that can begin, by network; the first network has the turn. */
  readonly #ready = new Map<string, ReadySockets>();
  readonly #beginnings: TokenBucket;
  /** Those that wait, each with what stops that. */
  readonly #waiting = new Map<Socket, () => void>();
  /** Those that have begun and are not identified, by peer. */
  readonly #unknown = new Map<string, Socket>();
  readonly #unknownLimit = new ConnectionLimit(UNKNOWN);
  #isTicking = false;

  constructor(options: NewSocketsOptions) {
    this.#options = options;
    this.#beginnings = new TokenBucket({ ...options.limits, nowMs: performance.now() });
  }

  /** Takes in a connection, which must be paused, and begins it when it has its turn. */
  add(socket: Socket): void {
    const network = turnTakerOf(socket.remoteAddress ?? '');
    let timer = setTimeout(() => socket.destroy(), this.#options.limits.silentMs);
    const endWait = (): void => {
      if (!this.#waiting.delete(socket)) return;
      clearTimeout(timer);
      socket.off('readable', onReadable);
      this.#waitingLimit.remove(socket);
      const ready = this.#ready.get(network);
      if (ready?.sockets.delete(socket) === true && ready.sockets.size === 0)
        this.#ready.delete(network);
    };
    const onReadable = (): void => {
      if (socket.readableLength === 0) {
        // Its peer has closed it, as a probe of the port does.
        endWait();
        return void socket.destroy();
      }
      if (this.#ready.get(network)?.sockets.has(socket) !== true) {
        clearTimeout(timer);
        timer = setTimeout(() => socket.destroy(), this.#options.limits.turnMs);
        this.#makeReady(network, socket);
      }
      if (this.#waiting.has(socket) && socket.readableLength > MAX_WAITING_BYTES) socket.destroy();
    };
    this.#waiting.set(socket, endWait);
    // Nobody else listens for its errors yet. The peer has broken the connection.
    socket.on('error', endWait);
    socket.once('close', () => {
      if (this.#waiting.has(socket)) this.#options.onRefused(socket);
      endWait();
    });
    this.#waitingLimit.add(socket);
    socket.on('readable', onReadable);
  }

  /** Lets a connection take part in the turns, and begins it if it has the next one. */
  #makeReady(network: string, socket: Socket): void {
    const ready = this.#ready.get(network) ?? new ReadySockets();
    ready.sockets.add(socket);
    this.#ready.set(network, ready);
    this.#beginNext();
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
    for (const [socket, endWait] of this.#waiting) {
      endWait();
      socket.destroy();
    }
    for (const socket of this.#unknown.values()) socket.destroy();
  }

  #beginNext(): void {
    for (const [network, ready] of this.#ready) {
      if (!this.#beginnings.take(performance.now())) break;
      const socket = ready.next();
      if (socket === undefined) continue;
      this.#waiting.get(socket)?.();
      // The network is last now.
      if (this.#ready.delete(network)) this.#ready.set(network, ready);
      if (!socket.destroyed) this.#options.begin(socket);
    }
    if (this.#ready.size === 0 || this.#isTicking) return;
    this.#isTicking = true;
    setTimeout(() => {
      this.#isTicking = false;
      this.#beginNext();
    }, TICK_MS);
  }
}

/** The connections of one network that can begin. */
class ReadySockets {
  /** The oldest first. */
  readonly sockets = new Set<Socket>();
  #turns = 0;

  /** The one that has the next turn: the newest, which would wait behind a flood otherwise, and in
   * every fourth turn the oldest, which would wait for ever where new ones come all the time. */
  next(): Socket | undefined {
    this.#turns += 1;
    const sockets = [...this.sockets];
    return this.#turns % 4 === 0 ? sockets[0] : sockets.at(-1);
  }
}

/** The network. Addresses of this machine take turns by themselves: whoever can use many of them is
 * beside the driver already. */
function turnTakerOf(address: string): string {
  const network = networkOf(address);
  return network === 'loopback' ? address : network;
}

function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress ?? ''} ${remotePort ?? 0}`;
}
