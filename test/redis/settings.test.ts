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

  it('reports that it could not check where INFO is forbidden or empty', async () => {
    const info = (): Promise<string> =>
      Promise.reject(new Error('NOPERM no permissions to run INFO'));
    const [problem = ''] = await checkSettings({ info });
    assert.match(problem, /^could not check.*NOPERM/);
    assert.equal((await checkSettings({ info: () => Promise.resolve('') })).length, 3);
  });
});
