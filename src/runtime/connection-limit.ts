import type { Socket } from 'node:net';
import { networkOf } from './network-of.ts';

/** How many connections may be open. */
export interface ConnectionCounts {
  readonly total: number;
  readonly perNetwork: number;
}

/** Keeps the connections of a server within limits. A new connection is always taken and an older
 * one is ended for it, so that nobody can hold all places: whoever asks at once is answered at
 * once. */
export class ConnectionLimit {
  readonly #counts: ConnectionCounts;
  /** By network; each set has the oldest connection first. */
  readonly #open = new Map<string, Set<Socket>>();
  #total = 0;

  constructor(counts: ConnectionCounts) {
    this.#counts = counts;
  }

  /** Counts a new connection. If its network has too many, the oldest of that network is ended; if
   * there are too many in all, the oldest of the network with the most. */
  add(socket: Socket): void {
    const network = networkOf(socket.remoteAddress ?? '');
    const sockets = this.#open.get(network) ?? new Set();
    this.#open.set(network, sockets.add(socket));
    this.#total += 1;
    socket.once('close', () => this.#forget(network, socket));
    if (sockets.size > this.#counts.perNetwork) this.#endOldest(network);
    else if (this.#total > this.#counts.total) this.#endOldest(this.#largestNetwork());
  }

  /** Stops counting a connection; it stays open. */
  remove(socket: Socket): void {
    this.#forget(networkOf(socket.remoteAddress ?? ''), socket);
  }

  #endOldest(network: string): void {
    const [oldest] = this.#open.get(network) ?? [];
    if (oldest === undefined) return;
    this.#forget(network, oldest);
    oldest.destroy();
  }

  #forget(network: string, socket: Socket): void {
    const sockets = this.#open.get(network);
    if (sockets?.delete(socket) !== true) return;
    this.#total -= 1;
    if (sockets.size === 0) this.#open.delete(network);
  }

  #largestNetwork(): string {
    let largest = '';
    let size = 0;
    for (const [network, sockets] of this.#open) {
      if (sockets.size <= size) continue;
      largest = network;
      size = sockets.size;
    }
    return largest;
  }
}
