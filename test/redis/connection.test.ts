import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';

import {
  checkSettings,
  describeRedisError,
  openRedis,
  redisAddress,
  redisOptions,
} from '#src/redis/connection.ts';
import type { RedisLink } from '#src/redis/connection.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { silentLog } from '#src/runtime/log.ts';

import { until } from '../harness/queue.ts';
import { startTestRedis } from '../harness/redis.ts';
import type { TestRedis } from '../harness/redis.ts';

describe('redisOptions', () => {
  const read = (url: string): object => {
    const { host, port, path, username, password, db, tls, sentinels, name } = redisOptions(
      url,
      'plain',
    );
    return JSON.parse(
      JSON.stringify({ host, port, path, username, password, db, tls, sentinels, name }),
    ) as object;
  };

  it('reads hosts, ports, users, passwords and databases', () => {
    assert.deepEqual(read('redis://127.0.0.1'), { host: '127.0.0.1', port: 6379 });
    assert.deepEqual(read('redis://:p%40ss%2Fw%3Ard@redis.example:6380/3'), {
      host: 'redis.example',
      port: 6380,
      password: 'p@ss/w:rd',
      db: 3,
    });
    assert.deepEqual(read('redis://user:pw@[::1]:6379'), {
      host: '::1',
      port: 6379,
      username: 'user',
      password: 'pw',
    });
    assert.deepEqual(read('unix:///run/redis.sock'), { path: '/run/redis.sock' });
  });

  it('speaks TLS with the host as server name for rediss://', () => {
    assert.deepEqual(read('rediss://redis.example'), {
      host: 'redis.example',
      port: 6379,
      tls: { servername: 'redis.example' },
    });
  });

  it('asks sentinels for the master', () => {
    assert.deepEqual(read('redis-sentinel://:pw@a:26379,[::1],c:1/main/2'), {
      sentinels: [
        { host: 'a', port: 26_379 },
        { host: '::1', port: 26_379 },
        { host: 'c', port: 1 },
      ],
      name: 'main',
      password: 'pw',
      db: 2,
    });
  });

  it('refuses what it cannot read with the forms it knows, never repeating the password', () => {
    for (const url of [
      '',
      'localhost:6379',
      'http://u:geheim@x',
      'redis://:geheim@',
      'redis://:geheim@x/db',
      'redis://:geheim%@x',
      'redis://:geheim@x?a=b',
      'redis-sentinel://:geheim@a',
    ]) {
      assert.throws(
        () => redisOptions(url, 'plain'),
        (error) =>
          error instanceof UsageError &&
          error.message.startsWith('--redis-url') &&
          !error.message.includes('geheim'),
        url,
      );
    }
  });

  it('lets a worker wait for Redis and everybody else hear soon that it is away', () => {
    assert.equal(redisOptions('redis://x', 'worker').maxRetriesPerRequest, null);
    // A limit on commands would also cut the worker's blocking read of ten seconds.
    assert.equal(redisOptions('redis://x', 'worker').commandTimeout, undefined);
    assert.equal(redisOptions('redis://x', 'producer').maxRetriesPerRequest, 1);
    assert.equal(redisOptions('redis://x', 'plain').commandTimeout, 5000);
  });

  it('names the place without user or password', () => {
    assert.equal(redisAddress(redisOptions('redis://u:geheim@h:1/2', 'plain')), 'h:1');
    assert.equal(
      redisAddress(redisOptions('redis-sentinel://u:geheim@a:1,b:2/main', 'plain')),
      'a:1,b:2/main',
    );
  });
});

describe('openRedis', () => {
  let redis: TestRedis;
  const links: RedisLink[] = [];
  const open = (url: string): RedisLink => {
    const link = openRedis({ url, role: 'plain', log: silentLog });
    links.push(link);
    return link;
  };
  before(async () => {
    redis = await startTestRedis();
  });
  after(async () => {
    for (const link of links) link.close();
    await redis.close();
  });

  it('has no trouble once connected, and tells the first connection from later ones', async () => {
    const link = open(redis.url);
    const seen: boolean[] = [];
    link.onReady((first) => seen.push(first));
    assert.match(link.trouble ?? '', /not connected yet/);
    await until(() => link.trouble === undefined, 'connected');
    await redis.kill();
    await until(() => link.trouble !== undefined, 'the loss is seen');
    assert.match(link.trouble ?? '', /^Redis at 127\.0\.0\.1:\d+/);
    await redis.start();
    await until(() => link.trouble === undefined, 'connected again');
    assert.deepEqual(seen, [true, false]);
  });

  it('says that the login is refused, without the password, and waits for it to be right', async () => {
    const url = new URL(redis.url);
    url.password = 'falsch';
    const link = open(url.href);
    await until(() => /refuses the login/.test(link.trouble ?? ''), 'the refusal is told');
    assert.match(link.trouble ?? '', /WRONGPASS.*--redis-url/);
    assert.ok(!(link.trouble ?? '').includes('falsch'));
    url.password = '';
    const anonymous = open(url.href);
    await until(() => /NOAUTH/.test(anonymous.trouble ?? ''), 'a missing password is told');
    await redis.redis.config('SET', 'requirepass', 'falsch');
    await until(() => link.trouble === undefined, 'the login is tried again');
    await redis.redis.config('SET', 'requirepass', decodeURIComponent(new URL(redis.url).password));
  });

  it('says that nobody listens, and where', async () => {
    const link = open('redis://127.0.0.1:1');
    await until(
      () => /127\.0\.0\.1:1 can't be reached \(ECONNREFUSED\)/.test(link.trouble ?? ''),
      'the refusal is told',
    );
  });

  it('is closed at once, Redis or not', async () => {
    const link = open('redis://127.0.0.1:1');
    link.close();
    assert.match(link.trouble ?? '', /closed/);
    await assert.rejects(link.redis.get('x'));
  });
});

describe('describeRedisError', () => {
  it('keeps the words of a Redis that is full or read-only', () => {
    assert.match(
      describeRedisError(
        'h:1',
        new Error("OOM command not allowed when used memory > 'maxmemory'."),
      ),
      /OOM command not allowed/,
    );
    assert.match(
      describeRedisError('h:1', new Error("READONLY You can't write against a read only replica.")),
      /READONLY/,
    );
  });
});

describe('checkSettings', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());

  it('finds nothing wrong with the Redis that sutler starts', async () => {
    assert.deepEqual(await checkSettings(redis.redis), []);
  });

  it('names eviction and a missing append-only file, each with its fix', async () => {
    await redis.redis.config('SET', 'maxmemory-policy', 'allkeys-lru');
    await redis.redis.config('SET', 'appendonly', 'no');
    const problems = await checkSettings(redis.redis);
    assert.equal(problems.length, 2);
    assert.match(
      problems[0] ?? '',
      /maxmemory-policy allkeys-lru.*set maxmemory-policy noeviction/,
    );
    assert.match(problems[1] ?? '', /append-only.*set appendonly yes/);
  });

  it('names a version that is too old', async () => {
    const info = (): Promise<string> =>
      Promise.resolve('redis_version:6.0.16\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n');
    assert.deepEqual(await checkSettings({ info }), [
      'Redis 6.0.16 is too old: upgrade to 6.2 or later',
    ]);
  });

  it('says that it could not check where INFO is forbidden or silent', async () => {
    const info = (): Promise<string> =>
      Promise.reject(new Error('NOPERM no permissions to run INFO'));
    const [problem = ''] = await checkSettings({ info });
    assert.match(problem, /^could not check.*NOPERM/);
    assert.equal((await checkSettings({ info: () => Promise.resolve('') })).length, 3);
  });
});
