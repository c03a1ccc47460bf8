import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFile, mkdir, mkdtemp } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  DEFAULT_ACCESS,
  openRedisAccess,
  parseRedisUrl,
  type RedisAccess,
  redisAddress,
  redisSettings,
} from '#src/redis/access.ts';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { redisAccessFlags } from '#src/redis/flags.ts';
import { Closers } from '#src/runtime/closers.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { HealthChecks } from '#src/runtime/health.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import { parseFlags } from '#src/runtime/parse-flags.ts';
import { Redis } from 'ioredis';
import { createAuthority } from '../harness/kube-certificates.ts';
import { serverTls, startTlsRedis, type TlsRedis } from '../harness/redis-tls.ts';
import { startSentinel } from '../harness/sentinel.ts';
import { until } from '../harness/until.ts';

describe('parseRedisUrl', () => {
  for (const [url, read] of [
    ['redis://127.0.0.1', { host: '127.0.0.1', port: 6379 }],
    [
      'redis://:p%40ss%2Fw%3Ard@redis.example:6380/3',
      { host: 'redis.example', port: 6380, password: 'p@ss/w:rd', db: 3 },
    ],
    ['redis://user:pw@[::1]:6379', { host: '::1', port: 6379, username: 'user', password: 'pw' }],
    ['unix:///run/redis.sock', { path: '/run/redis.sock' }],
    [
      'rediss://redis.example',
      { host: 'redis.example', port: 6379, tls: { servername: 'redis.example' } },
    ],
    // The name of a TLS server can be no IP address.
    ['rediss://10.0.0.1', { host: '10.0.0.1', port: 6379, tls: {} }],
    ['rediss://[::1]', { host: '::1', port: 6379, tls: {} }],
    [
      'redis-sentinel://:pw@a:26379,[::1],c:1/main/2',
      {
        sentinels: [
          { host: 'a', port: 26_379 },
          { host: '::1', port: 26_379 },
          { host: 'c', port: 1 },
        ],
        name: 'main',
        password: 'pw',
        db: 2,
      },
    ],
  ] as const)
    it(`reads ${url}`, () => assert.deepEqual(parseRedisUrl(url), read));

  it('answers an unreadable URL with the accepted forms, without repeating the password', () => {
    for (const url of [
      '',
      'localhost:6379',
      'http://u:hidden@x',
      'redis://:hidden@',
      'redis://:hidden@x/db',
      'redis://:hidden%@x',
      'redis://:hidden@x?a=b',
      'redis-sentinel://:hidden@a',
    ]) {
      assert.throws(
        () => parseRedisUrl(url),
        (error) =>
          error instanceof UsageError &&
          error.message.startsWith('--redis-url') &&
          !error.message.includes('hidden'),
        url,
      );
    }
  });
});

describe('redisAddress', () => {
  it('names host and port without user or password', () => {
    assert.equal(redisAddress(parseRedisUrl('redis://u:hidden@h:1/2')), 'h:1');
    assert.equal(redisAddress(parseRedisUrl('redis://[::1]')), '[::1]:6379');
    assert.equal(
      redisAddress(parseRedisUrl('redis-sentinel://u:hidden@a:1,b:2/main')),
      'a:1,b:2/main',
    );
  });
});

/** The UsageError that a URL is refused with. */
function refusalOf(url: string, access: Partial<RedisAccess> = {}): string {
  try {
    redisSettings(url, { ...DEFAULT_ACCESS, ...access });
    return '';
  } catch (error) {
    assert.ok(error instanceof UsageError);
    return error.message;
  }
}

