import { timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { ApiError } from '../api-error.ts';

/** Refuses callers without the token, and requests for a foreign host name (DNS rebinding). */
export class Access {
  readonly #token: Buffer;
  readonly #hosts: ReadonlySet<string>;

  /** @param port  the port that Host headers must name */
  constructor(token: string, port: number) {
    this.#token = Buffer.from(token);
    this.#hosts = new Set(
      ['127.0.0.1', 'localhost', '[::1]', 'kubernetes.default', 'kubernetes.default.svc'].map(
        (host) => `${host}:${port}`,
      ),
    );
  }

  /** @throws ApiError 403 for a foreign Host */
  checkHost(request: IncomingMessage): void {
    const { host = '' } = request.headers;
    if (this.#hosts.has(host.toLowerCase())) return;
    throw new ApiError({
      code: 403,
      reason: 'Forbidden',
      message: `this server answers on loopback only, not for the host ${JSON.stringify(host)}`,
      details: {},
    });
  }

  /** @throws ApiError 401 without the right bearer token */
  checkToken(request: IncomingMessage): void {
    const given = Buffer.from(
      /^Bearer\s+(.+)$/i.exec(request.headers.authorization ?? '')?.[1] ?? '',
    );
    if (given.length === this.#token.length && timingSafeEqual(given, this.#token)) return;
    throw new ApiError({ code: 401, reason: 'Unauthorized', message: 'Unauthorized' });
  }
}
