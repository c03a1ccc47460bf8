import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from '#src/runtime/log.ts';
import { ApiError, noSuchResource } from '../api-error.ts';
import type { JsonObject } from '../json-value.ts';
import type { Registry } from '../registry.ts';
import type { Access } from './access.ts';
import { json, sendError, sendJson } from './answer.ts';
import { aggregatedType, Discovery, VERSION } from './discovery.ts';
import { applyFault, Faults } from './faults.ts';
import { OpenApiV2 } from './openapi-v2.ts';
import { OpenApiV3 } from './openapi-v3.ts';
import { RequestCounts } from './request-counts.ts';
import { parseRequest } from './request-info.ts';
import type { Routes } from './routes.ts';

export interface HandlerDeps {
  readonly access: Access;
  readonly registry: Registry;
  readonly routes: Routes;
  readonly log: Logger;
}

const READ_METHODS = new Set(['GET', 'HEAD']);
/** Paths that need no token. */
const OPEN_PATHS = new Set(['/healthz', '/livez', '/readyz', '/version']);

/** Answers HTTP requests: health, version, discovery and OpenAPI itself, resources by `Routes`. */
export class Handler {
  readonly faults = new Faults();
  readonly requests = new RequestCounts();
  readonly #deps: HandlerDeps;
  readonly #discovery: Discovery;
  readonly #v2: OpenApiV2;
  readonly #v3: OpenApiV3;

  constructor(deps: HandlerDeps) {
    this.#deps = deps;
    this.#discovery = new Discovery(deps.registry);
    this.#v2 = new OpenApiV2(deps.registry);
    this.#v3 = new OpenApiV3(deps.registry);
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // A client may close the connection in the middle of an answer.
    response.on('error', () => undefined);
    try {
      await this.#answer(request, response);
    } catch (error) {
      this.#refuse(request, response, error);
    }
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#deps.access.checkHost(request);
    const { method = 'GET', url = '/', headers } = request;
    const [path = '/', search = ''] = url.split('?', 2);
    if (!OPEN_PATHS.has(path)) this.#deps.access.checkToken(request);
    const document = READ_METHODS.has(method) ? this.#documentAt(path, headers.accept) : undefined;
    if (document !== undefined)
      return sendJson(response, 200, document.body, { 'content-type': document.type });
    const query = new URLSearchParams(search);
    const info = parseRequest(method, path, query);
    if (info === undefined || !this.#deps.registry.hasGroup(info.group)) {
      // For a path of no group the real server answers with the plain text of its HTTP library.
      response
        .writeHead(404, { 'content-type': 'text/plain; charset=utf-8' })
        .end('404 page not found\n');
      return;
    }
    this.requests.add(info, query.get('limit'));
    const fault = this.faults.take(info);
    if (fault === undefined || (await applyFault(fault, request, response)))
      await this.#deps.routes.serve(info, query, request, response);
  }

  #refuse(request: IncomingMessage, response: ServerResponse, error: unknown): void {
    const known =
      error instanceof ApiError
        ? error
        : new ApiError({ code: 500, reason: 'InternalError', message: 'Internal error occurred' });
    if (!(error instanceof ApiError))
      this.#deps.log.error(
        { err: error, method: request.method, url: request.url },
        'sandbox API failed to answer',
      );
    if (response.headersSent) response.destroy();
    else {
      // The rest of a refused body is not read, so the connection can't carry another request.
      if (!request.complete) response.setHeader('connection', 'close');
      sendError(response, known);
    }
  }

  /** The document at a path that is not a resource; undefined for resources. */
  #documentAt(path: string, accept = ''): Document | undefined {
    if (path === '/version') return jsonDocument(VERSION);
    if (OPEN_PATHS.has(path)) return { type: 'text/plain', body: Buffer.from('ok') };
    if (path === '/openapi/v2') return this.#v2.document(accept);
    if (path === '/openapi/v3') return jsonDocument(this.#v3.index());
    if (path.startsWith('/openapi/v3/')) {
      const document = this.#v3.document(path.slice('/openapi/v3/'.length));
      if (document === undefined) throw noSuchResource();
      return jsonDocument(document);
    }
    const aggregated = path === '/api' || path === '/apis' ? aggregatedType(accept) : undefined;
    const document = this.#discovery.document(path, aggregated);
    return document === undefined ? undefined : jsonDocument(document, aggregated);
  }
}

interface Document {
  readonly type: string;
  readonly body: Buffer;
}

function jsonDocument(content: JsonObject, type = 'application/json'): Document {
  return { type, body: json(content) };
}
