import { excerpt, parseJson } from '../runtime/json.ts';
import { isNotFound, type KubeError, unansweredError } from './kube-error.ts';
import { parseList } from './parse-list.ts';
import {
  type ApiCall,
  type CallOptions,
  RequestSender,
  type RequestSenderOptions,
  titleOf,
} from './request-sender.ts';
import type { ObjectRef, Resource } from './resources.ts';
import { decodeWatch, type WatchEvent } from './watch-decoder.ts';

/** Selects objects of a collection, and how much of each object the server sends. */
export interface Selection {
  /** If absent: all namespaces. */
  readonly namespace?: string | undefined;
  readonly labelSelector?: string | undefined;
  readonly fieldSelector?: string | undefined;
  /** Whether the server leaves out spec and status. */
  readonly metadataOnly?: boolean | undefined;
}

export interface ListOptions extends Selection, CallOptions {
  readonly limit?: number | undefined;
  readonly continueToken?: string | undefined;
}

export interface ListPage<T> {
  readonly items: readonly T[];
  readonly resourceVersion: string;
  /** Absent on the last page. */
  readonly continueToken?: string;
}

interface ListBody<T> {
  readonly items: readonly T[];
  readonly metadata?: { readonly resourceVersion?: string; readonly continue?: string };
}

export interface Patch {
  readonly type: keyof typeof PATCH_TYPES;
  readonly body: unknown;
  readonly subresource?: 'status';
}

export interface CreateOptions extends CallOptions {
  /** False: the caller does not use the object as the server has stored it, and gets undefined. */
  readonly isAnswerNeeded?: boolean;
}

export interface DeleteOptions extends CallOptions {
  readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string };
}

export interface WatchOptions extends Selection {
  /** The watch reports the changes after this version. */
  readonly resourceVersion: string;
  /** The server ends the watch after this long. */
  readonly timeoutSeconds: number;
  /** The watch fails if it receives nothing for this long. */
  readonly idleTimeoutMs: number;
  readonly signal?: AbortSignal;
  /** Called when the server has accepted the watch. */
  readonly onOpen: () => void;
  /** An error that it throws ends the watch with that error. */
  readonly onEvent: (event: WatchEvent) => void;
}

/** Calls the API server. All methods throw KubeError with the server's message. Within its timeout
 * a call is repeated if the answer asks for that (429; 500, 503 and 504 with Retry-After). After a
 * network fault it is repeated if it only reads, or if nothing was sent. */
export interface KubeClient {
  /** @returns undefined if the object does not exist */
  get<T>(resource: Resource, ref: ObjectRef, o?: CallOptions): Promise<T | undefined>;
  /** Lists one page if there is a limit, otherwise all objects. */
  list<T>(resource: Resource, o?: ListOptions): Promise<ListPage<T>>;
  create<T>(
    at: Resource,
    namespace: string | undefined,
    body: unknown,
    o?: CreateOptions,
  ): Promise<T>;
  /** Replaces the whole object (PUT): fields that are not in `object` are lost. Fails with a
   * conflict if the object has changed since `object` was read. */
  update<T>(resource: Resource, ref: ObjectRef, object: unknown, o?: CallOptions): Promise<T>;
  patch<T>(resource: Resource, ref: ObjectRef, patch: Patch, o?: CallOptions): Promise<T>;
  /** Fails with 409 (isConflict) if a precondition is not met.
   * @returns the object that is being deleted, or a Status; undefined if it did not exist */
  delete<T>(resource: Resource, ref: ObjectRef, o?: DeleteOptions): Promise<T | undefined>;
  /** Runs one watch, with bookmarks: events that carry only the newest version. Resolves when the
   * server ends the watch normally. A reflector then opens the next one. */
  watch(resource: Resource, o: WatchOptions): Promise<void>;
  close(): Promise<void>;
}

const PATCH_TYPES = {
  merge: 'application/merge-patch+json',
  strategic: 'application/strategic-merge-patch+json',
} as const;

