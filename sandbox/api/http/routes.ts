import type { IncomingMessage, ServerResponse } from 'node:http';
import { badRequest, noSuchResource, refused } from '../api-error.ts';
import { isObject, memberAt, type Json, type JsonObject } from '../json-value.ts';
import { isTrue, parseListQuery, parseRevision } from '../list-query.ts';
import type { DeleteRequest, Operations, Place, WriteOptions } from '../operations.ts';
import type { Resource } from '../resource.ts';
import type { Stored } from '../store.ts';
import { listBytes, objectBytes, sendJson, sendObject, type Presentation } from './answer.ts';
import { acceptedForm, patchType, readBody } from './content.ts';
import type { RequestInfo } from './request-info.ts';
import type { IncludeObject } from './table.ts';
import { WatchStream } from './watch-stream.ts';

export interface RoutesOptions {
  readonly bookmarkIntervalMs: number;
  /** Duration of a watch that does not ask for a time-out. */
  readonly watchTimeoutMs: number;
  readonly nowMs: () => number;
}

interface Call {
  readonly info: RequestInfo;
  readonly resource: Resource;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly how: Presentation;
}

/** Answers requests for resources: calls the operation for the method and path, and sends its
 * result. */
export class Routes {
  readonly watches = new Set<WatchStream>();
  readonly #operations: Operations;
  readonly #options: RoutesOptions;

  constructor(operations: Operations, options: RoutesOptions) {
    this.#operations = operations;
    this.#options = options;
  }

  /** Answers one request.
   * @throws ApiError for every refusal, before anything is sent */
  async serve(
    info: RequestInfo,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const resource = this.#operations.registry.find(info.group, info.version, info.plural);
    if (resource === undefined) throw noSuchResource();
    checkServed(resource, info);
    const includeObject = (info.query.get('includeObject') ?? 'Metadata') as IncludeObject;
    const how = { form: acceptedForm(request), includeObject, nowMs: this.#options.nowMs() };
    await this.#dispatch({ info, resource, request, response, how });
  }

  async #dispatch(call: Call): Promise<void> {
    const { info, resource, response, how } = call;
    switch (info.verb) {
      case 'get':
        return sendStored(call, 200, this.#operations.get(placeOf(call)));
      case 'list': {
        const page = this.#operations.list(resource, parseListQuery(info.namespace, info.query));
        return sendJson(response, 200, listBytes(resource, page, how));
      }
      case 'watch':
        return this.#watch(call);
      case 'create': {
        const object = await objectIn(call);
        const { namespace } = info;
        const options = writeOptions(info);
        return sendStored(call, 201, this.#operations.create(resource, namespace, object, options));
      }
      case 'update': {
        const object = await objectIn(call);
        const { stored, created } = this.#operations.update(
          placeOf(call),
          object,
          writeOptions(info),
        );
        return sendStored(call, created ? 201 : 200, stored);
      }
      case 'patch': {
        const type = patchType(call.request);
        const patch = (await readBody(call.request)) ?? null;
        const options = writeOptions(info);
        return sendStored(
          call,
          200,
          this.#operations.patch(placeOf(call), type, patch, options).stored,
        );
      }
      case 'delete':
        return this.#delete(call);
    }
  }

  #watch({ info, resource, response, how }: Call): void {
    const { query } = info;
    if (info.name !== undefined) query.set('fieldSelector', `metadata.name=${info.name}`);
    const timeoutSeconds = Number(query.get('timeoutSeconds') ?? 0);
    const listQuery = parseListQuery(info.namespace, query);
    const stream = new WatchStream(this.#operations.store, response, {
      resource,
      query: listQuery,
      from: listQuery.resourceVersion === '' ? 0 : parseRevision(listQuery.resourceVersion),
      bookmarks: isTrue(query.get('allowWatchBookmarks')),
      bookmarkIntervalMs: this.#options.bookmarkIntervalMs,
      timeoutMs: timeoutSeconds > 0 ? timeoutSeconds * 1000 : this.#options.watchTimeoutMs,
      how,
      nowMs: this.#options.nowMs,
    });
    this.watches.add(stream);
    response.once('close', () => this.watches.delete(stream));
    stream.start();
  }

  async #delete(call: Call): Promise<void> {
    const { resource, response } = call;
    const request = deleteRequest(call.info, (await readBody(call.request)) ?? null);
    const { stored, gone } = this.#operations.delete(placeOf(call), request);
    if (!gone) return sendStored(call, 200, stored);
    const { name, uid } = stored.object.metadata;
    sendObject(response, 200, {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Success',
      details: { name, kind: resource.plural, uid },
    });
  }
}

/** @throws ApiError 404 or 405 if this resource does not serve the request */
function checkServed(
  resource: Resource,
  { verb, namespace, name, subresource }: RequestInfo,
): void {
  const isOnCollection = name === undefined;
  const isRead = verb === 'list' || verb === 'watch';
  const isMisplaced =
    namespace === undefined ? resource.namespaced && !isRead : !resource.namespaced;
  if (isMisplaced) throw noSuchResource();
  if (subresource !== undefined && (subresource !== 'status' || resource.hasStatus !== true))
    throw noSuchResource();
  if (isRead || isOnCollection === (verb === 'create')) return;
  const why = 'the server does not allow this method on the requested resource';
  throw refused(405, 'MethodNotAllowed', why);
}

function placeOf({ info, resource }: Call): Place {
  return { resource, namespace: info.namespace, name: info.name ?? '' };
}

function sendStored({ resource, response, how }: Call, code: number, stored: Stored): void {
  sendJson(response, code, objectBytes(resource, stored, how));
}

/** The object in the body of a request.
 * @throws ApiError 400 without a body, and for a body that is no object */
async function objectIn({ request, resource }: Call): Promise<JsonObject> {
  const body = await readBody(request);
  if (isObject(body)) return body;
  throw badRequest(`the object provided is unrecognized (must be of type ${resource.kind})`);
}

function writeOptions({ query, subresource }: RequestInfo): WriteOptions {
  return {
    dryRun: query.getAll('dryRun').includes('All'),
    subresource: subresource === 'status' ? 'status' : undefined,
  };
}

function deleteRequest({ query }: RequestInfo, body: Json): DeleteRequest {
  const inBody = memberAt(body, 'dryRun');
  const preconditions = memberAt(body, 'preconditions');
  return {
    dryRun: [...query.getAll('dryRun'), ...(Array.isArray(inBody) ? inBody : [])].includes('All'),
    ...(isObject(preconditions) ? { preconditions } : {}),
  };
}
