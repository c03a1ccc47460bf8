// Settings of a connection to Redis: URL, TLS, login at Sentinels. Refuses accidental plaintext.
import { isIP } from 'node:net';
import { checkServerIdentity, type ConnectionOptions } from 'node:tls';
import type { RedisOptions } from 'ioredis';
import { bracketIPv6, isLoopback, withoutBrackets } from '../runtime/address.ts';
import { defaultsOf, type Flags, UsageError } from '../runtime/flags.ts';
import type { ProcessContext } from '../runtime/process.ts';
import { openTlsFiles, type TlsFiles, type TlsSource } from '../runtime/tls-files.ts';
import { redisAccessFlags } from './flags.ts';
import { OutageLog } from './outage-log.ts';

/** What a connection needs besides the URL: the flags, and the files that they name. */
export interface RedisAccess extends Flags<typeof redisAccessFlags> {
  /** undefined if the flags name no files. */
  readonly files: TlsSource | undefined;
  /** Shared by the connections of a process. If absent, each logs its own outages. */
  readonly outages?: OutageLog;
}

/** Access without any flag. */
export const DEFAULT_ACCESS: RedisAccess = { ...defaultsOf(redisAccessFlags), files: undefined };

type Context = Pick<
  ProcessContext<typeof redisAccessFlags>,
  'flags' | 'closers' | 'health' | 'log'
>;

/** Reads the TLS files that the flags name, and watches them until the process closes. Reports in
 * /readyz if they can't be used.
 * @throws UsageError for flags or files that can't be used */
export async function openRedisAccess(context: Context): Promise<RedisAccess> {
  const { flags, log } = context;
  const files = namedFiles(flags);
  const isNamed = files.ca.path !== '' || files.cert.path !== '';
  return {
    ...flags,
    files: isNamed ? await openTlsFiles(context, 'redis-tls', files) : undefined,
    outages: new OutageLog(log),
  };
}

function namedFiles(flags: Flags<typeof redisAccessFlags>): TlsFiles {
  const cert = { flag: 'redis-tls-cert', path: flags.redisTlsCert };
  const key = { flag: 'redis-tls-key', path: flags.redisTlsKey };
  if ((cert.path === '') !== (key.path === ''))
    throw new UsageError(
      'a client certificate for Redis needs both --redis-tls-cert and --redis-tls-key: ' +
        `--${cert.path === '' ? cert.flag : key.flag} is missing`,
    );
  return { ca: { flag: 'redis-tls-ca', path: flags.redisTlsCa }, cert, key };
}

/** Makes the settings of a connection to the Redis that the URL names.
 * @throws UsageError for a URL that can't be read, or that contradicts the access */
export function redisSettings(url: string, access: RedisAccess): RedisSettings {
  const settings = parseRedisUrl(url);
  const sentinels = sentinelSettings(settings, access);
  if (settings.tls === undefined) {
    refuseUnusedTls(access);
    refusePlaintext(settings, access);
    return { ...settings, ...sentinels };
  }
  const tls = currentTls(access);
  return {
    ...settings,
    ...sentinels,
    tls: Object.assign(tls, access.redisTlsServerName === '' ? settings.tls : undefined),
    ...(settings.sentinels !== undefined && !access.redisSentinelPlaintext
      ? { sentinelTLS: currentTls(access) }
      : {}),
  };
}

function refuseUnusedTls({ files, redisTlsServerName }: RedisAccess): void {
  if (files === undefined && redisTlsServerName === '') return;
  const flag =
    files === undefined ? '--redis-tls-server-name' : '--redis-tls-ca or --redis-tls-cert';
  throw new UsageError(
    `${flag} needs TLS, but --redis-url is without TLS: write rediss:// or rediss-sentinel://, ` +
      'or leave the flag out',
  );
}

/** @throws UsageError if others could read the connection */
function refusePlaintext(settings: RedisSettings, { redisInsecure }: RedisAccess): void {
  if (redisInsecure || settings.path !== undefined) return;
  for (const { host = '127.0.0.1' } of settings.sentinels ?? [settings])
    if (!isLoopback(host)) throw new UsageError(plaintextTo(host));
}

function plaintextTo(host: string): string {
  return (
    `--redis-url: ${host} is beyond loopback, which needs TLS: write rediss:// ` +
    '(rediss-sentinel:// for Sentinels), with --redis-tls-ca for an authority of your own, ' +
    'or allow plaintext with --redis-insecure'
  );
}

const SENTINEL_ANSWER_MS = 3_000;

function sentinelSettings(settings: RedisSettings, access: RedisAccess): RedisSettings {
  const { redisSentinelUsername: sentinelUsername, redisSentinelPassword: sentinelPassword } =
    access;
  if (settings.sentinels === undefined) {
    if (sentinelPassword === '' && sentinelUsername === '') return {};
    throw new UsageError(
      'a login for Sentinels is given, but --redis-url names none: ' +
        'write rediss-sentinel://host:port/master-name',
    );
  }
  return {
    // Without it, ioredis would wait for a frozen Sentinel for ever, and never ask the next one.
    sentinelCommandTimeout: SENTINEL_ANSWER_MS,
    ...(sentinelUsername === '' ? {} : { sentinelUsername }),
    ...(sentinelPassword === '' ? {} : { sentinelPassword }),
    ...(settings.tls === undefined && !access.redisInsecure ? { natMap: refuseRemoteAddress } : {}),
  };
}

