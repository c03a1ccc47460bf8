import type { RequestHandler } from 'express';
import type { Logger } from '../runtime/log.ts';

/** Longer than a login, and than what promoting a job sends. */
const MAX_BODY_BYTES = 16 * 1024;

const MISDIRECTED =
  'this dashboard is not served under the host name of this request; ' +
  'if the name is one of its own, start it with --dashboard-hosts=NAME\n';

/** Refuses requests that no browser or script of a user sends: for another host name, too long, or
 * written so that a proxy may read them differently. */
export function checkRequests(isServedHost: (header: string) => boolean): RequestHandler {
  return ({ url, headers, headersDistinct }, response, next) => {
    const { host: hosts = [], 'transfer-encoding': codings = [] } = headersDistinct;
    const refuse = (status: number, reason: string): void => {
      // What follows on this connection may be the rest of this request.
      response.status(status).set('connection', 'close').type('text').send(reason);
    };
    if (!/^\/[\x21-\x7e]*$/.test(url) || hosts.length > 1)
      return refuse(400, 'the request has no plain path, or several hosts\n');
    if (codings.length > 1 || (codings[0] ?? 'chunked').toLowerCase() !== 'chunked')
      return refuse(400, 'only Transfer-Encoding: chunked is accepted\n');
    if (!isServedHost(hosts[0] ?? '')) return refuse(421, MISDIRECTED);
    if (Number(headers['content-length'] ?? 0) > MAX_BODY_BYTES)
      return refuse(413, `a request may have ${MAX_BODY_BYTES} bytes\n`);
    next();
  };
}

/** Says once that requests come through a proxy that is not named: its clients share one limit of
 * wrong passwords. */
export function reportUnnamedProxy(
  isProxy: (address: string) => boolean,
  log: Logger,
): RequestHandler {
  let isReported = false;
  return ({ headers, socket }, _response, next) => {
    const address = socket.remoteAddress ?? '';
    if (!isReported && headers['x-forwarded-for'] !== undefined && !isProxy(address)) {
      isReported = true;
      log.warn(
        { address },
        'dashboard: a request names another client in X-Forwarded-For, which is not believed; ' +
          'if it came through your proxy, name the proxy’s address by --dashboard-trusted-proxies',
      );
    }
    next();
  };
}
