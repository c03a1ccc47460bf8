import { describeCall, type CallDescription, type CallOptions } from './api-call.ts';
import { excerpt, parseJson } from '../runtime/json.ts';
import { isNotFound, undecodableError } from './kube-error.ts';
import { ListDecoder, type PageInfo } from './list-decoder.ts';
import { RequestSender, type RequestSenderOptions } from './request-sender.ts';
import type { ObjectRef, Resource } from './resources.ts';
import { WatchDecoder, watchQuery, type WatchOptions } from './watch.ts';

export type { CallOptions } from './api-call.ts';

export interface ListOptions extends CallOptions {
  readonly namespace?: string | undefined;
  readonly limit?: number | undefined;
  readonly continueToken?: string | undefined;
  readonly resourceVersion?: string;
  readonly labelSelector?: string | undefined;
  readonly fieldSelector?: string | undefined;
  /** The items have only their metadata. */
  readonly metadataOnly?: boolean | undefined;
}

export interface ListPage<T> extends PageInfo {
  readonly items: T[];
}

export interface ItemsOptions extends ListOptions {
  /** Called when the page begins, and again where it begins anew after a network fault. */
  readonly onBegin: () => void;
  /** Called for each item as it arrives, without its managedFields. */
  readonly onItem: (item: unknown) => void;
}

export interface Patch {
  readonly type: keyof typeof PATCH_TYPES;
  readonly body: unknown;
  readonly subresource?: 'status';
}

export interface DeleteOptions extends CallOptions {
  readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string };
}

/** The API server. All methods throw KubeError with the server's message. Until its timeout, a call
 * is sent again after an answer that asks for that (429; 500, 503 and 504 with Retry-After), and
 * after a network fault if it is a read or was not sent. */
export interface KubeClient {
  /** Calls under way now, without watches. */
  readonly inFlight: number;
  /** @returns undefined if the object does not exist */
  get<T>(resource: Resource, ref: ObjectRef, o?: CallOptions): Promise<T | undefined>;
  /** One page if there is a limit, else all objects. */
  list<T>(resource: Resource, o?: ListOptions): Promise<ListPage<T>>;
  /** Passes on the items of one page, or of all, as they arrive. */
  listItems(resource: Resource, o: ItemsOptions): Promise<PageInfo>;
  create<T>(
    at: Resource,
    namespace: string | undefined,
    body: unknown,
    o?: CallOptions,
  ): Promise<T>;
  /** Creates an object without reading it back, which saves decoding the answer. */
  createUnread(
    at: Resource,
    namespace: string | undefined,
    body: unknown,
    o?: CallOptions,
  ): Promise<void>;
  /** PUT. Only for objects of our own, because fields that are not in `object` are lost. */
  update<T>(resource: Resource, ref: ObjectRef, object: unknown, o?: CallOptions): Promise<T>;
  patch<T>(resource: Resource, ref: ObjectRef, patch: Patch, o?: CallOptions): Promise<T>;
  /** A precondition that is not met is a 409 (isConflict).
   * @returns the object that is being deleted, or a Status; undefined if it did not exist */
  delete<T>(resource: Resource, ref: ObjectRef, o?: DeleteOptions): Promise<T | undefined>;
  /** One watch. Resolves when the server ends it in order. A reflector goes on after that. */
  watch(resource: Resource, o: WatchOptions): Promise<void>;
  close(): Promise<void>;
}

const PATCH_TYPES = {
  merge: 'application/merge-patch+json',
  json: 'application/json-patch+json',
  strategic: 'application/strategic-merge-patch+json',
} as const;

/** Opens nothing until the first request. */
export function createKubeClient(options: RequestSenderOptions): KubeClient {
  const sender = new RequestSender(options);

  const request = async <T>(description: CallDescription): Promise<T> => {
    const call = describeCall(description);
    return decode<T>(call.title, await sender.send(call));
  };

  return {
    get inFlight() {
      return sender.inFlight;
    },
    get: <T>(resource: Resource, ref: ObjectRef, options?: CallOptions) =>
      request<T>({ verb: 'get', resource, at: ref, options }).catch(undefinedIfAbsent(ref)),
    // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- named by callers
    async list<T>(resource: Resource, o: ListOptions = {}) {
      const page = await request<{
        items?: T[] | null;
        metadata?: { resourceVersion?: string; continue?: string };
      }>(listCall(resource, o));
      const next = page.metadata?.continue ?? '';
      return {
        items: page.items ?? [],
        resourceVersion: page.metadata?.resourceVersion ?? '',
        ...(next === '' ? {} : { continueToken: next }),
      };
    },
    async listItems(resource, o) {
      const call = describeCall(listCall(resource, o));
      let decoder = new ListDecoder(call.title, o.onItem);
      await sender.send(call, () => {
        o.onBegin();
        decoder = new ListDecoder(call.title, o.onItem);
        return (chunk) => decoder.push(chunk);
      });
      return decoder.end();
    },
    create: (resource, namespace, body, options) =>
      request({ verb: 'create', resource, at: { namespace }, options, body }),
    async createUnread(resource, namespace, body, options) {
      const at = { namespace };
      await sender.send(
        describeCall({ verb: 'create', resource, at, options, body, isAnswerUnread: true }),
      );
    },
    update: (resource, ref, body, options) =>
      request({ verb: 'update', resource, at: ref, options, body }),
    patch(resource, ref, { type, body, subresource }, options) {
      const at = { ...ref, subresource };
      const contentType = PATCH_TYPES[type];
      return request({ verb: 'patch', resource, at, options, body, contentType });
    },
    delete<T>(resource: Resource, ref: ObjectRef, options: DeleteOptions = {}) {
      const { preconditions } = options;
      const body = preconditions && { apiVersion: 'v1', kind: 'DeleteOptions', preconditions };
      return request<T>({ verb: 'delete', resource, at: ref, options, body }).catch(
        undefinedIfAbsent(ref),
      );
    },
    async watch(resource, o) {
      const at = { namespace: o.namespace };
      const { metadataOnly } = o;
      const call = describeCall({
        verb: 'watch',
        resource,
        at,
        query: watchQuery(o),
        metadataOnly,
      });
      const decoder = new WatchDecoder(call.title, o.onEvent);
      await sender.stream(call, {
        idleTimeoutMs: o.idleTimeoutMs,
        signal: o.signal,
        onOpen: () => o.onOpen?.(),
        onData: (chunk) => decoder.push(chunk),
      });
    },
    close: () => sender.close(),
  };
}

function listCall(resource: Resource, o: ListOptions): CallDescription {
  return {
    verb: 'list',
    resource,
    at: { namespace: o.namespace },
    options: o,
    metadataOnly: o.metadataOnly,
    query: {
      limit: o.limit,
      continue: o.continueToken,
      resourceVersion: o.resourceVersion,
      labelSelector: o.labelSelector,
      fieldSelector: o.fieldSelector,
    },
  };
}

/** Decodes an answer. The API server validates objects by their schema, so the fields that a caller
 * names by its type are not checked again. */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- named by callers
function decode<T>(title: string, body: string): T {
  const value = parseJson(body);
  if (value !== undefined) return value as T;
  throw undecodableError(title, `the answer is not JSON: ${excerpt(body)}`);
}

/** Handles a 404 about the object itself, which is an answer rather than an error. */
function undefinedIfAbsent(ref: ObjectRef): (error: unknown) => undefined {
  return (error) => {
    if (isNotFound(error) && (error.details?.name === undefined || error.details.name === ref.name))
      return undefined;
    throw error;
  };
}
