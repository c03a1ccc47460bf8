import { performance } from 'node:perf_hooks';
import type { Registry } from 'prom-client';
import { type Clock, systemClock } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import { TokenBucket } from '../runtime/token-bucket.ts';
import type { ClusterAccess, Credentials } from './credentials.ts';
import { answerError, KubeError, missingRule, unansweredError } from './kube-error.ts';
import { createRequestMetrics, type RequestMetrics } from './metrics.ts';
import { keyOf, pathOf, type Resource } from './resources.ts';
import { type ExchangeOptions, isSuccess, Transport, type WireRequest } from './transport.ts';

export interface CallOptions {
  readonly signal?: AbortSignal;
  /** Limit for the whole call, including retries and the wait for the rate limit; default 30 s. */
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

/** A call: a verb, and the object or collection that it is about. */
export interface ApiCall {
  readonly verb: keyof typeof METHODS;
  readonly resource: Resource;
  readonly at: {
    readonly namespace?: string | undefined;
    readonly name?: string;
    readonly subresource?: string | undefined;
  };
  /** Parameters whose value is undefined are left out. */
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly body?: unknown;
  readonly contentType?: string;
  readonly accept?: string | undefined;
}

export interface RequestSenderOptions {
  readonly access: ClusterAccess;
  /** Names process and version: "sutler-jobs/0.1.0". */
  readonly userAgent: string;
  /** Most requests at once, not counting watches. Others wait, in order of arrival. */
  readonly maxInFlight?: number;
  /** Requests per second; 0 or less: no limit. */
  readonly qps?: number;
  /** Requests that may be sent at once after a pause. Only used with qps. */
  readonly burst?: number;
  readonly log: Logger;
  readonly metrics?: Registry;
  readonly clock?: Clock;
}

const DEFAULT_MAX_IN_FLIGHT = 48;
/** Limit for a whole call; see CallOptions. */
export const DEFAULT_TIMEOUT_MS = 30_000;
const MAX_RETRIES = 6;
const NETWORK_BACKOFF_MS = 100;
/** The delay after a 429 without Retry-After. */
const DEFAULT_RETRY_AFTER_MS = 1000;

/** Sends requests with credentials, within the limits. Retries them if that is safe. */
export class RequestSender {
  readonly #options: RequestSenderOptions;
  readonly #clock: Clock;
  readonly #rate: TokenBucket | undefined;
  readonly #metrics: RequestMetrics;
  readonly #transport: Transport;
  /** Rules that the log has named. */
  readonly #missingRules = new Set<string>();

