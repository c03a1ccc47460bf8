import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from '#src/runtime/log.ts';
import { ApiError } from '../api-error.ts';
import type { JsonObject } from '../json-value.ts';
import type { Registry } from '../registry.ts';
import { pathWithoutToken } from './access.ts';
import { sendError, sendObject } from './answer.ts';
import { discoveryAt, VERSION } from './discovery.ts';
import { openApiAt } from './openapi.ts';
import { parseRequest, type RequestInfo } from './request-info.ts';
import type { Routes } from './routes.ts';

/** Sees each request for a resource before it is handled, for tests.
 * @returns whether the server should handle it
 * @throws  ApiError, which becomes the answer */
export type Intercept = (
  info: RequestInfo,
  request: IncomingMessage,
  response: ServerResponse,
) => boolean | Promise<boolean>;

export interface HandlerDeps {
  readonly token: string;
  readonly registry: Registry;
  readonly routes: Routes;
  readonly intercept: Intercept;
  readonly log: Logger;
}

/** Answers HTTP requests: health, version, discovery and OpenAPI itself, resources by `Routes`. */
export class Handler {
  readonly #deps: HandlerDeps;

  constructor(deps: HandlerDeps) {
    this.#deps = deps;
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
    const { registry, routes, intercept, token } = this.#deps;
    const { method = 'GET', url = '/' } = request;
    const [given = '/', search = ''] = url.split('?', 2);
    // `kubectl get --raw` leaves out the path of the server's URL.
    if (/^\/(healthz|livez|readyz)$/.test(given))
      return void response.writeHead(200, { 'content-type': 'text/plain' }).end('ok');
    const path = pathWithoutToken(given, token);
    const document = method === 'GET' ? documentAt(path, registry) : undefined;
    if (document !== undefined) return sendObject(response, 200, document);
    const query = new URLSearchParams(search);
    const info = parseRequest(method, path, query);
    if (info === undefined || !registry.all().some((each) => each.group === info.group)) {
      // For a path of no group the real server answers with the plain text of its HTTP library.
      response
        .writeHead(404, { 'content-type': 'text/plain; charset=utf-8' })
        .end('404 page not found\n');
      return;
    }
    if (await intercept(info, request, response)) await routes.serve(info, request, response);
  }

  #refuse(request: IncomingMessage, response: ServerResponse, error: unknown): void {
    const known =
      error instanceof ApiError
        ? error
        : new ApiError({ code: 500, reason: 'InternalError', message: 'Internal error occurred' });
    if (known !== error)
      this.#deps.log.error({ err: error, method: request.method }, 'sandbox API failed to answer');
    if (response.headersSent) response.destroy();
    else {
      // Nobody reads the rest of a refused body, so the connection can't carry another request.
      if (!request.complete) response.setHeader('connection', 'close');
      sendError(response, known);
    }
  }
}

/** The document at a path that is not a resource; undefined for resources. */
function documentAt(path: string, registry: Registry): JsonObject | undefined {
  if (path === '/version') return VERSION;
  return openApiAt(path, registry) ?? discoveryAt(path, registry);
}