/** Refuses the address of a master or another Sentinel beyond loopback. ioredis calls it with each
 * address that a Sentinel names, and reports what it throws. */
function refuseRemoteAddress(address: string): null {
  const host = address.slice(0, address.lastIndexOf(':'));
  if (!isLoopback(host)) throw new UsageError(plaintextTo(host));
  return null;
}

/** Makes TLS options that always return the current certificates: ioredis reads them at each
 * connection, and BullMQ's duplicates of a connection share the object. */
function currentTls({ files, redisTlsServerName: serverName }: RedisAccess): ConnectionOptions {
  const current = (part: 'ca' | 'cert' | 'key'): string | undefined =>
    files?.current[part] || undefined;
  const tls: ConnectionOptions = {
    // Overrides NODE_TLS_REJECT_UNAUTHORIZED.
    rejectUnauthorized: true,
    get ca() {
      return current('ca');
    },
    get cert() {
      return current('cert');
    },
    get key() {
      return current('key');
    },
  };
  if (serverName === '') return tls;
  tls.checkServerIdentity = (_host, certificate) => checkServerIdentity(serverName, certificate);
  // RFC 6066 section 3 forbids IP addresses as server names.
  if (isIP(serverName) === 0) tls.servername = serverName;
  return tls;
}

/** The options of ioredis, except the one that changes the types of all replies. */
export type RedisSettings = Omit<RedisOptions, 'replyMapping'>;

const FORMS =
  'write rediss://[user:password@]host[:port][/db], redis:// without TLS, unix:///path, ' +
  'or rediss-sentinel://host:port,host:port/master-name';
const URL_FORM = /^(rediss?(?:-sentinel)?|unix):\/\/(?:([^/?#]*)@)?([^\s@/?#]*)(?:\/([^?#]*))?$/;

/** Reads a Redis URL. User and password are percent-encoded.
 * @throws UsageError for a URL that can't be read, without quoting it: it may contain a password */
export function parseRedisUrl(text: string): RedisSettings {
  const [, scheme = '', login, hosts = '', path = ''] = URL_FORM.exec(text) ?? [];
  const credentials = readLogin(login);
  const isTls = scheme.startsWith('rediss');
  switch (scheme) {
    case '':
      throw new UsageError(`--redis-url is not a URL of Redis: ${FORMS}`);
    case 'unix':
      return { path: `/${decode(path)}`, ...credentials };
    case 'redis':
    case 'rediss':
      return { ...serverSettings(hosts, isTls), ...credentials, ...readDatabase(path) };
    default: {
      const [name = '', db] = path.split('/');
      return { ...sentinelHosts(hosts, name, isTls), ...credentials, ...readDatabase(db) };
    }
  }
}

function serverSettings(text: string, isTls: boolean): RedisSettings {
  const server = readHost(text, 6379);
  if (!isTls) return server;
  // An IP address is no server name; Node.js then compares the host with the certificate.
  return { ...server, tls: isIP(server.host) === 0 ? { servername: server.host } : {} };
}

function sentinelHosts(hosts: string, name: string, isTls: boolean): RedisSettings {
  if (name === '') throw new UsageError(`--redis-url names no master: ${FORMS}`);
  const sentinels = hosts.split(',').map((each) => readHost(each, 26_379));
  const tls = isTls ? { tls: {}, enableTLSForSentinelMode: true } : {};
  return { sentinels, name: decode(name), ...tls };
}

function readDatabase(text = ''): RedisSettings {
  if (!/^\d*$/.test(text))
    throw new UsageError(`--redis-url ends with /${text}: the last part is a database number`);
  return text === '' ? {} : { db: Number(text) };
}

/** Formats host and port of a Redis for people. Omits user and password. */
export function redisAddress(options: RedisSettings): string {
  if (options.path !== undefined) return options.path;
  if (options.sentinels !== undefined) {
    const hosts = options.sentinels.map(({ host, port }) => `${bracketIPv6(host ?? '')}:${port}`);
    return `${hosts.join(',')}/${options.name}`;
  }
  return `${bracketIPv6(options.host ?? '127.0.0.1')}:${options.port ?? 6379}`;
}

function readHost(text: string, defaultPort: number): { host: string; port: number } {
  const [, host, port] = /^(\[[^\]]+\]|[^:,]+)(?::(\d{1,5}))?$/.exec(text) ?? [];
  if (host === undefined)
    throw new UsageError(`--redis-url has a host that can't be read: ${FORMS}`);
  return { host: withoutBrackets(host), port: Number(port ?? defaultPort) };
}

function readLogin(login = ''): RedisSettings {
  const [username = '', ...rest] = login.split(':');
  const password = rest.join(':');
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
