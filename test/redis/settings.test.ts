import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { checkSettings } from '#src/redis/settings.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

describe('checkSettings', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());

  it('finds no problem in the Redis that sutler starts', async () => {
    assert.deepEqual(await checkSettings(redis.redis), []);
  });

  it('names eviction, with its fix, and accepts a Redis that writes nothing to disk', async () => {
    await redis.redis.config('SET', 'maxmemory-policy', 'allkeys-lru');
    await redis.redis.config('SET', 'appendonly', 'no');
    const wrong = await checkSettings(redis.redis);
    assert.equal(wrong.length, 1);
    assert.match(wrong[0] ?? '', /maxmemory-policy allkeys-lru.*set maxmemory-policy noeviction/);
  });

  it('names a version that is too old', async () => {
    const info = (): Promise<string> =>
      Promise.resolve('redis_version:6.2.14\r\nmaxmemory_policy:noeviction\r\n');
    const wrong = await checkSettings({ info });
    assert.deepEqual(wrong, ['Redis 6.2.14 is too old: upgrade to 7.0 or later']);
  });

  it('reports that it could not check where INFO is forbidden', async () => {
    const info = (): Promise<string> =>
      Promise.reject(new Error('NOPERM no permissions to run INFO'));
    const [problem = ''] = await checkSettings({ info });
    assert.match(problem, /^could not check.*NOPERM/);
  });

  it('takes a setting for right that a managed service does not tell', async () => {
    assert.deepEqual(await checkSettings({ info: () => Promise.resolve('') }), []);
  });

  it('finds nothing wrong where Redis does not answer in time', async () => {
    const info = (): Promise<string> => Promise.reject(new Error('Command timed out'));
    await assert.rejects(checkSettings({ info }), /timed out/);
  });

  it('names cluster mode, which is not supported', async () => {
    const cluster = await startTestRedis({ settings: ['cluster-enabled yes'] });
    const wrong = await checkSettings(cluster.redis);
    await cluster.close();
    assert.match(
      wrong.join(),
      /cluster mode: Redis Cluster is not supported: name a Redis without/,
    );
  });
});
