import { Pool, ProxyAgent, type Dispatcher } from 'undici';
import type { ClusterAccess, TlsMaterial } from './credentials.ts';

export interface WireRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Path and query, without the server's own prefix. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
}

export interface WireAnswer {
  readonly code: number;
  readonly body: string;
  readonly retryAfter: string | undefined;
}

/** No whole answer came. */
export class TransportError extends Error {
  override readonly name = 'TransportError';
  readonly kind: 'network' | 'timeout' | 'aborted';
  /** False only if the request was never put on a connection. */
  readonly maybeSent: boolean;

  constructor(
    kind: TransportError['kind'],
    maybeSent: boolean,
    options: { readonly message: string; readonly cause?: unknown },
  ) {
    super(options.message, { cause: options.cause });
    this.kind = kind;
    this.maybeSent = maybeSent;
  }
}

/** HTTP/1.1 over kept-alive connections: one pool for calls, one for watches, both replaced when
 * certificate or CA change. */
export interface Transport {
  /** One request with its whole answer, whatever the status.
   * @throws TransportError */
  call(
    request: WireRequest,
    o: { readonly timeoutMs: number; readonly signal?: AbortSignal | undefined },
  ): Promise<WireAnswer>;
  /** A request whose 200 body is handed over in pieces; resolves at its end: undefined, or the
   * answer if it isn't a 200.
   * @throws TransportError, also when nothing was received for `idleTimeoutMs` */
  stream(request: WireRequest, o: StreamOptions): Promise<WireAnswer | undefined>;
  /** Ends the watches, lets calls finish for a moment, drops the rest. */
  close(): Promise<void>;
}

export interface StreamOptions {
  readonly idleTimeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  readonly onOpen: () => void;
  /** A throw ends the stream with that error. */
  readonly onData: (chunk: Buffer) => void;
}

/** The server keeps idle connections for 90 s; ours go first, so that a write never meets a closing
 * one. A shorter Keep-Alive hint is obeyed. */
const KEEP_ALIVE_MS = 45_000;
const CONNECT_TIMEOUT_MS = 10_000;
const CLOSE_GRACE_MS = 5_000;

interface Pools {
  readonly tls: TlsMaterial;
  readonly calls: Dispatcher;
  readonly watches: Dispatcher;
}

/** Opens nothing until the first request.
 * @param o.connections  at most this many connections for calls; watches have one each */
export function createTransport(
  access: ClusterAccess,
  o: { readonly connections: number },
): Transport {
  const origin = access.server.origin;
  const prefix = access.server.pathname.replace(/\/+$/, '');
  const retired = new Set<Dispatcher>();
  let pools: Pools | undefined;
  let closed = false;

  const retire = (dispatcher: Dispatcher): void => {
    retired.add(dispatcher);
    // close() waits for the requests under way; nothing is dropped.
    dispatcher.close().then(
      () => retired.delete(dispatcher),
      () => retired.delete(dispatcher),
    );
  };
  const freshen = async (): Promise<void> => {
    const tls = await access.tls();
    if (closed || pools?.tls === tls) return;
    const old = pools;
    pools = {
      tls,
      calls: createPool(access, tls, o.connections),
      watches: createPool(access, tls, null),
    };
    if (old) {
      retire(old.calls);
      retire(old.watches);
    }
  };
  const dispatch = (
    kind: 'calls' | 'watches',
    request: WireRequest,
    handler: Dispatcher.DispatchHandler,
  ): void => {
    const pool = closed ? undefined : pools?.[kind];
    if (!pool) throw new TransportError('aborted', false, { message: 'the client is closed' });
    const { method, headers, body } = request;
    // undici gives up the connection after a DELETE with a body unless told not to: each deletion
    // would cost a TLS handshake.
    const keep = method === 'DELETE' ? { reset: false } : {};
    pool.dispatch(
      {
        origin,
        path: prefix + request.path,
        method,
        headers,
        ...keep,
        ...(body === undefined ? {} : { body }),
      },
      handler,
    );
  };

  return {
    async call(request, { timeoutMs, signal }) {
      await freshen();
      return new Promise((resolve, reject) => {
        const exchange = new Exchange({ reject, signal, timeoutMs });
        dispatch('calls', request, exchange.collect(resolve));
      });
    },
    async stream(request, { idleTimeoutMs, signal, onOpen, onData }) {
      await freshen();
      return new Promise((resolve, reject) => {
        const exchange = new Exchange({ reject, signal, timeoutMs: idleTimeoutMs });
        dispatch('watches', request, exchange.pass({ resolve, onOpen, onData }));
      });
    },
    async close() {
      closed = true;
      const all = [...retired, ...(pools ? [pools.calls] : [])];
      const watches = pools?.watches.destroy();
      const timer = setTimeout(
        () => all.forEach((dispatcher) => void dispatcher.destroy().catch(() => {})),
        CLOSE_GRACE_MS,
      );
      await Promise.allSettled([
        watches,
        ...all.map((dispatcher) =>
          retired.has(dispatcher) ? dispatcher.destroy() : dispatcher.close(),
        ),
      ]);
      clearTimeout(timer);
    },
  };
}

