import type { IncomingHttpHeaders } from 'node:http';
import { Pool, ProxyAgent, type Dispatcher } from 'undici';
import { messageOf } from '../runtime/error-message.ts';
import { isFields } from '../runtime/json.ts';
import type { ClusterAccess, TlsMaterial } from './credentials.ts';
import { type KubeError, unansweredError } from './kube-error.ts';

/** An HTTP request. */
export interface WireRequest {
  /** For errors. */
  readonly title: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Path and query, without the server's own prefix. */
  readonly path: string;
  readonly tls: TlsMaterial;
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly body?: string | undefined;
}

/** An HTTP response. */
export interface WireAnswer {
  readonly code: number;
  readonly body: Buffer;
  readonly retryAfter: string | undefined;
}

/** Receives the answer of a watch. An error that it throws ends the watch with that error. */
export interface WatchHandler {
  /** Called when a 2xx answer begins. */
  readonly onOpen: () => void;
  /** Called with the body of a 2xx answer, in pieces. */
  readonly onBody: (chunk: Buffer) => void;
}

export interface ExchangeOptions {
  /** Longest time of the whole exchange; for a watch, the longest silence. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  /** Set for a watch, which has a connection of its own. */
  readonly watch?: WatchHandler | undefined;
}

/** API servers close idle connections after 90 s. The client does so earlier, so that no request
 * meets a connection that the server is closing. A shorter Keep-Alive hint takes precedence. */
const KEEP_ALIVE_MS = 45_000;
const CONNECT_TIMEOUT_MS = 10_000;
const CLOSE_GRACE_MS = 5_000;

type Place = Pick<ClusterAccess, 'server' | 'proxy'>;

interface Pools {
  readonly tls: TlsMaterial;
  readonly calls: Dispatcher;
  readonly watches: Dispatcher;
}

/** HTTP/1.1 over kept-alive connections: one pool for calls, one for watches. New pools replace
 * both when certificate or CA change. Connects at the first request. */
export class Transport {
  readonly #access: Place;
  readonly #connections: number;
  readonly #prefix: string;
  #pools: Pools | undefined;
  #isClosed = false;

  /** @param connections  most connections for calls; each watch has one of its own */
  constructor(access: Place, connections: number) {
    this.#access = access;
    this.#connections = connections;
    this.#prefix = access.server.pathname.replace(/\/+$/, '');
  }

  /** Sends a request and receives the answer, whatever its status.
   * @throws KubeError if no complete answer comes; what the handler of a watch throws */
  async exchange(request: WireRequest, o: ExchangeOptions): Promise<WireAnswer> {
    const { title, method, path, headers, body } = request;
    const pools = this.#poolsFor(request.tls);
    if (pools === undefined) throw unansweredError(title, 'Aborted', 'the client is closed');
    const pool = o.watch === undefined ? pools.calls : pools.watches;
    return new Promise((resolve, reject) => {
      const options = {
        origin: this.#access.server.origin,
        path: this.#prefix + path,
        method,
        headers,
        // By default undici closes the connection after a DELETE with a body, so that each deletion
        // would cost a TLS handshake.
        ...(method === 'DELETE' ? { reset: false } : {}),
        ...(body === undefined ? {} : { body }),
      };
      pool.dispatch(options, new Exchange(title, o, { resolve, reject }));
    });
  }

  /** Ends the watches, waits up to 5 s for calls to finish, and cuts off the others. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const { calls, watches } = this.#pools ?? {};
    const timer = setTimeout(() => void calls?.destroy().catch(() => {}), CLOSE_GRACE_MS);
    await Promise.allSettled([watches?.destroy(), calls?.close()]);
    clearTimeout(timer);
  }

  /** The pools for this certificate and CA; undefined after close. */
  #poolsFor(tls: TlsMaterial): Pools | undefined {
    if (this.#isClosed) return undefined;
    const old = this.#pools;
    if (old?.tls === tls) return old;
    this.#pools = {
      tls,
      calls: createPool(this.#access, tls, this.#connections),
      watches: createPool(this.#access, tls, null),
    };
    // close() waits for the requests under way.
    for (const pool of old ? [old.calls, old.watches] : []) void pool.close().catch(() => {});
    return this.#pools;
  }
}

function createPool(access: Place, tls: TlsMaterial, connections: number | null): Dispatcher {
  const { skipVerify, ...material } = tls;
  const connect = { ...material, timeout: CONNECT_TIMEOUT_MS, rejectUnauthorized: !skipVerify };
  // Each exchange has a timer of its own.
  const limits = {
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
  };
  if (access.proxy)
    return new ProxyAgent({ uri: access.proxy.href, requestTls: connect, connections, ...limits });
  return new Pool(access.server.origin, { connect, connections, pipelining: 1, ...limits });
}

/** Settles the promise of one exchange. */
interface Settle {
  readonly resolve: (answer: WireAnswer) => void;
  readonly reject: (error: unknown) => void;
}

/** Receives the answer to one request. Ends at the first of these: the complete answer, an error,
 * the time limit, the abort of the signal. Uses undici's lowest interface, since its stream and an
 * AbortSignal for each request would take another half of a call's CPU. */
class Exchange implements Dispatcher.DispatchHandler {
  readonly #title: string;
  readonly #options: ExchangeOptions;
  readonly #end: Settle;
  readonly #timer: NodeJS.Timeout;
  /** Undefined while undici waits for a connection. */
  #controller: Dispatcher.DispatchController | undefined;
  /** Why it has ended without an answer. */
  #failure: Error | undefined;
  #code = 0;
  #retryAfter: string | undefined;
  readonly #pieces: Buffer[] = [];

