import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { checkSettings } from '#src/redis/settings.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

const ALL_RIGHT = { wrong: [], unknown: [], forgets: undefined };

describe('checkSettings', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());

  it('finds no problem in the Redis that sutler starts', async () => {
    assert.deepEqual(await checkSettings(redis.redis), ALL_RIGHT);
  });

  it('names eviction and a missing append-only file, each with its fix', async () => {
    await redis.redis.config('SET', 'maxmemory-policy', 'allkeys-lru');
    await redis.redis.config('SET', 'appendonly', 'no');
    const { wrong, forgets } = await checkSettings(redis.redis);
    assert.equal(wrong.length, 1);
    assert.match(wrong[0] ?? '', /maxmemory-policy allkeys-lru.*set maxmemory-policy noeviction/);
    assert.match(forgets ?? '', /append-only.*set appendonly yes.*--claim-finalizer.*without-aof/);
  });

  it('names a version that is too old', async () => {
    const info = (): Promise<string> =>
      Promise.resolve('redis_version:6.0.16\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n');
    const { wrong } = await checkSettings({ info });
    assert.deepEqual(wrong, ['Redis 6.0.16 is too old: upgrade to 6.2 or later']);
  });

  it('reports that it could not check where INFO is forbidden or empty', async () => {
    const info = (): Promise<string> =>
      Promise.reject(new Error('NOPERM no permissions to run INFO'));
    const [problem = ''] = (await checkSettings({ info })).wrong;
    assert.match(problem, /^could not check.*NOPERM/);
    const { wrong, unknown } = await checkSettings({ info: () => Promise.resolve('') });
    assert.deepEqual([wrong.length, unknown.length], [0, 2]);
  });

  it('finds nothing wrong where Redis does not answer in time', async () => {
    const info = (): Promise<string> => Promise.reject(new Error('Command timed out'));
    await assert.rejects(checkSettings({ info }), /timed out/);
  });

  it('names cluster mode, which is not supported', async () => {
    const cluster = await startTestRedis({ settings: ['cluster-enabled yes'] });
    const { wrong } = await checkSettings(cluster.redis);
    await cluster.close();
    assert.match(
      wrong.join(),
      /cluster mode: Redis Cluster is not supported: name a Redis without/,
    );
  });
});
