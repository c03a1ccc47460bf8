import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

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

  it('reports a refused login, without the password, and tries it again', async () => {
    const url = new URL(redis.url);
    url.password = 'mistyped';
    const link = open(url.href);
    await until(() => /WRONGPASS/.test(link.trouble ?? ''), 'the refusal is reported');
    assert.match(link.trouble ?? '', /WRONGPASS.*--redis-url/);
    assert.ok(!(link.trouble ?? '').includes('mistyped'));
    url.password = '';
    const anonymous = open(url.href);
    await until(() => /NOAUTH/.test(anonymous.trouble ?? ''), 'a missing password is reported');
    await redis.redis.config('SET', 'requirepass', 'mistyped');
    await until(() => link.trouble === undefined, 'the login is tried again');
    await redis.redis.config('SET', 'requirepass', decodeURIComponent(new URL(redis.url).password));
  });

  it('connects again to a replica, in order to find the master', async () => {
    const link = open(redis.url);
    let connections = 0;
    link.onReady(() => (connections += 1));
    await until(() => link.trouble === undefined, 'connected');
    await redis.redis.replicaof('127.0.0.1', 1);
    await assert.rejects(link.redis.set('k', 'v'), /READONLY/);
    await until(() => connections === 2, 'it reconnects');
    await redis.redis.replicaof('NO', 'ONE');
  });

  it('reports the address where nothing listens', async () => {
    const link = open('redis://127.0.0.1:1');
    await until(
      () => /127\.0\.0\.1:1 can't be reached \(ECONNREFUSED\)/.test(link.trouble ?? ''),
      'the refusal is reported',
    );
  });

  it('closes at once, whether Redis is there or not', async () => {
    const link = open('redis://127.0.0.1:1');
    link.close();
    assert.match(link.trouble ?? '', /closed/);
    await assert.rejects(link.redis.get('x'));
  });
});
