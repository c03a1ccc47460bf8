import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { watchSettings } from '#src/redis/settings-watch.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('watchSettings', () => {
  let redis: TestRedis;
  let link: RedisLink;
  before(async () => {
    redis = await startTestRedis();
    link = openRedis({ url: redis.url, role: 'plain', log: silentLog });
  });
  after(async () => {
    link.close();
    await redis.close();
  });

  it('reports settings of Redis that risk volumes until they are corrected', async () => {
    await redis.redis.config('SET', 'maxmemory-policy', 'allkeys-lru');
    const watch = watchSettings(link, silentLog);
    await until(() => /noeviction/.test(watch.trouble ?? ''), 'the setting is reported');
    await redis.redis.config('SET', 'maxmemory-policy', 'noeviction');
    await until(() => watch.trouble === undefined, 'the correction is noticed');
    watch.close();
  });

  it('asks each 15 s while only the append-only file is missing', async () => {
    await redis.redis.config('SET', 'appendonly', 'no');
    let sleptMs: number | undefined;
    const watch = watchSettings(link, silentLog, {
      ...systemClock,
      sleep: (ms, signal) => {
        if (watch.forgets !== undefined) sleptMs ??= ms;
        return systemClock.sleep(ms, signal);
      },
    });
    await link.redis.ping();
    await until(() => sleptMs !== undefined, 'the settings were checked');
    watch.close();
    assert.equal(sleptMs, 15_000);
  });
});
