import { createServer, type RequestListener, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { ConnectionLimit } from './connection-limit.ts';

export interface ServerLimits {
  /** From the start of an answer to its last byte, with the reading of a slow client. */
  readonly answerMs: number;
  /** Whether a proxy has this address: it carries many people's requests, so its connections are
   * counted apart from all others. */
  readonly isProxy?: (address: string) => boolean;
}

/** One network may have more than a flood opens between two turns of the event loop, so that a
 * probe that asks at once is read before it is the oldest. */
const CONNECTIONS = { total: 512, perNetwork: 256 };
const PROXY_CONNECTIONS = { total: 512, perNetwork: 512 };
/** Requests that one connection may have sent before the first is answered. */
const MAX_PIPELINED = 8;

/** Creates an HTTP server that no client can exhaust: connections are limited in all and by
 * network, and headers, requests, answers and pauses have a size and a time. */
export function createLimitedServer(limits: ServerLimits, listener: RequestListener): Server {
  const answers = new WeakMap<Socket, OpenAnswers>();
  const server = createServer(
    {
      maxHeaderSize: 8 * 1024,
      headersTimeout: 5_000,
      requestTimeout: 10_000,
      keepAliveTimeout: 5_000,
      connectionsCheckingInterval: 1_000,
    },
    (request, response) => {
      const open = answers.get(request.socket);
      if (open?.begin() === false) return;
      response.once('close', () => open?.end());
      listener(request, response);
    },
  );
  server.maxHeadersCount = 100;
  server.maxRequestsPerSocket = 1_000;
  const others = new ConnectionLimit(CONNECTIONS);
  const proxies = new ConnectionLimit(PROXY_CONNECTIONS);
  server.on('connection', (socket) => {
    answers.set(socket, new OpenAnswers(socket, limits.answerMs));
    const isProxy = limits.isProxy?.(socket.remoteAddress ?? '') === true;
    (isProxy ? proxies : others).add(socket);
  });
  return server;
}

/** The requests of one connection that are not answered yet. Ends the connection if they are too
 * many, or if the first of them takes too long. */
class OpenAnswers {
  readonly #socket: Socket;
  readonly #limitMs: number;
  #count = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(socket: Socket, limitMs: number) {
    this.#socket = socket;
    this.#limitMs = limitMs;
    // Answers that wait for the first are not told that the connection is closed.
    socket.once('close', () => clearTimeout(this.#timer));
  }

  /** @returns false if this one is too many */
  begin(): boolean {
    this.#count += 1;
    if (this.#count === 1) this.#startTimer();
    if (this.#count > MAX_PIPELINED) this.#socket.destroy();
    return !this.#socket.destroyed;
  }

  end(): void {
    this.#count -= 1;
    clearTimeout(this.#timer);
    if (this.#count > 0) this.#startTimer();
  }

  #startTimer(): void {
    if (!this.#socket.destroyed)
      this.#timer = setTimeout(() => this.#socket.destroy(), this.#limitMs);
  }
}