/** Connects at the first request. */
export function createKubeClient(options: RequestSenderOptions): KubeClient {
  const sender = new RequestSender(options);

  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- named by callers
  const request = async <T>(call: ApiCall, options?: CallOptions): Promise<T> =>
    decode<T>(titleOf(call), await sender.send(call, options));

  return {
    get<T>(resource: Resource, at: ObjectRef, options: CallOptions = {}) {
      const call = { verb: 'get', resource, at } as const;
      return request<T>(call, options).catch(undefinedIfAbsent(at));
    },
    // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- named by callers
    async list<T>(resource: Resource, o: ListOptions = {}) {
      const call = collectionCall('list', resource, o, {
        limit: o.limit,
        continue: o.continueToken,
      });
      const body = await sender.send(call, o);
      // The server has validated the objects.
      const page = parseList(body) as ListBody<T> | undefined;
      if (page === undefined) throw notJson(titleOf(call), body);
      const next = page.metadata?.continue ?? '';
      return {
        items: page.items,
        resourceVersion: page.metadata?.resourceVersion ?? '',
        ...(next === '' ? {} : { continueToken: next }),
      };
    },
    async create<T>(
      resource: Resource,
      namespace: string | undefined,
      body: unknown,
      options: CreateOptions = {},
    ) {
      const call = { verb: 'create', resource, at: { namespace }, body } as const;
      if (options.isAnswerNeeded !== false) return request<T>(call, options);
      const answer = await sender.send(call, options);
      if (!isObject(answer)) throw notJson(titleOf(call), answer);
      return undefined as T;
    },
    update: (resource, at, body, options) =>
      request({ verb: 'update', resource, at, body }, options),
    patch(resource, ref, { type, body, subresource }, options) {
      const at = { ...ref, subresource };
      return request(
        { verb: 'patch', resource, at, body, contentType: PATCH_TYPES[type] },
        options,
      );
    },
    delete<T>(resource: Resource, at: ObjectRef, options: DeleteOptions = {}) {
      const { preconditions } = options;
      const body = preconditions && { apiVersion: 'v1', kind: 'DeleteOptions', preconditions };
      return request<T>({ verb: 'delete', resource, at, body }, options).catch(
        undefinedIfAbsent(at),
      );
    },
    async watch(resource, o) {
      const { resourceVersion, timeoutSeconds, idleTimeoutMs: timeoutMs, signal, onOpen } = o;
      const query = { watch: 'true', resourceVersion, allowWatchBookmarks: 'true', timeoutSeconds };
      const call = collectionCall('watch', resource, o, query);
      const onBody = decodeWatch(titleOf(call), o.onEvent);
      await sender.watch(call, { timeoutMs, signal, watch: { onOpen, onBody } });
    },
    close: () => sender.close(),
  };
}

/** Accept headers for objects without spec and status. Servers without them send whole objects. */
const METADATA_ONLY = {
  list: 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json',
  watch: 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json',
};

/** @param query  parameters besides the selection */
function collectionCall(
  verb: 'list' | 'watch',
  resource: Resource,
  { namespace, labelSelector, fieldSelector, metadataOnly }: Selection,
  query: ApiCall['query'],
): ApiCall {
  return {
    verb,
    resource,
    at: { namespace },
    accept: metadataOnly === true ? METADATA_ONLY[verb] : undefined,
    query: { ...query, labelSelector, fieldSelector },
  };
}

/** Decodes an answer. Does not check the fields of T: the API server has validated them. */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- named by callers
function decode<T>(title: string, body: Buffer): T {
  const value = parseJson(body.toString('utf8'));
  if (value !== undefined) return value as T;
  throw notJson(title, body);
}

/** Whether the answer may be a JSON object, and is no page of a proxy. */
function isObject(body: Buffer): boolean {
  return body[0] === 0x7b;
}

function notJson(title: string, body: Buffer): KubeError {
  return unansweredError(
    title,
    'Undecodable',
    `the answer is not JSON: ${excerpt(body.toString('utf8'))}`,
  );
}

/** Turns a 404 about the object itself into undefined. Throws any other error again. */
function undefinedIfAbsent(ref: ObjectRef): (error: unknown) => undefined {
  return (error) => {
    if (isNotFound(error) && (error.details?.name === undefined || error.details.name === ref.name))
      return undefined;
    throw error;
  };
}

/** Default number of objects in a page of a list. A whole page is in memory at once. */
export const PAGE_SIZE = 100;

/** Lists a collection in pages, so that a large one is never in memory as a whole.
 * @throws KubeError */
export async function* listPages<T>(
  client: Pick<KubeClient, 'list'>,
  resource: Resource,
  options: Omit<ListOptions, 'continueToken'> = {},
): AsyncGenerator<ListPage<T>> {
  const { limit = PAGE_SIZE } = options;
  let page = await client.list<T>(resource, { ...options, limit });
  for (;;) {
    yield page;
    const { continueToken } = page;
    if (continueToken === undefined) return;
    page = await client.list<T>(resource, { ...options, limit, continueToken });
  }
}

/** Lists the objects of a collection, page by page.
 * @throws KubeError */
export async function* listAll<T>(
  client: Pick<KubeClient, 'list'>,
  resource: Resource,
  options: Omit<ListOptions, 'continueToken'> = {},
): AsyncGenerator<T> {
  for await (const { items } of listPages<T>(client, resource, options)) yield* items;
}
