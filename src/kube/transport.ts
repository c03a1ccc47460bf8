import type { IncomingHttpHeaders } from 'node:http';
import { Pool, ProxyAgent, type Dispatcher } from 'undici';
import { messageOf } from '../runtime/error-message.ts';
import type { ClusterAccess, TlsMaterial } from './credentials.ts';
import { unansweredError } from './kube-error.ts';

/** An HTTP request as it is sent. */
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

/** An HTTP response as it was received. */
export interface WireAnswer {
  readonly code: number;
  readonly body: Buffer;
  readonly retryAfter: string | undefined;
}

export interface ExchangeOptions {
  /** Longest time of the whole exchange; of a watch, the longest in which nothing is received. */
  readonly timeoutMs: number;
  /** A watch has a connection of its own. */
  readonly isWatch?: boolean;
  readonly signal?: AbortSignal | undefined;
  /** Called when the request has a connection, and is sent. */
  readonly onStart?: () => void;
  /** Called when a 2xx answer begins. */
  readonly onOpen?: (() => void) | undefined;
  /** Receives the body of a watch in pieces. An error that a callback throws ends the request with
   * that error. */
  readonly onBody?: ((chunk: Buffer) => void) | undefined;
}

/** API servers close idle connections after 90 s. Ours are closed earlier, so that no request is
 * sent on a connection that the server is closing. A shorter Keep-Alive hint takes precedence. */
const KEEP_ALIVE_MS = 45_000;
const CONNECT_TIMEOUT_MS = 10_000;
const CLOSE_GRACE_MS = 5_000;

type Place = Pick<ClusterAccess, 'server' | 'proxy'>;

interface Pools {
  readonly tls: TlsMaterial;
  readonly calls: Dispatcher;
  readonly watches: Dispatcher;
}

/** HTTP/1.1 over kept-alive connections: one pool for calls, one for watches. Both are replaced
 * when certificate or CA change. Opens nothing until the first request. */
export class Transport {
  readonly #access: Place;
  readonly #connections: number;
  readonly #prefix: string;
  /** Replaced pools whose last requests are under way. */
  readonly #retired = new Set<Dispatcher>();
  #pools: Pools | undefined;
  #isClosed = false;

  /** @param connections  most connections for calls; each watch has one of its own */
  constructor(access: Place, connections: number) {
    this.#access = access;
    this.#connections = connections;
    this.#prefix = access.server.pathname.replace(/\/+$/, '');
  }

  /** Sends a request and receives the answer, whatever its status.
   * @throws KubeError where none is complete; what a callback throws */
  async exchange(request: WireRequest, o: ExchangeOptions): Promise<WireAnswer> {
    return new Promise((resolve, reject) => {
      const pool = this.#poolsFor(request.tls)?.[o.isWatch === true ? 'watches' : 'calls'];
      const { title, method, headers, body } = request;
      if (!pool)
        throw unansweredError(title, 'Aborted', { why: 'the client is closed', maybeSent: false });
      pool.dispatch(
        {
          origin: this.#access.server.origin,
          path: this.#prefix + request.path,
          method,
          headers,
          // By default undici closes the connection after a DELETE with a body, so that each
          // deletion would cost a TLS handshake.
          ...(method === 'DELETE' ? { reset: false } : {}),
          ...(body === undefined ? {} : { body }),
        },
        new Exchange(title, o, { resolve, reject }),
      );
    });
  }

