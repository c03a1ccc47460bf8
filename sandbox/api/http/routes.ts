import type { IncomingMessage, ServerResponse } from 'node:http';
import type { WebhookAdmission } from '../admission/webhook-admission.ts';
import { ApiError, badRequest, invalid, noSuchResource, refused } from '../api-error.ts';
import { notSupported } from '../field-error.ts';
import { isObject, memberAt, type Json } from '../json-value.ts';
import { isTrue, parseListQuery, parseRevision } from '../list-query.ts';
import type { DeleteRequest, Operations, Place, WriteOptions } from '../operations.ts';
import { requireObject, type FieldValidation } from '../preparation.ts';
import { qualifiedGroup, type Resource } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';
import { listBytes, objectBytes, sendJson, sendObject, type Presentation } from './answer.ts';
import { acceptedForm, checkContentType, patchType, readBody } from './content.ts';
import { verbsOf } from './discovery.ts';
import type { RequestInfo } from './request-info.ts';
import type { IncludeObject } from './table.ts';
import { WatchStream } from './watch-stream.ts';

export interface RoutesOptions {
  readonly bookmarkIntervalMs: number;
  /** How long a watch lasts that does not ask for a time-out. */
  readonly watchTimeoutMs: number;
  readonly nowMs: () => number;
}

const DELETE_OPTIONS = schemaOf('DeleteOptions');

interface Call {
  readonly info: RequestInfo;
  readonly resource: Resource;
  readonly query: URLSearchParams;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly how: Presentation;
}

/** Answers requests for resources: calls the operation that method and path ask for, and sends its
 * result. */
export class Routes {
  readonly watches = new Set<WatchStream>();
  readonly #operations: Operations;
  readonly #admission: WebhookAdmission;
  readonly #options: RoutesOptions;

  constructor(operations: Operations, admission: WebhookAdmission, options: RoutesOptions) {
    this.#operations = operations;
    this.#admission = admission;
    this.#options = options;
  }

  /** Answers one request.
   * @throws ApiError for every refusal; nothing was sent then */
  async serve(
    info: RequestInfo,
    query: URLSearchParams,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const resource = this.#operations.registry.find(info.group, info.version, info.plural);
    if (resource === undefined) throw noSuchResource();
    checkServed(resource, info);
    const includeObject = (query.get('includeObject') ?? 'Metadata') as IncludeObject;
    const how = { form: acceptedForm(request), includeObject, nowMs: this.#options.nowMs() };
    await this.#dispatch({ info, resource, query, request, response, how });
  }

  async #dispatch(call: Call): Promise<void> {
    const { info, resource, response, how } = call;
    switch (info.verb) {
      case 'get':
        return sendJson(
          response,
          200,
          objectBytes(resource, this.#operations.get(placeOf(call)), how),
        );
      case 'list':
        return this.#list(call);
      case 'watch':
        return this.#watch(call);
      case 'create':
        return this.#create(call);
      case 'update':
        return this.#update(call);
      case 'patch':
        return this.#patch(call);
      case 'delete':
        return this.#delete(call);
      case 'deletecollection':
        return this.#deleteCollection(call);
    }
  }

  #list({ info, resource, query, response, how }: Call): void {
    const page = this.#operations.list(resource, parseListQuery(resource, info.namespace, query));
    sendJson(response, 200, listBytes(resource, page, how));
  }

  #watch({ info, resource, query, response, how }: Call): void {
    if (!query.has('watch')) query.set('watch', '1');
    if (info.name !== undefined) query.set('fieldSelector', `metadata.name=${info.name}`);
    const timeoutSeconds = Number(query.get('timeoutSeconds') ?? 0);
    const listQuery = parseListQuery(resource, info.namespace, query);
    const stream = new WatchStream(this.#operations, response, {
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

  async #create(call: Call): Promise<void> {
    const { info, resource, request, response, how } = call;
    if (info.name !== undefined) throw methodNotAllowed();
    checkContentType(request);
    const options = writeOptions(call, 'CreateOptions');
    const object = requireObject(resource, await bodyOf(call));
    const stored = await this.#admission.carryOut(
      this.#operations.createSteps(resource, info.namespace, object, options),
    );
    sendJson(response, 201, objectBytes(resource, stored, how), warningHeaders(options));
  }

  async #update(call: Call): Promise<void> {
    const { info, resource, request, response, how } = call;
    if (info.name === undefined) throw methodNotAllowed();
    checkContentType(request);
    const options = writeOptions(call, 'UpdateOptions');
    const object = requireObject(resource, await bodyOf(call));
    const { stored, created } = await this.#admission.carryOut(
      this.#operations.updateSteps(placeOf(call), object, options),
    );
    const code = created ? 201 : 200;
    sendJson(response, code, objectBytes(resource, stored, how), warningHeaders(options));
  }

  async #patch(call: Call): Promise<void> {
    const { info, resource, request, response, how } = call;
    if (info.name === undefined) throw methodNotAllowed();
    const type = patchType(request);
    const options = writeOptions(call, 'PatchOptions');
    const patch = await bodyOf(call);
    const { stored, created } = await this.#admission.carryOut(
      this.#operations.patchSteps(placeOf(call), type, patch, options),
    );
    const code = created ? 201 : 200;
    sendJson(response, code, objectBytes(resource, stored, how), warningHeaders(options));
  }

  async #delete(call: Call): Promise<void> {
    const { info, resource, response, how } = call;
    if (info.subresource !== undefined) throw methodNotAllowed();
    const body = (await readBody(call.request, DELETE_OPTIONS)).value ?? null;
    const { stored, gone } = await this.#admission.carryOut(
      this.#operations.deleteSteps(placeOf(call), deleteRequest(call, body)),
    );
    const code = !gone && memberAt(body, 'orphanDependents') === false ? 202 : 200;
    if (resource.returnsDeleted === true || !gone)
      return sendJson(response, code, objectBytes(resource, stored, how));
    const { name, uid } = stored.object.metadata;
    sendObject(response, code, {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Success',
      details: { name, ...qualifiedGroup(resource), kind: resource.plural, uid },
    });
  }

  async #deleteCollection(call: Call): Promise<void> {
    const { info, resource, query, response, how } = call;
    const body = (await readBody(call.request, DELETE_OPTIONS)).value ?? null;
    const listQuery = parseListQuery(resource, info.namespace, query);
    const dryRun = deleteRequest(call, body).dryRun === true;
    const page = await this.#admission.carryOut(
      this.#operations.deleteCollectionSteps(resource, listQuery, dryRun),
    );
    sendJson(response, 200, listBytes(resource, page, how));
  }
}