  constructor(title: string, options: ExchangeOptions, end: Settle) {
    this.#title = title;
    this.#options = options;
    this.#end = end;
    const { timeoutMs, signal } = options;
    this.#timer = setTimeout(() => {
      const why = `nothing was received for ${Math.round(timeoutMs)} ms`;
      this.#cancel(unansweredError(title, 'Timeout', why));
    }, timeoutMs);
    signal?.addEventListener('abort', this.#onAbort, { once: true });
    if (signal?.aborted === true) this.#onAbort();
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#failure !== undefined) controller.abort(this.#failure);
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    code: number,
    headers: IncomingHttpHeaders,
  ): void {
    this.#code = code;
    this.#retryAfter = headers['retry-after'];
    const watch = this.#watch;
    if (watch !== undefined) this.#pass(() => watch.onOpen());
  }

  onResponseData(_controller: Dispatcher.DispatchController, piece: Buffer): void {
    const watch = this.#watch;
    if (watch === undefined) this.#pieces.push(piece);
    else this.#pass(() => watch.onBody(piece));
  }

  onResponseEnd(): void {
    this.#stop();
    const [first, ...others] = this.#pieces;
    const body = first !== undefined && others.length === 0 ? first : Buffer.concat(this.#pieces);
    this.#end.resolve({ code: this.#code, body, retryAfter: this.#retryAfter });
  }

  onResponseError(_controller: unknown, error: Error): void {
    if (this.#failure !== undefined) return;
    this.#stop();
    this.#end.reject(networkError(this.#title, error));
  }

  /** Who receives the body; undefined for a call, and for a watch that the server refuses. */
  get #watch(): WatchHandler | undefined {
    return isSuccess(this.#code) ? this.#options.watch : undefined;
  }

  /** Restarts the timer of a watch and calls its handler. */
  #pass(call: () => void): void {
    if (this.#failure !== undefined) return;
    this.#timer.refresh();
    try {
      call();
    } catch (error) {
      this.#cancel(error as Error);
    }
  }

  readonly #onAbort = (): void => {
    const { signal } = this.#options;
    this.#cancel(unansweredError(this.#title, 'Aborted', 'aborted', signal?.reason));
  };

  /** Closes the connection, or stops waiting for one. */
  #cancel(failure: Error): void {
    this.#failure = failure;
    this.#stop();
    this.#end.reject(failure);
    this.#controller?.abort(failure);
  }

  #stop(): void {
    clearTimeout(this.#timer);
    this.#options.signal?.removeEventListener('abort', this.#onAbort);
  }
}

/** The fix for a failed TLS handshake, by the messages of Node.js and OpenSSL. */
const TLS_FIXES: readonly (readonly [message: RegExp, fix: string])[] = [
  [
    /self.signed|unable to (verify|get)/,
    'correct certificate-authority in the kubeconfig, or ca.crt of the pod',
  ],
  [
    /does not match certificate/,
    'correct server or tls-server-name in the kubeconfig, or --master',
  ],
  [
    /has expired|not yet valid/,
    'renew the API server’s certificate, or set the clock of this host',
  ],
  [
    /wrong version number|secure TLS/,
    'check that the API server is at this address (server in the kubeconfig, or --master)',
  ],
  [/alert (.*certificate|unknown ca)/, 'renew client-certificate and client-key in the kubeconfig'],
];

/** Makes the error of a connection that failed or broke. */
function networkError(title: string, cause: unknown): KubeError {
  // Node's error for several refused addresses has no message of its own.
  const [first = cause]: unknown[] = cause instanceof AggregateError ? cause.errors : [];
  const message = messageOf(first);
  const { syscall = '', code, reason = message } = isFields(first) ? first : {};
  const fix = TLS_FIXES.find(([text]) => text.test(message))?.[1];
  if (fix !== undefined)
    return unansweredError(title, 'Network', `TLS failed (${String(reason)}): ${fix}`, cause);
  const isUnreachable =
    ['connect', 'getaddrinfo'].includes(String(syscall)) || code === 'UND_ERR_CONNECT_TIMEOUT';
  return unansweredError(title, isUnreachable ? 'Unreachable' : 'Network', message, cause);
}

export function isSuccess(code: number): boolean {
  return code >= 200 && code < 300;
}
