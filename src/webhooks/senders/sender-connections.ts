import type { Socket } from 'node:net';
import { ConnectionLimit } from '../../runtime/connection-limit.ts';

/** Connections of which it is not known who sends. */
const UNKNOWN = { total: 256, perNetwork: 128 };
/** Connections on which a sender has shown a credential, by sender. */
const KNOWN = { total: 1_024, perNetwork: 128 };

/** The connections of a server. Those of known senders are counted apart, so that strangers can't
 * end them by opening many. */
export class SenderConnections {
  readonly #unknown = new ConnectionLimit(UNKNOWN);
  readonly #known = new ConnectionLimit(KNOWN);
  readonly #owners = new WeakMap<Socket, string>();

  add(socket: Socket): void {
    this.#unknown.add(socket);
  }

  /** This sender has shown a credential on the connection. */
  identify(socket: Socket, sender: string): void {
    if (this.#owners.has(socket)) return;
    this.#owners.set(socket, sender);
    this.#unknown.remove(socket);
    this.#known.add(socket, sender);
  }
}