  constructor(options: RequestSenderOptions) {
    const { access, maxInFlight = DEFAULT_MAX_IN_FLIGHT, qps = 0, burst = 1, metrics } = options;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    if (qps > 0)
      this.#rate = new TokenBucket({
        burst: Math.max(1, burst),
        perSecond: qps,
        nowMs: performance.now(),
      });
    this.#metrics = createRequestMetrics(metrics);
    this.#transport = new Transport(access, Math.max(1, maxInFlight));
  }

  /** @returns the body of a 2xx answer
   * @throws KubeError */
  async send(
    call: ApiCall,
    { signal, timeoutMs = DEFAULT_TIMEOUT_MS }: CallOptions = {},
  ): Promise<Buffer> {
    const endMs = performance.now() + timeoutMs;
    for (let retries = 0; ; retries += 1) {
      await this.#waitForRate(call, endMs, signal);
      // At least 1 ms, so that there always is a timer.
      const leftMs = (): number => Math.max(1, Math.ceil(endMs - performance.now()));
      const answer = await this.#exchange(call, leftMs, { signal });
      if (!(answer instanceof KubeError)) return answer;
      const delayMs = retryDelayMs(call, answer, retries);
      if (delayMs === undefined || performance.now() + delayMs >= endMs) throw answer;
      const { code, reason } = answer;
      this.#options.log.debug(
        { request: titleOf(call), code, reason, waitMs: Math.round(delayMs) },
        'repeating an API request',
      );
      await this.#clock.sleep(delayMs, signal);
      if (signal?.aborted === true) throw answer;
    }
  }

  /** Opens a watch and follows it to its end.
   * @throws KubeError, or what a callback throws */
  async watch(call: ApiCall, o: ExchangeOptions): Promise<void> {
    const answer = await this.#exchange(call, () => o.timeoutMs, o);
    if (answer instanceof KubeError) throw answer;
  }

  close(): Promise<void> {
    return this.#transport.close();
  }

  /** Waits until the rate limit lets the call pass.
   * @throws KubeError if that takes longer than the call's time */
  async #waitForRate(call: ApiCall, endMs: number, signal?: AbortSignal): Promise<void> {
    const nowMs = performance.now();
    const waitMs = this.#rate?.waitMs(nowMs) ?? 0;
    if (nowMs + waitMs > endMs) {
      const why = `--kube-api-qps would delay it by ${Math.round(waitMs)} ms; raise it`;
      throw unansweredError(titleOf(call), 'Timeout', why);
    }
    this.#rate?.take(nowMs);
    if (waitMs > 0) await this.#clock.sleep(waitMs, signal);
  }

  /** Sends a request. After a 401 sends it once more, with renewed credentials.
   * @param timeoutMs  called before each of the two attempts
   * @returns the body of a 2xx answer, or the error for another answer or a network fault
   * @throws  KubeError if there are no credentials */
  async #exchange(
    call: ApiCall,
    timeoutMs: () => number,
    o: Omit<ExchangeOptions, 'timeoutMs'>,
  ): Promise<Buffer | KubeError> {
    const credentials = await this.#credentials(call);
    const answer = await this.#exchangeOnce(call, credentials, { ...o, timeoutMs: timeoutMs() });
    if (!(answer instanceof KubeError) || answer.code !== 401) return answer;
    const renewed = await this.#credentials(call, credentials);
    return this.#exchangeOnce(call, renewed, { ...o, timeoutMs: timeoutMs() });
  }

  async #credentials(call: ApiCall, refused?: Credentials): Promise<Credentials> {
    try {
      return await this.#options.access.credentials(refused);
    } catch (cause) {
      throw unansweredError(titleOf(call), 'Credentials', messageOf(cause), cause);
    }
  }

  async #exchangeOnce(
    call: ApiCall,
    credentials: Credentials,
    o: ExchangeOptions,
  ): Promise<Buffer | KubeError> {
    const request = toWireRequest(call, credentials, this.#options.userAgent);
    const end = this.#metrics(call.verb, pluralOf(call));
    const watch = o.watch && {
      ...o.watch,
      onOpen: (): void => {
        end(200);
        o.watch?.onOpen();
      },
    };
    try {
      const { code, body, retryAfter } = await this.#transport.exchange(request, { ...o, watch });
      end(code);
      if (isSuccess(code)) return body;
      const error = answerError(request.title, { code, body: body.toString(), retryAfter });
      this.#nameMissingRule(error);
      return error;
    } catch (error) {
      end(0);
      if (error instanceof KubeError) return error;
      throw error;
    }
  }

  /** Logs once which right the account lacks. */
  #nameMissingRule(error: KubeError): void {
    const rule = missingRule(error);
    if (rule === undefined || this.#missingRules.has(rule)) return;
    this.#missingRules.add(rule);
    this.#options.log.warn(
      { rule, error: error.message },
      'this account lacks a right; grant it by adding the rule to its role',
    );
  }
}

/** For errors: "get persistentvolumeclaims ns/name". */
export function titleOf(call: ApiCall): string {
  const { namespace, name } = call.at;
  const place = name === undefined ? namespace : keyOf({ namespace, name });
  return `${call.verb} ${pluralOf(call)}${place ? ` ${place}` : ''}`;
}

function pluralOf({ resource: { plural }, at: { subresource } }: ApiCall): string {
  return subresource === undefined ? plural : `${plural}/${subresource}`;
}

function toWireRequest(
  call: ApiCall,
  { tls, headers }: Credentials,
  userAgent: string,
): WireRequest {
  const { verb, resource, at, query = {}, body, accept = 'application/json' } = call;
  const contentType = { 'content-type': call.contentType ?? 'application/json' };
  return {
    title: titleOf(call),
    method: METHODS[verb],
    path: pathOf(resource, at) + searchOf(query),
    tls,
    headers: {
      accept,
      'user-agent': userAgent,
      ...headers,
      ...(body === undefined ? {} : contentType),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  };
}

/** Formats the query with its `?`; '' if no parameter has a value. */
function searchOf(query: NonNullable<ApiCall['query']>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== undefined) search.set(name, String(value));
  return search.size === 0 ? '' : `?${search.toString()}`;
}

/** Computes the delay before the next attempt; undefined if the call must not be repeated. After a
 * network fault it is repeated only if the first request can't have had an effect. */
function retryDelayMs(
  { verb }: ApiCall,
  { code, reason, retryAfterMs }: KubeError,
  retries: number,
): number | undefined {
  const asksToRetry =
    code === 429 || ([500, 503, 504].includes(code) && retryAfterMs !== undefined);
  const isHarmless = reason === 'Unreachable' || (reason === 'Network' && METHODS[verb] === 'GET');
  if (retries >= MAX_RETRIES || (!asksToRetry && !isHarmless)) return undefined;
  const delayMs = asksToRetry
    ? (retryAfterMs ?? DEFAULT_RETRY_AFTER_MS)
    : NETWORK_BACKOFF_MS * 2 ** retries;
  // Random, so that requests that were refused together come back at different times.
  return delayMs * (1 + Math.random() * 0.5);
}
