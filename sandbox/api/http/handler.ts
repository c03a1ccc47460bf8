import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from '#src/runtime/log.ts';
import { ApiError, noSuchResource } from '../api-error.ts';
import type { Registry } from '../registry.ts';
import type { Access } from './access.ts';
import { json, sendError, sendJson, sendObject } from './answer.ts';
import { aggregatedType, Discovery, VERSION } from './discovery.ts';
import { Faults, survive } from './faults.ts';
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

const OPEN_PATHS = new Set(['/healthz', '/livez', '/readyz', '/version']);

/** From an HTTP request to what answers it: health, discovery, OpenAPI, or resources. */
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
    // A client that leaves in the middle of an answer is its own business.
    response.on('error', () => undefined);
    try {
      this.#deps.access.checkHost(request);
      const [path = '/', search = ''] = (request.url ?? '/').split('?', 2);
      if (!OPEN_PATHS.has(path)) this.#deps.access.checkToken(request);
      if (this.#document(path, request, response)) return;
      const query = new URLSearchParams(search);
      const info = parseRequest(request.method ?? 'GET', path, query);
      // Paths that no group answers for get the plain text of the HTTP library beneath, as on a
      // real server.
      if (info === undefined || !this.#deps.registry.hasGroup(info.group)) {
        response
          .writeHead(404, { 'content-type': 'text/plain; charset=utf-8' })
          .end('404 page not found\n');
        return;
      }
      this.requests.add(info);
      const fault = this.faults.take(info);
      if (fault !== undefined && !(await survive(fault, request, response))) return;
      await this.#deps.routes.serve(info, query, request, response);
    } catch (error) {
      this.#refuse(request, response, error);
    }
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
      // What is left of a refused body is not read: the connection cannot carry another request.
      if (!request.complete) response.setHeader('connection', 'close');
      sendError(response, known);
    }
  }

  /** Answers what is no resource; false where the path is one. */
  #document(path: string, request: IncomingMessage, response: ServerResponse): boolean {
    if (request.method !== 'GET' && request.method !== 'HEAD') return false;
    const accept = request.headers.accept ?? '';
    if (path === '/version') sendObject(response, 200, VERSION);
    else if (OPEN_PATHS.has(path))
      response.writeHead(200, { 'content-type': 'text/plain' }).end('ok');
    else if (path === '/openapi/v2') {
      const { type, body } = this.#v2.document(accept);
      sendJson(response, 200, body, { 'content-type': type });
    } else if (path === '/openapi/v3') sendObject(response, 200, this.#v3.index());
    else if (path.startsWith('/openapi/v3/')) {
      const document = this.#v3.document(path.slice('/openapi/v3/'.length));
      if (document === undefined) throw noSuchResource();
      sendObject(response, 200, document);
    } else {
      const aggregated = path === '/api' || path === '/apis' ? aggregatedType(accept) : undefined;
      const document = this.#discovery.document(path, aggregated);
      if (document === undefined) return false;
      sendJson(
        response,
        200,
        json(document),
        aggregated === undefined ? {} : { 'content-type': aggregated },
      );
    }
    return true;
  }
}
