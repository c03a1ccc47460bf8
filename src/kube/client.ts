import { setMaxListeners } from 'node:events';
import { performance } from 'node:perf_hooks';
import type { Registry } from 'prom-client';
import type { Logger } from '../runtime/log.ts';
import { systemClock, type Clock } from '../runtime/clock.ts';
import { Admission } from './admission.ts';
import type { ClusterAccess } from './credentials.ts';
import { answerError, excerpt, isNotFound, KubeError } from './kube-error.ts';
import { createRequestMetrics } from './request-metrics.ts';
import { keyOf, pathOf, type ObjectRef, type Resource } from './resources.ts';
import { createTransport, TransportError, type WireAnswer, type WireRequest } from './transport.ts';
import { WatchDecoder, watchQuery, type WatchOptions } from './watch.ts';

export interface CallOptions {
  readonly signal?: AbortSignal;
  /** For the whole call: waiting in line and repeats included. */
  readonly timeoutMs?: number;
}

export interface ListOptions extends CallOptions {
  readonly namespace?: string;
  readonly limit?: number;
  readonly continueToken?: string;
  readonly resourceVersion?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
}

export interface ListPage<T> {
  readonly items: T[];
  readonly resourceVersion: string;
  readonly continueToken?: string;
}

export interface Patch {
  readonly type: 'merge' | 'json' | 'strategic';
  readonly body: unknown;
  readonly subresource?: 'status';
}

export interface DeleteOptions extends CallOptions {
  readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string };
}

/** The API server. All methods throw KubeError with the server's words. Answers that ask for
 * patience (429; 500, 503, 504 with Retry-After) are repeated here within the call's time; a
 * network fault is repeated only for reads, and for writes that certainly were not sent. */
export interface KubeClient {
  /** undefined: the API server says it isn't there. */
  get<T>(resource: Resource, ref: ObjectRef, o?: CallOptions): Promise<T | undefined>;
  /** One page, or all. */
  list<T>(resource: Resource, o?: ListOptions): Promise<ListPage<T>>;
  create<T>(
    resource: Resource,
    namespace: string | undefined,
    object: unknown,
    o?: CallOptions,
  ): Promise<T>;
  /** PUT; only for objects that are our own, since fields we don't know would be lost. */
  update<T>(resource: Resource, ref: ObjectRef, object: unknown, o?: CallOptions): Promise<T>;
  patch<T>(resource: Resource, ref: ObjectRef, patch: Patch, o?: CallOptions): Promise<T>;
  /** Preconditions that don't hold are a 409 (isConflict).
   * @returns the object (going away) or the server's Status; undefined: it was not there */
  delete<T>(resource: Resource, ref: ObjectRef, o?: DeleteOptions): Promise<T | undefined>;
  /** One watch connection: resolves when the server ends it in good order; see reflector.ts for
   * what to do then. */
  watch(resource: Resource, o: WatchOptions): Promise<void>;
  close(): Promise<void>;
}

