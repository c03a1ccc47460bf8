import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import {
  createServer as createTlsServer,
  Server as TlsServer,
  type ServerOptions as TlsOptions,
} from 'node:https';
import type { Socket } from 'node:net';
import { ConnectionLimit } from './connection-limit.ts';
import { type NewSocketLimits, NewSockets } from './new-sockets.ts';

export interface ServerLimits {
  /** From the start of an answer to its last byte, with the reading of a slow client. */
  readonly answerMs: number;
  /** Whether a proxy has this address: it carries many people's requests, so its connections are
   * counted apart from all others. */
  readonly isProxy?: (address: string) => boolean;
  /** Counts the connections, where the server's own limits don't fit. */
  readonly connections?: { add(socket: Socket): void };
  /** How fast connections begin; not limited if absent. */
  readonly newSockets?: NewSocketLimits;
  /** Largest headers of a request; 8 KiB if absent. */
  readonly maxHeaderBytes?: number;
}

/** One network may have more than a flood opens between two turns of the event loop, so that a
 * probe that asks at once is read before it is the oldest. */
const CONNECTIONS = { total: 512, perNetwork: 256 };
const PROXY_CONNECTIONS = { total: 512, perNetwork: 512 };
/** Requests that one connection may have sent before the first is answered. */
const MAX_PIPELINED = 8;
/** A header takes five bytes at least. Node drops those beyond a number without a word. */
const MIN_HEADER_BYTES = 5;
const HANDSHAKE_MS = 5_000;
/** Thirty of the shortest requests. */
const PART_BYTES = 512;

/** Creates an HTTP server that no client can exhaust: connections are limited in all and by
 * network, and headers, requests, answers and pauses have a size and a time. */
export function createLimitedServer(limits: ServerLimits, listener: RequestListener): Server {
  const { answers, onRequest } = limitRequests(listener);
  const server = createServer(httpOptions(limits), onRequest);
  server.on('connection', openConnection(limits, answers));
  return limitServer(server, limits);
}

/** The same with TLS. */
export function createLimitedTlsServer(
  limits: ServerLimits,
  tls: TlsOptions,
  listener: RequestListener,
): TlsServer {
  const { answers, onRequest } = limitRequests(listener);
  const options = { ...tls, handshakeTimeout: HANDSHAKE_MS, ...httpOptions(limits) };
  const server = createTlsServer(options, onRequest);
  server.on('secureConnection', openConnection(limits, answers));
  return limitServer(server, limits);
}

function httpOptions({ maxHeaderBytes = 8 * 1024, newSockets }: ServerLimits) {
  return {
    maxHeaderSize: maxHeaderBytes,
    headersTimeout: 5_000,
    requestTimeout: 10_000,
    keepAliveTimeout: 5_000,
    connectionsCheckingInterval: 1_000,
    ...(newSockets === undefined ? {} : { pauseOnConnect: true }),
  };
}

function limitRequests(listener: RequestListener) {
  const answers = new WeakMap<Socket, OpenAnswers>();
  const onRequest: RequestListener = (request, response) => {
    const open = answers.get(request.socket);
    if (open?.begin(request) === false) return;
    response.once('close', () => open?.end());
    listener(request, response);
  };
  return { answers, onRequest };
}

function openConnection(limits: ServerLimits, answers: WeakMap<Socket, OpenAnswers>) {
  const others = limits.connections ?? new ConnectionLimit(CONNECTIONS);
  const proxies = new ConnectionLimit(PROXY_CONNECTIONS);
  return (socket: Socket): void => {
    const open = new OpenAnswers(socket, limits.answerMs);
    readInParts(socket, open);
    answers.set(socket, open);
    const isProxy = limits.isProxy?.(socket.remoteAddress ?? '') === true;
    (isProxy ? proxies : others).add(socket);
  };
}

/** Gives what arrives to Node's parser in small parts, but for the body of one request. It parses a
 * part to its end, with all the requests in it, even if the connection is ended at the first of
 * them. */
function readInParts(socket: Socket, open: OpenAnswers): void {
  const parse = socket.listeners('data') as ((part: Buffer) => void)[];
  socket.removeAllListeners('data');
  socket.on('data', (chunk: Buffer) => {
    for (let at = 0; at < chunk.length && !socket.destroyed;) {
      const part = chunk.subarray(at, at + Math.max(PART_BYTES, open.bodyBytes));
      open.bodyBytes -= part.length;
      at += part.length;
      for (const each of parse) each.call(socket, part);
    }
  });
  socket.resume();
}

function limitServer<S extends Server | TlsServer>(server: S, limits: ServerLimits): S {
  const { maxHeaderBytes = 8 * 1024, newSockets } = limits;
  server.maxHeadersCount = Math.ceil(maxHeaderBytes / MIN_HEADER_BYTES);
  server.maxRequestsPerSocket = 1_000;
  if (newSockets !== undefined) limitNewSockets(server, newSockets);
  return server;
}

/** Holds each new connection back until it has its turn. */
function limitNewSockets(server: Server | TlsServer, limits: NewSocketLimits): void {
  const begin = server.listeners('connection') as ((socket: Socket) => void)[];
  server.removeAllListeners('connection');
  const sockets = new NewSockets({
    limits,
    begin: (socket) => {
      if (server instanceof TlsServer) sockets.addUnknown(socket);
      for (const each of begin) each.call(server, socket);
      socket.resume();
    },
    onRefused: () => undefined,
  });
  server.on('connection', (socket: Socket) => sockets.add(socket));
  server.on('secureConnection', (socket: Socket) => sockets.identified(socket));
  server.on('close', () => sockets.endAll());
}

/** The requests of one connection that are not answered yet. Ends the connection if they are too
 * many, or if the first of them takes too long. */
class OpenAnswers {
  readonly #socket: Socket;
  readonly #limitMs: number;
  /** At least so many of the next bytes are the body of the newest request. */
  bodyBytes = 0;
  #count = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(socket: Socket, limitMs: number) {
    this.#socket = socket;
    this.#limitMs = limitMs;
    // Answers that wait for the first are not told that the connection is closed.
    socket.once('close', () => clearTimeout(this.#timer));
  }

  /** @returns false if this one is too many */
  begin({ headers }: IncomingMessage): boolean {
    // Some of it may be in the part that has the headers.
    this.bodyBytes = Number(headers['content-length'] ?? 0) - PART_BYTES;
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