/** @throws ApiError 404 or 405 for what this resource does not serve */
function checkServed(resource: Resource, info: RequestInfo): void {
  const isOnCollection = info.verb === 'create' || info.verb === 'deletecollection';
  const needsNamespace = resource.namespaced && (info.name !== undefined || isOnCollection);
  if (info.namespace === undefined ? needsNamespace : !resource.namespaced)
    throw isOnCollection ? methodNotAllowed() : noSuchResource();
  const hasSubresource = info.subresource === 'status' && resource.hasStatus === true;
  if (info.subresource !== undefined && !hasSubresource) throw noSuchResource();
  if (!verbsOf(resource).includes(info.verb)) throw methodNotAllowed();
}

function placeOf({ info, resource }: Call): Place {
  return { resource, namespace: info.namespace, name: info.name ?? '' };
}

async function bodyOf({ request, resource }: Call): Promise<Json> {
  try {
    const { value, empty } = await readBody(request, resource.struct);
    if (!empty && value !== undefined) return value;
  } catch (error) {
    if (error instanceof ApiError && error.failure.code === 400)
      throw unrecognized(resource, error.message);
    throw error;
  }
  throw unrecognized(
    resource,
    "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
  );
}

function unrecognized(resource: Resource, why: string): ApiError {
  return badRequest(
    `the object provided is unrecognized (must be of type ${resource.kind}): ${why}`,
  );
}

function writeOptions(
  { info, query, request }: Call,
  kind: string,
): WriteOptions & { readonly warnings: string[] } {
  const validation = query.get('fieldValidation') ?? '';
  if (!['', 'Ignore', 'Warn', 'Strict'].includes(validation)) {
    throw invalid({ group: 'meta.k8s.io', kind }, '', [
      notSupported('fieldValidation', validation, ['Ignore', 'Strict', 'Warn', '']),
    ]);
  }
  return {
    dryRun: isDryRun(query.getAll('dryRun'), kind),
    subresource: info.subresource === 'status' ? 'status' : undefined,
    // A writer that gives no name is known by the first word of its User-Agent. Only apply requires
    // a name.
    fieldManager:
      query.get('fieldManager') ??
      (kind === 'PatchOptions' ? '' : ((request.headers['user-agent'] ?? '').split('/')[0] ?? '')),
    force: isTrue(query.get('force')),
    ...(validation === '' ? {} : { fieldValidation: validation as FieldValidation }),
    warnings: [],
  };
}

function isDryRun(values: readonly string[], kind: string): boolean {
  const given = values.filter((value) => value !== '');
  if (given.every((value) => value === 'All')) return given.length > 0;
  const cause = {
    reason: 'FieldValueNotSupported',
    message: `Unsupported value: ${JSON.stringify(given)}: supported values: "All"`,
    field: 'dryRun',
  };
  throw invalid({ group: 'meta.k8s.io', kind }, '', [cause]);
}

function deleteRequest({ query }: Call, body: Json): DeleteRequest {
  const inBody = memberAt(body, 'dryRun');
  const dryRun = [...query.getAll('dryRun'), ...(Array.isArray(inBody) ? inBody.map(String) : [])];
  const conditions = memberAt(body, 'preconditions');
  const uid = memberAt(conditions, 'uid');
  const resourceVersion = memberAt(conditions, 'resourceVersion');
  return {
    dryRun: isDryRun(dryRun, 'DeleteOptions'),
    ...(isObject(conditions)
      ? {
          preconditions: {
            ...(typeof uid === 'string' ? { uid } : {}),
            ...(typeof resourceVersion === 'string' ? { resourceVersion } : {}),
          },
        }
      : {}),
  };
}

function warningHeaders(options: { readonly warnings: readonly string[] }): Record<string, string> {
  if (options.warnings.length === 0) return {};
  return { warning: options.warnings.map((line) => `299 - ${JSON.stringify(line)}`).join(', ') };
}

function methodNotAllowed(): ApiError {
  return refused(
    405,
    'MethodNotAllowed',
    'the server does not allow this method on the requested resource',
  );
}
