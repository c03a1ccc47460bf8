import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { openRedis, redisOptions, type RedisLink } from '#src/redis/connection.ts';
import { silentLog } from '#src/runtime/log.ts';
import { until } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

describe('redisOptions', () => {
  it('lets a worker wait for Redis and everybody else hear soon that it is away', () => {
    assert.equal(redisOptions('redis://x', 'worker').maxRetriesPerRequest, null);
    // A limit on commands would also cut the worker's blocking read of ten seconds.
    assert.equal(redisOptions('redis://x', 'worker').commandTimeout, undefined);
    assert.equal(redisOptions('redis://x', 'producer').maxRetriesPerRequest, 1);
    assert.equal(redisOptions('redis://x', 'plain').commandTimeout, 5000);
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
