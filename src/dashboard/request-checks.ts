import { isIP } from 'node:net';
import express, { type Request, type RequestHandler } from 'express';
import { isLoopback, parseListenAddress } from '../runtime/address.ts';
import { messageOf } from '../runtime/error-message.ts';
import { UsageError } from '../runtime/flags.ts';
import { refuse } from './refusals.ts';

/** Longer than a login, and than what promoting a job sends. */
const MAX_BODY_BYTES = 16 * 1024;

const MISDIRECTED =
  'this dashboard is not served under the host name of this request; ' +
  'if the name is one of its own, start it with --dashboard-hosts=NAME';

/** Refuses requests that no browser or script of a user sends: for another host name, too long, or
 * written so that a proxy may read them differently. */
export function checkRequests(isServedHost: (header: string) => boolean): RequestHandler {
  return (request, response, next) => {
    const { url, headers, headersDistinct } = request;
    const { host: hosts = [], 'transfer-encoding': codings = [] } = headersDistinct;
    const close = (status: number, reason: string): void => {
      // What follows on this connection may be the rest of this request.
      response.set('connection', 'close');
      refuse(response, status, reason);
    };
    if (!/^\/[\x21-\x7e]*$/.test(url) || hosts.length > 1)
      return close(400, 'the request has no plain path, or several hosts');
    if (codings.length > 1 || (codings[0] ?? 'chunked').toLowerCase() !== 'chunked')
      return close(400, 'only Transfer-Encoding: chunked is accepted');
    if (!isServedHost(hosts[0] ?? '')) return close(421, MISDIRECTED);
    if (Number(headers['content-length'] ?? 0) > MAX_BODY_BYTES)
      return close(413, `a request may have ${MAX_BODY_BYTES} bytes`);
    next();
  };
}

/** Which values of the Host header are served: loopback names, as through kubectl port-forward, the
 * host of the listen address, and the names of --dashboard-hosts. Another name is that of a page
 * whose owner points it at this machine, to read the dashboard from a browser (DNS rebinding).
 * @throws UsageError for a name that is none */
export function parseHosts(
  listenAddress: string,
  names: readonly string[],
): (header: string) => boolean {
  const served = new Set(names.map(parseName));
  const { host } = parseListenAddress('dashboard-address', listenAddress);
  if (host !== undefined) served.add(hostOf(isIP(host) === 6 ? `[${host}]` : host) ?? '');
  return (header) => {
    const name = hostOf(header);
    return name !== undefined && (served.has(name) || isLoopback(name.replace(/^\[|\]$/g, '')));
  };
}

function parseName(text: string): string {
  const name = hostOf(isIP(text) === 6 ? `[${text}]` : text);
  if (name === undefined || (isIP(text) !== 6 && /:\d+$/.test(text)))
    throw new UsageError(
      `--dashboard-hosts: "${text}" is not a host name; ` +
        'write dashboard.example.com, without scheme, port and path',
    );
  return name;
}

/** The host in a Host header, without its port, as browsers write it; undefined if it is none. */
function hostOf(header: string): string | undefined {
  const isHost = /^(?:\[[\da-f:.]+\]|[\w.-]+)(?::\d{1,5})?$/i.test(header);
  if (!isHost || !URL.canParse(`http://${header}`)) return undefined;
  return new URL(`http://${header}`).hostname.replace(/\.$/, '');
}

/** Reads --dashboard-trusted-proxies: IP addresses, and networks such as 10.1.0.0/16.
 * @returns whether an address is one of them
 * @throws UsageError */
export function parseProxies(items: readonly string[]): (address: string) => boolean {
  const app = express();
  try {
    app.set('trust proxy', [...items]);
  } catch (error) {
    throw new UsageError(
      `--dashboard-trusted-proxies: ${messageOf(error)}; write 10.1.2.3 or 10.1.0.0/16`,
    );
  }
  return app.get('trust proxy fn') as (address: string) => boolean;
}

/** The address of the client: that of the connection, or the one that trusted proxies report. */
export function addressOf({ ip = '', socket }: Request): string {
  // A proxy may report something else than an address, and the header may come from anywhere.
  return isIP(ip) === 0 ? (socket.remoteAddress ?? '') : (ip.split('%')[0] ?? ip);
}

/** Whether requests with this method change nothing. */
export function isReading(method: string): boolean {
  return method === 'GET' || method === 'HEAD';
}
