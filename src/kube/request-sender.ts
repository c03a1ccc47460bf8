import { setMaxListeners } from 'node:events';
import { performance } from 'node:perf_hooks';
import type { Registry } from 'prom-client';
import { type Clock, systemClock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import type { ClusterAccess, Credentials } from './credentials.ts';
import { FlowControl } from './flow-control.ts';
import { answerError, KubeError, missingRule } from './kube-error.ts';
import { createRequestMetrics, type RequestMetrics } from './metrics.ts';
import {
  type ExchangeOptions,
  isSuccess,
  Transport,
  TransportError,
  type WireAnswer,
} from './transport.ts';

export interface CallOptions {
  readonly signal?: AbortSignal;
  /** Limit for the whole call, with its retries and the wait for the rate limit. 30 s where absent.
   */
  readonly timeoutMs?: number;
}

/** Verbs of Kubernetes. */
const METHODS = {
  get: 'GET',
  list: 'GET',
  watch: 'GET',
  create: 'POST',
  update: 'PUT',
  patch: 'PATCH',
  delete: 'DELETE',
} as const;

export type Verb = keyof typeof METHODS;

/** One call to the API server, ready to be sent. */
export interface ApiCall {
  readonly verb: Verb;
  /** PLURAL or PLURAL/SUBRESOURCE, for metrics. */
  readonly resource: string;
  /** For errors: "get persistentvolumeclaims/ns/name". */
  readonly title: string;
  readonly path: string;
  readonly contentType: string;
  /** The Accept header. */
  readonly accept: string;
  readonly body: string | undefined;
  readonly options: CallOptions;
}

export interface RequestSenderOptions {
  readonly access: ClusterAccess;
  /** Names process and version: "sutler-jobs/0.1.0". */
  readonly userAgent: string;
  /** Most requests under way at once, without watches. Lowered while the server answers 429. */
  readonly maxInFlight?: number;
  /** Requests per second; 0 or less: no limit. */
  readonly qps?: number;
  readonly burst?: number;
  readonly log: Logger;
  readonly metrics?: Registry;
  readonly clock?: Clock;
}

const DEFAULT_MAX_IN_FLIGHT = 48;
const DEFAULT_TIMEOUT_MS = 30_000;
const MAX_RETRIES = 6;
const NETWORK_BACKOFF_MS = 100;
/** The delay after a 429 without Retry-After. */
const DEFAULT_RETRY_AFTER_MS = 1000;

/** Sends requests with credentials, within the limits, and retries those that may be retried. */
export class RequestSender {
  readonly #options: RequestSenderOptions;
  readonly #clock: Clock;
  readonly #flow: FlowControl;
  readonly #metrics: RequestMetrics;
  readonly #transport: Transport;
  #refreshing: Promise<void> | undefined;
  /** Those that were named in the log. */
  readonly #missingRules = new Set<string>();

  constructor(options: RequestSenderOptions) {
    const maxInFlight = options.maxInFlight ?? DEFAULT_MAX_IN_FLIGHT;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#flow = new FlowControl({
      maxInFlight,
      qps: options.qps ?? 0,
      burst: options.burst ?? 1,
      nowMs: () => performance.now(),
    });
    this.#metrics = createRequestMetrics(this.#flow, options.metrics);
    this.#transport = new Transport(options.access, Math.max(1, maxInFlight));
  }

  get inFlight(): number {
    return this.#flow.inFlight;
  }

  /** @param openBody  called for each attempt; what it returns receives the body of a 2xx answer in
   *   pieces. The call is repeated after a network fault, so it may begin again.
   * @returns the body of a 2xx answer; '' if it was received in pieces
   * @throws  KubeError, and what receives the body throws */
  async send(call: ApiCall, openBody?: () => (chunk: Buffer) => void): Promise<string> {
    const { title, options } = call;
    const { signal } = options;
    const endMs = performance.now() + (options.timeoutMs ?? DEFAULT_TIMEOUT_MS);
    allowManyListeners(signal);
    let hasRefreshed = false;
    for (let retries = 0; ;) {
      const credentials = await this.#credentials(call);
      const onBody = openBody?.();
      await this.#flow.acquire({ title, timeoutMs: leftMs(endMs), signal });
      // Never throws: each place that was acquired is released.
      const answer = await this.#exchange(call, credentials, {
        timeoutMs: leftMs(endMs),
        signal,
        onBody,
      });
      const { code } = answer;
      this.#flow.release(code === 0 ? 'lost' : code === 429 ? 'refused' : 'answered');
      if (!(answer instanceof KubeError)) return answer.body;
      if (code === 401 && !hasRefreshed) {
        hasRefreshed = true;
        await this.#refresh(call, credentials);
      } else {
        await this.#waitBeforeRetry(call, answer, { retries, endMs });
        retries += 1;
      }
    }
  }

  /** Opens a watch and follows it to its end.
   * @throws KubeError, or what a callback throws */
  async stream(call: ApiCall, o: ExchangeOptions): Promise<void> {
    allowManyListeners(o.signal);
    for (let hasRefreshed = false; ; hasRefreshed = true) {
      const credentials = await this.#credentials(call);
      const answer = await this.#exchange(call, credentials, { ...o, isWatch: true });
      if (!(answer instanceof KubeError)) return;
      if (answer.code !== 401 || hasRefreshed) throw answer;
      await this.#refresh(call, credentials);
    }
  }

  close(): Promise<void> {
    return this.#transport.close();
  }

  async #credentials(call: ApiCall): Promise<Credentials> {
    try {
      return await this.#options.access.credentials();
    } catch (cause) {
      throw unansweredError(call, 'Credentials', cause);
    }
  }

  /** Renews the credentials after a 401. Requests that are refused at the same time share one
   * refresh. A request that was sent with older credentials needs none. */
  async #refresh(call: ApiCall, refused: Credentials): Promise<void> {
    if ((await this.#credentials(call)).headers !== refused.headers) return;
    this.#refreshing ??= this.#options.access
      .refresh()
      .finally(() => (this.#refreshing = undefined));
    await this.#refreshing.catch((cause: unknown) => {
      throw unansweredError(call, 'Credentials', cause);
    });
  }

  /** Sends a request once.
   * @returns a 2xx answer, or the error that another answer or a network fault means */
  async #exchange(
    call: ApiCall,
    { tls, headers }: Credentials,
    o: ExchangeOptions,
  ): Promise<WireAnswer | KubeError> {
    const { verb, resource, title, path, accept, contentType, body } = call;
    const startedMs = performance.now();
    const count = (code: number): void => {
      const durationMs = performance.now() - startedMs;
      this.#metrics.observe(verb, resource, { code, durationMs });
    };
    let isOpen = false;
    const request = {
      method: METHODS[verb],
      path,
      tls,
      headers: {
        accept,
        'user-agent': this.#options.userAgent,
        ...headers,
        ...(body === undefined ? {} : { 'content-type': contentType }),
      },
      body,
    };
    // A watch lasts for minutes, and is counted when it begins.
    const onOpen = (): void => {
      isOpen = true;
      count(200);
      o.onOpen?.();
    };
    try {
      const answer = await this.#transport.exchange(request, o.isWatch ? { ...o, onOpen } : o);
      if (!isOpen) count(answer.code);
      if (isSuccess(answer.code)) return answer;
      const error = answerError(title, answer);
      this.#nameMissingRule(error);
      return error;
    } catch (error) {
      // What the events of an open watch say is no answer to the request.
      if (!isOpen || !(error instanceof KubeError)) count(0);
      return transportError(call, error);
    }
  }

  /** Says once which right the account lacks. */
  #nameMissingRule(error: KubeError): void {
    const rule = missingRule(error);
    if (rule === undefined || this.#missingRules.has(rule)) return;
    this.#missingRules.add(rule);
    this.#options.log.warn(
      { rule, error: error.message },
      'this account lacks a right: what needs it does not work until a role grants the rule',
    );
  }

  /** @throws the failure, if the call must not be sent again or its time does not suffice */
  async #waitBeforeRetry(
    call: ApiCall,
    failure: KubeError,
    { retries, endMs }: { readonly retries: number; readonly endMs: number },
  ): Promise<void> {
    const delayMs = retryDelayMs(call, failure, retries);
    if (delayMs === undefined || retries >= MAX_RETRIES || performance.now() + delayMs >= endMs)
      throw failure;
    const { code, reason } = failure;
    this.#options.log.debug(
      { request: call.title, code, reason, waitMs: Math.round(delayMs) },
      'API request will be repeated',
    );
    await this.#clock.sleep(delayMs, call.options.signal);
    if (call.options.signal?.aborted === true) throw failure;
  }
}