export interface KubeClientOptions {
  readonly access: ClusterAccess;
  /** Names process and version: "sutler-jobs/0.1.0". */
  readonly userAgent: string;
  /** Requests under way at once, watches not counted. Shrinks while the server answers 429. */
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
const MAX_REPEATS = 6;
const NETWORK_BACKOFF_MS = 100;
/** What 429 without Retry-After is taken for. */
const DEFAULT_RETRY_AFTER_MS = 1000;

const PATCH_TYPES = {
  merge: 'application/merge-patch+json',
  json: 'application/json-patch+json',
  strategic: 'application/strategic-merge-patch+json',
} as const;

type Verb = 'get' | 'list' | 'create' | 'update' | 'patch' | 'delete' | 'watch';

interface Call {
  readonly verb: Verb;
  /** plural, or plural/subresource. */
  readonly resource: string;
  /** For errors: "get persistentvolumeclaims/ns/name". */
  readonly title: string;
  readonly method: WireRequest['method'];
  readonly path: string;
  readonly contentType?: string;
  readonly body?: string;
  readonly options: CallOptions;
}

/** Opens nothing until the first request. */
export function createKubeClient(options: KubeClientOptions): KubeClient {
  const { access, log } = options;
  const clock = options.clock ?? systemClock;
  const maxInFlight = options.maxInFlight ?? DEFAULT_MAX_IN_FLIGHT;
  const admission = new Admission({
    maxInFlight,
    qps: options.qps ?? 0,
    burst: options.burst ?? 1,
    nowMs: () => performance.now(),
  });
  const metrics = createRequestMetrics(options.metrics, admission);
  const transport = createTransport(access, { connections: Math.max(1, maxInFlight) });
  let refreshing: Promise<void> | undefined;

  const authorize = async (title: string): Promise<string | undefined> => {
    try {
      return await access.authorization();
    } catch (cause) {
      throw unanswered(title, 'Credentials', cause);
    }
  };
  /** Several requests refused at once share one refresh; one that was sent with older credentials
   * needs none. */
  const refresh = async (refused: string | undefined, title: string): Promise<void> => {
    if ((await authorize(title)) !== refused) return;
    refreshing ??= access.refresh().finally(() => {
      refreshing = undefined;
    });
    await refreshing.catch((cause: unknown) => {
      throw unanswered(title, 'Credentials', cause);
    });
  };
  const wire = (call: Call, authorization: string | undefined): WireRequest => ({
    method: call.method,
    path: call.path,
    headers: {
      accept: 'application/json',
      'user-agent': options.userAgent,
      ...(authorization === undefined ? {} : { authorization }),
      ...(call.body === undefined
        ? {}
        : { 'content-type': call.contentType ?? 'application/json' }),
    },
    ...(call.body === undefined ? {} : { body: call.body }),
  });

  /** Once over the wire, counted. */
  const exchange = async (
    call: Call,
    authorization: string | undefined,
    endMs: number,
  ): Promise<WireAnswer> => {
    const { signal } = call.options;
    await admission.acquire({ title: call.title, timeoutMs: leftMs(endMs), signal });
    const startedMs = performance.now();
    let code = 0;
    try {
      const answer = await transport.call(wire(call, authorization), {
        timeoutMs: leftMs(endMs),
        signal,
      });
      code = answer.code;
      return answer;
    } finally {
      admission.release(code === 0 ? 'lost' : code === 429 ? 'refused' : 'answered');
      metrics.observe(call.verb, call.resource, {
        code,
        durationMs: performance.now() - startedMs,
      });
    }
  };

  /** The body of a 2xx answer. */
  const send = async (call: Call): Promise<string> => {
    const timeoutMs = call.options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    const endMs = performance.now() + timeoutMs;
    const isRead = call.method === 'GET';
    shareable(call.options.signal);
    let refreshed = false;
    for (let repeats = 0; ;) {
      const authorization = await authorize(call.title);
      let failure: KubeError;
      let waitMs: number;
      try {
        const answer = await exchange(call, authorization, endMs);
        if (answer.code >= 200 && answer.code < 300) return answer.body;
        failure = answerError(call.title, answer);
        if (answer.code === 401 && !refreshed) {
          refreshed = true;
          await refresh(authorization, call.title);
          continue;
        }
        if (!asksForPatience(failure)) throw failure;
        waitMs = failure.retryAfterMs ?? DEFAULT_RETRY_AFTER_MS;
      } catch (error) {
        if (error instanceof KubeError) throw error;
        failure = unansweredBy(call.title, error);
        if (failure.reason !== 'Network' || !(isRead || !failure.maybeSent)) throw failure;
        waitMs = NETWORK_BACKOFF_MS * 2 ** repeats;
      }
      // Spread: all that were refused together must not come back together.
      waitMs += Math.random() * waitMs * 0.5;
      if (++repeats > MAX_REPEATS || performance.now() + waitMs >= endMs) throw failure;
      log.debug(
        {
          request: call.title,
          code: failure.code,
          reason: failure.reason,
          waitMs: Math.round(waitMs),
        },
        'API request will be repeated',
      );
      await clock.sleep(waitMs, call.options.signal);
      if (call.options.signal?.aborted === true) throw failure;
    }
  };

  const object = async <T>(call: Call): Promise<T> => decode<T>(call.title, await send(call));

  return {
    async get<T>(resource: Resource, ref: ObjectRef, o: CallOptions = {}) {
      return object<T>(describeCall({ verb: 'get', resource, at: ref, options: o })).catch(
        absent(ref),
      );
    },
    // oxlint-disable-next-line typescript/no-unnecessary-type-parameters
    async list<T>(resource: Resource, o: ListOptions = {}) {
      const call = describeCall({
        verb: 'list',
        resource,
        at: { namespace: o.namespace },
        options: o,
        query: listQuery(o),
      });
      const page = await object<{
        items?: T[] | null;
        metadata?: { resourceVersion?: string; continue?: string };
      }>(call);
      const next = page.metadata?.continue ?? '';
      return {
        items: page.items ?? [],
        resourceVersion: page.metadata?.resourceVersion ?? '',
        ...(next === '' ? {} : { continueToken: next }),
      };
    },
    create: (resource, namespace, body, o = {}) =>
      object(describeCall({ verb: 'create', resource, at: { namespace }, options: o, body })),
    update: (resource, ref, body, o = {}) =>
      object(describeCall({ verb: 'update', resource, at: ref, options: o, body })),
    patch: (resource, ref, { type, body, subresource }, o = {}) =>
      object(
        describeCall({
          verb: 'patch',
          resource,
          at: { ...ref, subresource },
          options: o,
          body,
          contentType: PATCH_TYPES[type],
        }),
      ),
    async delete<T>(resource: Resource, ref: ObjectRef, o: DeleteOptions = {}) {
      const body = o.preconditions && {
        apiVersion: 'v1',
        kind: 'DeleteOptions',
        preconditions: o.preconditions,
      };
      return object<T>(describeCall({ verb: 'delete', resource, at: ref, options: o, body })).catch(
        absent(ref),
      );
    },
    async watch(resource, o) {
      const call = describeCall({
        verb: 'watch',
        resource,
        at: { namespace: o.namespace },
        options: {},
        query: watchQuery(o),
      });
      shareable(o.signal);
      const decoder = new WatchDecoder(call.title, o.onEvent);
      for (let refreshed = false; ; refreshed = true) {
        const authorization = await authorize(call.title);
        const answer = await transport
          .stream(wire(call, authorization), {
            idleTimeoutMs: o.idleTimeoutMs,
            signal: o.signal,
            onOpen: () => {
              metrics.observe('watch', call.resource, { code: 200, durationMs: 0 });
              o.onOpen?.();
            },
            onData: (chunk) => decoder.push(chunk),
          })
          .catch((error: unknown) => {
            if (error instanceof KubeError) throw error;
            metrics.observe('watch', call.resource, { code: 0, durationMs: 0 });
            throw unansweredBy(call.title, error);
          });
        if (answer === undefined) return decoder.end();
        metrics.observe('watch', call.resource, { code: answer.code, durationMs: 0 });
        if (answer.code !== 401 || refreshed) throw answerError(call.title, answer);
        await refresh(authorization, call.title);
      }
    },
    close: () => transport.close(),
  };
}

/** One stop signal serves hundreds of calls; Node would call that a leak. */
function shareable(signal: AbortSignal | undefined): void {
  if (signal !== undefined) setMaxListeners(0, signal);
}

/** At least a millisecond, so that a timer always exists. */
function leftMs(endMs: number): number {
  return Math.max(1, Math.ceil(endMs - performance.now()));
}

const METHODS: Readonly<Record<Verb, WireRequest['method']>> = {
  get: 'GET',
  list: 'GET',
  watch: 'GET',
  create: 'POST',
  update: 'PUT',
  patch: 'PATCH',
  delete: 'DELETE',
};

function describeCall(o: {
  readonly verb: Verb;
  readonly resource: Resource;
  readonly at: {
    readonly namespace?: string | undefined;
    readonly name?: string;
    readonly subresource?: string | undefined;
  };
  readonly options: CallOptions;
  readonly query?: string;
  readonly body?: unknown;
  readonly contentType?: string;
}): Call {
  const { verb, resource, at } = o;
  const place =
    at.name === undefined ? at.namespace : keyOf({ namespace: at.namespace, name: at.name });
  const plural =
    at.subresource === undefined ? resource.plural : `${resource.plural}/${at.subresource}`;
  return {
    verb,
    resource: plural,
    title: `${verb} ${plural}${place === undefined || place === '' ? '' : ` ${place}`}`,
    method: METHODS[verb],
    path: pathOf(resource, at) + (o.query === undefined || o.query === '' ? '' : `?${o.query}`),
    options: o.options,
    ...(o.body === undefined ? {} : { body: JSON.stringify(o.body) }),
    ...(o.contentType === undefined ? {} : { contentType: o.contentType }),
  };
}

function listQuery(o: ListOptions): string {
  const query = new URLSearchParams();
  if (o.limit !== undefined) query.set('limit', String(o.limit));
  if (o.continueToken !== undefined) query.set('continue', o.continueToken);
  if (o.resourceVersion !== undefined) query.set('resourceVersion', o.resourceVersion);
  if (o.labelSelector !== undefined) query.set('labelSelector', o.labelSelector);
  if (o.fieldSelector !== undefined) query.set('fieldSelector', o.fieldSelector);
  return query.toString();
}

/** The API server's schema is taken at its word: callers name the slice that they read. */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters
function decode<T>(title: string, body: string): T {
  try {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    return JSON.parse(body) as T;
  } catch {
    // Without the cause: its message quotes the text, and that may be a secret.
    throw new KubeError({
      code: 0,
      reason: 'Undecodable',
      serverMessage: `the answer is not JSON: ${excerpt(body)}`,
      request: title,
    });
  }
}

/** 404 about this very object is an answer, not an error. */
function absent(ref: ObjectRef): (error: unknown) => undefined {
  return (error) => {
    if (isNotFound(error) && (error.details?.name === undefined || error.details.name === ref.name))
      return undefined;
    throw error;
  };
}

function asksForPatience(error: KubeError): boolean {
  return (
    error.code === 429 || ([500, 503, 504].includes(error.code) && error.retryAfterMs !== undefined)
  );
}

function unansweredBy(title: string, error: unknown): KubeError {
  if (!(error instanceof TransportError)) return unanswered(title, 'Network', error);
  const reason =
    error.kind === 'network' ? 'Network' : error.kind === 'timeout' ? 'Timeout' : 'Aborted';
  return new KubeError(
    { code: 0, reason, serverMessage: error.message, request: title, maybeSent: error.maybeSent },
    { cause: error },
  );
}

function unanswered(title: string, reason: string, cause: unknown): KubeError {
  const words = cause instanceof Error ? cause.message : String(cause);
  return new KubeError(
    { code: 0, reason, serverMessage: words, request: title, maybeSent: false },
    { cause },
  );
}
