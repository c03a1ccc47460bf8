import { isIP } from 'node:net';
import type { RedisOptions } from 'ioredis';
import { UsageError } from '../runtime/flags.ts';

/** The options of ioredis, except the one that changes the types of all replies. */
export type RedisSettings = Omit<RedisOptions, 'replyMapping'>;

const FORMS =
  'rediss://[user:password@]host[:port][/db], redis:// without TLS, unix:///path, ' +
  'or rediss-sentinel://host:port,host:port/master-name';
const SENTINEL_URL = /^(redis|rediss)-sentinel:\/\/(?:([^@/]*)@)?([^@/]+)\/([^/?]+)(?:\/(\d+))?$/;

/** Reads a Redis URL; user and password are percent-encoded.
 * @throws UsageError for a URL that can't be read; the message never repeats the URL, which may
 *   contain a password */
export function parseRedisUrl(text: string): RedisSettings {
  const sentinel = SENTINEL_URL.exec(text);
  if (sentinel !== null) return sentinelSettings(sentinel);
  if (!URL.canParse(text)) throw new UsageError(`--redis-url is not a URL: write ${FORMS}`);
  const url = new URL(text);
  if (url.search !== '' || url.hash !== '')
    throw new UsageError(`--redis-url has parameters that sutler does not know: write ${FORMS}`);
  if (url.protocol === 'unix:')
    return { path: decode(url.pathname), ...credentials(url.username, url.password) };
  if (url.protocol !== 'redis:' && url.protocol !== 'rediss:')
    throw new UsageError(`--redis-url begins with ${url.protocol}//: write ${FORMS}`);
  return hostSettings(url);
}

/** Host and port of a Redis, for people to read; never user or password. */
export function redisAddress(options: RedisSettings): string {
  if (options.path !== undefined) return options.path;
  if (options.sentinels !== undefined) {
    const hosts = options.sentinels.map(({ host, port }) => `${host}:${port}`);
    return `${hosts.join(',')}/${options.name}`;
  }
  return `${options.host ?? '127.0.0.1'}:${options.port ?? 6379}`;
}

function sentinelSettings(match: RegExpExecArray): RedisSettings {
  const [, scheme, login = '', hosts = '', name = '', db] = match;
  const [username = '', ...password] = login.split(':');
  return {
    sentinels: hosts.split(',').map(sentinelHost),
    name: decode(name),
    ...credentials(username, password.join(':')),
    ...(db === undefined ? {} : { db: Number(db) }),
    ...(scheme === 'rediss' ? { tls: {}, enableTLSForSentinelMode: true } : {}),
  };
}

function sentinelHost(text: string): { host: string; port: number } {
  const match = /^(\[[^\]]+\]|[^:]+)(?::(\d{1,5}))?$/.exec(text);
  if (match === null)
    throw new UsageError(`--redis-url has a host that can't be read: write ${FORMS}`);
  return { host: withoutBrackets(match[1] ?? ''), port: Number(match[2] ?? 26_379) };
}

function hostSettings(url: URL): RedisSettings {
  if (url.hostname === '') throw new UsageError(`--redis-url has no host: write ${FORMS}`);
  const db = url.pathname.replace(/^\//, '');
  if (!/^\d*$/.test(db))
    throw new UsageError(`--redis-url ends with /${db}: the last part is a database number`);
  const host = withoutBrackets(url.hostname);
  return {
    host,
    port: url.port === '' ? 6379 : Number(url.port),
    ...credentials(url.username, url.password),
    ...(db === '' ? {} : { db: Number(db) }),
    // An IP address is no server name; Node.js then compares the host with the certificate.
    ...(url.protocol === 'rediss:' ? { tls: isIP(host) === 0 ? { servername: host } : {} } : {}),
  };
}

function withoutBrackets(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1');
}

function credentials(username: string, password: string): RedisSettings {
  return {
    ...(username === '' ? {} : { username: decode(username) }),
    ...(password === '' ? {} : { password: decode(password) }),
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new UsageError(
      '--redis-url has a % without two hex digits after it: write %25 for a percent sign',
    );
  }
}
