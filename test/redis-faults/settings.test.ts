import { describe, it } from 'node:test';
import { ProcessBed } from '../harness/process-bed.ts';
import { readiness } from '../harness/run-main.ts';
import { startTestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('a node of a Redis Cluster', () => {
  it('is named as not supported by ingest and jobs, which MOVED would send elsewhere', async () => {
    const settings = ['cluster-enabled yes'];
    const bed = await ProcessBed.open({ settings });
    const other = await startTestRedis({ settings });
    await other.redis.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
    await bed.redis.redis.call('CLUSTER', 'MEET', '127.0.0.1', other.port);
    for (const running of [await bed.startIngest(), await bed.startJobs()])
      await until(async () => {
        const text = await readiness(running);
        return /cluster mode: Redis Cluster is not supported/.test(text) && text.includes('MOVED');
      }, 'it is named');
    await bed.close();
    await other.close();
  });
});
