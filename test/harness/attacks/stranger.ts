import { once } from 'node:events';
import { connect as connectSocket, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { RawConnection } from './raw-connection.ts';

/** The door of a gateway, and with what a stranger comes to it. */
export interface AttackTarget {
  readonly host: string;
  readonly port: number;
  /** PEM texts; undefined where the door is plaintext. */
  readonly tls: { readonly ca: string; readonly cert: string; readonly key: string } | undefined;
}

export interface StrangerOptions {
  readonly target: AttackTarget;
  /** Address from which the stranger connects; undefined: whichever the system chooses. */
  readonly localAddress: string | undefined;
  /** Connections that the stranger has open at once, at most. */
  readonly maxSockets: number;
  /** Ends the attack and all connections. */
  readonly signal: AbortSignal;
}

/** Time after which a stranger that was cut off comes back. Without it, strangers would only show
 * how many TCP connections this machine can open. */
const COMEBACK_MS = 50;
const CONNECT_MS = 5_000;

/** One attacker: opens connections from its own address, and ends them all with the attack. */
export class Stranger {
  readonly #options: StrangerOptions;
  readonly #sockets = new Set<Socket>();
  /** Connections opened so far. */
  connections = 0;
  /** Those of them that were established, or were refused. */
  settled = 0;
  /** How often the attack was made. */
  rounds = 0;

  constructor(options: StrangerOptions) {
    this.#options = options;
    options.signal.addEventListener('abort', () => {
      for (const socket of this.#sockets) socket.destroy();
    });
  }

  get isTls(): boolean {
    return this.#options.target.tls !== undefined;
  }

  get maxSockets(): number {
    return this.#options.maxSockets;
  }

  get signal(): AbortSignal {
    return this.#options.signal;
  }

  /** Opens a TCP connection that speaks neither TLS nor HTTP/2 yet.
   * @throws Error if it can't connect */
  async openSocket(): Promise<Socket> {
    const { target, localAddress, maxSockets, signal } = this.#options;
    if (signal.aborted) throw new Error('the attack is over');
    if (this.#sockets.size >= maxSockets) throw new Error('too many connections of one stranger');
    const { host, port } = target;
    const socket = connectSocket({
      host,
      port,
      noDelay: true,
      ...(localAddress === undefined ? {} : { localAddress }),
    });
    this.#sockets.add(socket);
    this.connections += 1;
    socket.on('error', () => undefined);
    socket.once('close', () => this.#sockets.delete(socket));
    await settle(socket, 'connect').finally(() => (this.settled += 1));
    return socket;
  }

  /** Opens a connection that speaks HTTP/2, over TLS where the door has it.
   * @throws Error if it can't connect */
  async open(): Promise<RawConnection> {
    const socket = await this.openSocket();
    const { tls } = this.#options.target;
    if (tls === undefined) return new RawConnection(socket);
    const secure = connectTls({
      socket,
      ...tls,
      ALPNProtocols: ['h2'],
      checkServerIdentity: () => undefined,
    });
    secure.on('error', () => undefined);
    secure.once('close', () => socket.destroy());
    await settle(secure, 'secureConnect');
    return new RawConnection(secure);
  }

  /** Repeats an attack until the signal aborts, also after the gateway has cut it off. */
  async attack(attack: (stranger: Stranger) => Promise<void>): Promise<void> {
    const { signal } = this.#options;
    while (!signal.aborted) {
      await attack(this).catch(() => undefined);
      this.rounds += 1;
      for (const socket of this.#sockets) socket.destroy();
      await delay(COMEBACK_MS, undefined, { signal }).catch(() => undefined);
    }
  }
}

/** Waits until a socket is connected.
 * @throws Error if it closes first, or takes too long */
async function settle(socket: Socket, event: 'connect' | 'secureConnect'): Promise<void> {
  const end = new AbortController();
  const timer = setTimeout(() => socket.destroy(), CONNECT_MS);
  try {
    await Promise.race([
      once(socket, event, { signal: end.signal }),
      once(socket, 'close', { signal: end.signal }).then(() => {
        throw new Error('the connection was refused');
      }),
    ]);
  } finally {
    clearTimeout(timer);
    end.abort();
  }
}