describe('redisSettings', () => {
  for (const url of [
    'redis://:hidden@redis.example',
    'redis://:hidden@10.0.0.1:6379/1',
    'redis://:hidden@[fd00::1]',
    'redis-sentinel://:hidden@127.0.0.1,10.0.0.1/main',
  ])
    it(`refuses plaintext beyond loopback: ${url}`, () => {
      const refusal = refusalOf(url);
      assert.match(refusal, /--redis-url.*rediss:\/\/.*--redis-tls-ca.*--redis-insecure/);
      assert.ok(!refusal.includes('hidden'));
      assert.equal(refusalOf(url, { redisInsecure: true }), '');
    });

  for (const url of [
    'redis://127.0.0.1',
    'redis://localhost:6379',
    'redis://[::1]:6379',
    'unix:///run/redis.sock',
    'redis-sentinel://127.0.0.1:1,localhost:2/main',
    'rediss://redis.example',
    'rediss-sentinel://redis.example/main',
  ])
    it(`takes ${url} without a flag`, () => assert.equal(refusalOf(url), ''));

  it('refuses TLS flags for a URL without TLS', () => {
    const refusal = refusalOf('redis://127.0.0.1', { redisTlsServerName: 'redis' });
    assert.match(refusal, /--redis-tls-server-name needs TLS.*write rediss:\/\//);
  });

  it('refuses a login for Sentinels where the URL names none', () => {
    assert.match(refusalOf('redis://127.0.0.1', { redisSentinelPassword: 'hidden' }), /names none/);
  });

  it('checks certificates whatever the environment says', () => {
    const { tls } = redisSettings('rediss://redis.example', DEFAULT_ACCESS);
    assert.equal(tls?.rejectUnauthorized, true);
    assert.equal(tls.servername, 'redis.example');
  });
});

describe('openRedisAccess', () => {
  const open = (...argv: readonly string[]): Promise<RedisAccess> => {
    const parsed = parseFlags(redisAccessFlags, { argv, env: {} });
    assert.ok(parsed.kind === 'run');
    const context = { closers: new Closers(), health: new HealthChecks(), log: silentLog };
    return openRedisAccess({ ...context, flags: parsed.flags });
  };

  it('names the missing half of a client certificate', async () => {
    await assert.rejects(open('--redis-tls-cert=/tmp/x'), /--redis-tls-key is missing/);
    await assert.rejects(open('--redis-tls-key=/tmp/x'), /--redis-tls-cert is missing/);
  });

  it('names a file that can’t be read', async () => {
    await assert.rejects(open('--redis-tls-ca=/no/such.pem'), /--redis-tls-ca \/no\/such.pem/);
  });
});

describe('a Redis with TLS', () => {
  let redis: TlsRedis;
  let access: RedisAccess;
  const links: RedisLink[] = [];
  const open = (url: string, how: RedisAccess = DEFAULT_ACCESS): RedisLink => {
    const link = openRedis({ url, access: how, role: 'plain', log: silentLog });
    links.push(link);
    return link;
  };
  const isUsable = (link: RedisLink): Promise<void> =>
    until(() => link.trouble === undefined, 'connected');
  const reports = (link: RedisLink, line: RegExp): Promise<void> =>
    until(() => line.test(link.trouble ?? ''), `${line} is reported`);
  before(async () => {
    redis = await startTlsRedis();
    access = await redis.access({ ca: redis.authority.caFile });
  });
  after(async () => {
    for (const link of links) link.close();
    await redis.close();
  });

  it('is used', () => isUsable(open(redis.url(), access)));

  it('with an authority that is not known here is refused, and the flag is named', async () => {
    await reports(open(redis.url()), /^Redis at 127.*--redis-tls-ca$/);
  });

  it('may send an alert to a connection that has refused it', async () => {
    const { redis: client } = open(redis.url());
    const [error] = await once(client, 'error');
    // As Node does with an alert that comes before the socket is closed.
    client.stream.emit('error', error);
  });

  it('whose certificate has another name is refused, unless a flag gives that name', async () => {
    const url = redis.url('127.0.0.2');
    await reports(open(url, access), /127\.0\.0\.2.*--redis-tls-server-name/);
    for (const name of ['localhost', '127.0.0.1'])
      await isUsable(open(url, { ...access, redisTlsServerName: name }));
    await reports(open(url, { ...access, redisTlsServerName: 'other.example' }), /other\.example/);
  });

  it('is used as soon as a replaced file names its authority', async () => {
    const other = join(redis.folder, 'other');
    await mkdir(other);
    const { caFile } = createAuthority(other, 'other');
    const link = open(redis.url(), await redis.access({ ca: caFile }));
    await reports(link, /--redis-tls-ca/);
    await copyFile(redis.authority.caFile, caFile);
    await isUsable(link);
  });

  it('whose refused certificate is reported once, not at each attempt', async () => {
    const lines: string[] = [];
    const write = (line: string): void => void lines.push(line);
    const log = createLogger({ name: 'test', verbosity: 4, format: 'text', write });
    const link = openRedis({ url: redis.url(), role: 'plain', log });
    let attempts = 0;
    link.redis.on('close', () => (attempts += 1));
    await until(() => attempts >= 3, 'three attempts');
    link.close();
    assert.equal(lines.length, 1, lines.join(''));
  });

  it('that asks for a client certificate refuses one without, and the flags are named', async (t) => {
    const asking = await startTlsRedis({ asksForCertificate: true });
    t.after(() => asking.close());
    const ca = asking.authority.caFile;
    const link = open(asking.url(), await asking.access({ ca }));
    await reports(link, /--redis-tls-cert and --redis-tls-key/);
    const { certFile: cert, keyFile: key } = asking.authority.client('jobs');
    await isUsable(open(asking.url(), await asking.access({ ca, cert, key })));
  });

  describe('behind Sentinels with TLS and a login', () => {
    let url: string;
    const login = { redisSentinelUsername: 'finder', redisSentinelPassword: 'found' };
    before(async () => {
      const port = await openSentinel((tlsPort) => [
        // Without TLS it does not listen at all.
        'port 0',
        `tls-port ${tlsPort}`,
        'tls-auth-clients no',
        'tls-replication yes',
        'user finder on >found +@all',
        'requirepass unused',
      ]);
      url = `rediss-sentinel://:${redis.password}@127.0.0.1:${port}/main`;
    });

    it('is used', () => isUsable(open(url, { ...access, ...login })));

    it('is not found with a wrong or missing login, and the flags are named', async () => {
      for (const given of [{ ...login, redisSentinelPassword: 'hidden' }, {}]) {
        const link = open(url, { ...access, ...given });
        await reports(link, /--redis-sentinel-username and --redis-sentinel-password/);
        assert.doesNotMatch(link.trouble ?? '', /hidden/);
      }
    });
  });

  describe('behind Sentinels without TLS', () => {
    let port: number;
    const urlOf = (scheme: string, hosts: string): string =>
      `${scheme}://:${redis.password}@${hosts}/main`;
    before(async () => {
      port = await openSentinel((own) => [`port ${own}`]);
    });

    it('is used if a flag allows that', () => {
      const url = urlOf('rediss-sentinel', `127.0.0.1:${port}`);
      return isUsable(open(url, { ...access, redisSentinelPlaintext: true }));
    });

    it('is found although one of them does not answer', async (t) => {
      const frozen = createServer(() => undefined).listen(0, '127.0.0.1');
      t.after(() => frozen.close());
      await once(frozen, 'listening');
      const { port: first } = frozen.address() as AddressInfo;
      const url = urlOf('rediss-sentinel', `127.0.0.1:${first},127.0.0.1:${port}`);
      await isUsable(open(url, { ...access, redisSentinelPlaintext: true }));
    });

    it('is not used beyond loopback without TLS', async () => {
      const sentinel = new Redis(port, '127.0.0.1');
      await until(async () => (await sentinel.ping()) === 'PONG', 'the Sentinel answers');
      await sentinel.call('SENTINEL', 'REMOVE', 'main');
      // Of TEST-NET-1: nothing answers there, and nothing is sent there.
      await sentinel.call('SENTINEL', 'MONITOR', 'main', '192.0.2.1', '6379', '1');
      sentinel.disconnect();
      const link = open(urlOf('redis-sentinel', `127.0.0.1:${port}`));
      await reports(link, /192\.0\.2\.1 is beyond loopback.*--redis-insecure/);
    });
  });

  async function openSentinel(settings: (port: number) => readonly string[]): Promise<number> {
    const { folder, tlsPort: masterPort, password: masterPassword, closers, authority } = redis;
    const dir = await mkdtemp(join(folder, 'sentinel-'));
    const tls = serverTls(authority, redis.server);
    return startSentinel({
      dir,
      masterPort,
      masterPassword,
      closers,
      settings: (port) => [...settings(port), ...tls],
    });
  }
});
