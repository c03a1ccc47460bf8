import { after, before, describe, it } from 'node:test';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { watchSettings } from '#src/redis/settings-watch.ts';
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
});
