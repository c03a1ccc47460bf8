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
  /** By owner; each set has the oldest connection first. */
  readonly #open = new Map<string, Set<Socket>>();
  #total = 0;

  constructor(counts: ConnectionCounts) {
    this.#counts = counts;
  }

  /** Counts a new connection. If its network has too many, the oldest of that network is ended; if
   * there are too many in all, the oldest of the network with the most.
   * @param owner  for whom it is counted, where that is not its network */
  add(socket: Socket, owner = networkOf(socket.remoteAddress ?? '')): void {
    const sockets = this.#open.get(owner) ?? new Set();
    this.#open.set(owner, sockets.add(socket));
    this.#total += 1;
    socket.once('close', () => this.#forget(owner, socket));
    if (sockets.size > this.#counts.perNetwork) this.#endOldest(owner);
    else if (this.#total > this.#counts.total) this.#endOldest(this.#largestOwner());
  }

  /** Stops counting a connection of a network; it stays open. */
  remove(socket: Socket): void {
    this.#forget(networkOf(socket.remoteAddress ?? ''), socket);
  }

  #endOldest(owner: string): void {
    const [oldest] = this.#open.get(owner) ?? [];
    if (oldest === undefined) return;
    this.#forget(owner, oldest);
    oldest.destroy();
  }

  #forget(owner: string, socket: Socket): void {
    const sockets = this.#open.get(owner);
    if (sockets?.delete(socket) !== true) return;
    this.#total -= 1;
    if (sockets.size === 0) this.#open.delete(owner);
  }

  #largestOwner(): string {
    let largest = '';
    let size = 0;
    for (const [owner, sockets] of this.#open) {
      if (sockets.size <= size) continue;
      largest = owner;
      size = sockets.size;
    }
    return largest;
  }
}
