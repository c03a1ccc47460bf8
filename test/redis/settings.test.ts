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

  for (const [what, text, problem] of [
    [
      'a version that is too old',
      'redis_version:6.2.14',
      'Redis 6.2.14 is too old: upgrade to 7.0',
    ],
    ['cluster mode', 'redis_mode:cluster', 'cluster mode: Redis Cluster is not supported: name a'],
  ] as const)
    it(`names ${what}`, async () => {
      const info = () => Promise.resolve(`${text}\r\nmaxmemory_policy:noeviction\r\n`);
      const wrong = await checkSettings({ info });
      assert.equal(wrong.length, 1);
      assert.ok(wrong[0]?.includes(problem), wrong[0]);
    });

  it('takes a setting for right that a managed service does not tell', async () => {
    assert.deepEqual(await checkSettings({ info: () => Promise.resolve('') }), []);
  });

  it('reports that it could not check where INFO is forbidden, but not for want of time', async () => {
    const refused = (text: string) =>
      checkSettings({ info: () => Promise.reject(new Error(text)) });
    const [problem = ''] = await refused('NOPERM no permissions to run INFO');
    assert.match(problem, /^could not check.*NOPERM/);
    await assert.rejects(refused('Command timed out'), /timed out/);
  });
});