/** The delay before a call may be sent again; undefined: it must not be. A network fault is retried
 * only where the first request can't have had an effect. */
function retryDelayMs(call: ApiCall, failure: KubeError, retries: number): number | undefined {
  const { code, reason, retryAfterMs, maybeSent } = failure;
  const asksToRetry =
    code === 429 || ([500, 503, 504].includes(code) && retryAfterMs !== undefined);
  const isHarmless =
    code === 0 && reason === 'Network' && (METHODS[call.verb] === 'GET' || !maybeSent);
  if (!asksToRetry && !isHarmless) return undefined;
  const delayMs = asksToRetry
    ? (retryAfterMs ?? DEFAULT_RETRY_AFTER_MS)
    : NETWORK_BACKOFF_MS * 2 ** retries;
  // Random, so that requests that were refused together are not repeated together.
  return delayMs * (1 + Math.random() * 0.5);
}

/** One stop signal can serve hundreds of calls at once, of which Node would warn as a leak. */
function allowManyListeners(signal: AbortSignal | undefined): void {
  if (signal !== undefined) setMaxListeners(0, signal);
}

/** At least 1 ms, so that there always is a timer. */
function leftMs(endMs: number): number {
  return Math.max(1, Math.ceil(endMs - performance.now()));
}

function transportError(call: ApiCall, error: unknown): KubeError {
  if (error instanceof KubeError) return error;
  if (!(error instanceof TransportError)) return unansweredError(call, 'Network', error);
  const reason = { network: 'Network', timeout: 'Timeout', aborted: 'Aborted' }[error.kind];
  return unansweredError(call, reason, error, error.maybeSent);
}

function unansweredError(
  call: ApiCall,
  reason: string,
  cause: unknown,
  maybeSent = false,
): KubeError {
  return new KubeError(
    { code: 0, reason, serverMessage: messageOf(cause), request: call.title, maybeSent },
    { cause },
  );
}