function createPool(
  access: ClusterAccess,
  tls: TlsMaterial,
  connections: number | null,
): Dispatcher {
  const connect = {
    timeout: CONNECT_TIMEOUT_MS,
    rejectUnauthorized: !tls.skipVerify,
    ...(tls.ca === undefined ? {} : { ca: tls.ca }),
    ...(tls.cert === undefined ? {} : { cert: tls.cert }),
    ...(tls.key === undefined ? {} : { key: tls.key }),
    ...(tls.servername === undefined ? {} : { servername: tls.servername }),
  };
  // Time limits are ours (Exchange): one timer per request, for calls and watches alike.
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

interface ExchangeOptions {
  readonly reject: (error: Error) => void;
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs: number;
}

/** One request on its way: settles exactly once, and leaves neither timer nor listener behind. */
class Exchange {
  readonly #options: ExchangeOptions;
  readonly #timer: NodeJS.Timeout;
  readonly #onAbort = (): void => this.#fail('aborted', 'aborted', this.#options.signal?.reason);
  #controller: Dispatcher.DispatchController | undefined;
  #settled = false;

  constructor(options: ExchangeOptions) {
    this.#options = options;
    this.#timer = setTimeout(
      () => this.#fail('timeout', `nothing was received for ${Math.round(options.timeoutMs)} ms`),
      options.timeoutMs,
    );
    options.signal?.addEventListener('abort', this.#onAbort, { once: true });
    if (options.signal?.aborted === true) this.#onAbort();
  }

  /** Gathers the whole body. */
  collect(resolve: (answer: WireAnswer) => void): Dispatcher.DispatchHandler {
    const answer = new AnswerBody();
    return {
      ...this.#ends(() => resolve(answer.whole())),
      onResponseStart: (_controller, code, headers) => answer.start(code, headers['retry-after']),
      onResponseData: (_controller, chunk) => answer.add(chunk),
    };
  }

  /** Passes the body of a 200 on; gathers any other. */
  pass(to: {
    resolve: (answer: WireAnswer | undefined) => void;
    onOpen: () => void;
    onData: (chunk: Buffer) => void;
  }): Dispatcher.DispatchHandler {
    const answer = new AnswerBody();
    return {
      ...this.#ends(() => to.resolve(answer.code === 200 ? undefined : answer.whole())),
      onResponseStart: (_controller, code, headers) => {
        this.#timer.refresh();
        answer.start(code, headers['retry-after']);
        if (code === 200) this.#guard(to.onOpen);
      },
      onResponseData: (_controller, chunk) => {
        if (this.#settled) return;
        this.#timer.refresh();
        if (answer.code === 200) this.#guard(() => to.onData(chunk));
        else answer.add(chunk);
      },
    };
  }

  #ends(resolve: () => void): Dispatcher.DispatchHandler {
    return {
      onRequestStart: (controller) => {
        this.#controller = controller;
        // Given up while waiting for a connection: it must not be sent any more.
        if (this.#settled) controller.abort(new Error('given up before it was sent'));
      },
      onResponseEnd: () => this.#settle(resolve),
      onResponseError: (_controller, error) => this.#fail('network', describe(error), error),
    };
  }

  #guard(run: () => void): void {
    try {
      run();
    } catch (error) {
      const failure = error instanceof Error ? error : new Error(String(error));
      this.#settle(() => this.#options.reject(failure));
      this.#controller?.abort(failure);
    }
  }

  #fail(kind: TransportError['kind'], message: string, cause?: unknown): void {
    const error = new TransportError(kind, this.#controller !== undefined, { message, cause });
    this.#settle(() => {
      this.#options.reject(error);
      this.#controller?.abort(error);
    });
  }

  #settle(settle: () => void): void {
    if (this.#settled) return;
    this.#settled = true;
    clearTimeout(this.#timer);
    this.#options.signal?.removeEventListener('abort', this.#onAbort);
    settle();
  }
}

class AnswerBody {
  code = 0;
  #retryAfter: string | undefined;
  readonly #chunks: Buffer[] = [];

  start(code: number, retryAfter: string | string[] | undefined): void {
    this.code = code;
    this.#retryAfter = Array.isArray(retryAfter) ? retryAfter[0] : retryAfter;
  }

  add(chunk: Buffer): void {
    this.#chunks.push(chunk);
  }

  whole(): WireAnswer {
    const [first] = this.#chunks;
    const body =
      first !== undefined && this.#chunks.length === 1 ? first : Buffer.concat(this.#chunks);
    return { code: this.code, body: body.toString('utf8'), retryAfter: this.#retryAfter };
  }
}

/** Node's aggregate of refused addresses has an empty message. */
function describe(error: Error): string {
  const code = 'code' in error && typeof error.code === 'string' ? error.code : '';
  const inner =
    error instanceof AggregateError
      ? (error.errors as unknown[]).find((candidate) => candidate instanceof Error)
      : undefined;
  return error.message || (inner instanceof Error ? inner.message : '') || code || error.name;
}