  /** Ends the watches, lets calls finish within 5 s, and breaks off the others. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const calls = [...this.#retired, ...(this.#pools ? [this.#pools.calls] : [])];
    const watches = this.#pools?.watches.destroy();
    const timer = setTimeout(
      () => calls.forEach((pool) => void pool.destroy().catch(() => {})),
      CLOSE_GRACE_MS,
    );
    await Promise.allSettled([
      watches,
      ...calls.map((pool) => (this.#retired.has(pool) ? pool.destroy() : pool.close())),
    ]);
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
    for (const pool of old ? [old.calls, old.watches] : []) {
      this.#retired.add(pool);
      // close() waits for the requests under way.
      void Promise.allSettled([pool.close()]).then(() => this.#retired.delete(pool));
    }
    return this.#pools;
  }
}

function createPool(access: Place, tls: TlsMaterial, connections: number | null): Dispatcher {
  const { skipVerify, ...material } = tls;
  const connect = { ...material, timeout: CONNECT_TIMEOUT_MS, rejectUnauthorized: !skipVerify };
  // Exchange has a timer of its own for each request.
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

/** One request under way, and its answer while that is received. It ends exactly once, and then
 * frees its timer and its listener. */
class Exchange implements Dispatcher.DispatchHandler {
  readonly #title: string;
  readonly #options: ExchangeOptions;
  readonly #end: (finish: (promise: Settle) => void) => void;
  readonly #timer: NodeJS.Timeout;
  readonly #chunks: Buffer[] = [];
  #controller: Dispatcher.DispatchController | undefined;
  #code = 0;
  #retryAfter: string | undefined;
  #hasEnded = false;

  constructor(title: string, options: ExchangeOptions, promise: Settle) {
    const { timeoutMs, signal } = options;
    this.#title = title;
    this.#options = options;
    this.#timer = setTimeout(() => {
      const what =
        this.#controller === undefined ? 'no connection was free' : 'nothing was received';
      this.#fail('Timeout', `${what} for ${Math.round(timeoutMs)} ms`);
    }, timeoutMs);
    const onAbort = (): void => this.#fail('Aborted', 'aborted', signal?.reason);
    this.#end = (finish) => {
      if (this.#hasEnded) return;
      this.#hasEnded = true;
      clearTimeout(this.#timer);
      signal?.removeEventListener('abort', onAbort);
      finish(promise);
    };
    signal?.addEventListener('abort', onAbort, { once: true });
    if (signal?.aborted === true) onAbort();
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // It ended while it waited for a connection, so it must not be sent any more.
    if (this.#hasEnded) return controller.abort(new Error('ended before it was sent'));
    if (this.#controller === undefined) this.#options.onStart?.();
    this.#controller = controller;
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    code: number,
    headers: IncomingHttpHeaders,
  ): void {
    this.#code = code;
    [this.#retryAfter] = [headers['retry-after']].flat();
    this.#receive(() => isSuccess(code) && this.#options.onOpen?.());
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    const { onBody } = this.#options;
    this.#receive(() => {
      if (onBody !== undefined && isSuccess(this.#code)) onBody(chunk);
      else this.#chunks.push(chunk);
    });
  }

  onResponseEnd(): void {
    const body = Buffer.concat(this.#chunks);
    const answer = { code: this.#code, body, retryAfter: this.#retryAfter };
    this.#end(({ resolve }) => resolve(answer));
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    // Node's error for several refused addresses has no message of its own.
    const [first = error]: unknown[] = error instanceof AggregateError ? error.errors : [];
    this.#fail('Network', messageOf(first), error);
  }

  /** Takes something received. An error that a callback throws ends the request. */
  #receive(take: () => void): void {
    if (this.#hasEnded) return;
    if (this.#options.isWatch === true) this.#timer.refresh();
    try {
      take();
    } catch (error) {
      this.#break(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #fail(reason: 'Network' | 'Timeout' | 'Aborted', why: string, cause?: unknown): void {
    const maybeSent = this.#controller !== undefined;
    this.#break(unansweredError(this.#title, reason, { why, maybeSent, cause }));
  }

  #break(error: Error): void {
    this.#end(({ reject }) => {
      reject(error);
      this.#controller?.abort(error);
    });
  }
}

/** Settles the promise of a caller. */
interface Settle {
  readonly resolve: (answer: WireAnswer) => void;
  readonly reject: (error: Error) => void;
}

export function isSuccess(code: number): boolean {
  return code >= 200 && code < 300;
}
