import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ProcessBed } from '../harness/process-bed.ts';
import { isReady, readiness } from '../harness/run-main.ts';
import { startTestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const NO_AOF = ['appendonly no'];

describe('a Redis without an append-only file', { concurrency: true }, () => {
  it('keeps jobs from being ready, and ingest not', async () => {
    const bed = await ProcessBed.open({ settings: NO_AOF });
    const ingest = await bed.startIngest();
    const jobs = await bed.startJobs();
    await until(() => isReady(ingest), 'ingest is ready');
    await until(
      async () => /redis-aof.*--claim-finalizer.*--redis-without-aof/.test(await readiness(jobs)),
      'jobs name both ways out',
    );
    assert.equal(await isReady(jobs), false);
    await bed.close();
  });

  for (const flag of ['--claim-finalizer', '--redis-without-aof'])
    it(`lets jobs be ready with ${flag}`, async () => {
      const bed = await ProcessBed.open({ settings: NO_AOF });
      await bed.startIngest();
      const jobs = await bed.startJobs(flag);
      await until(() => isReady(jobs), 'jobs are ready');
      await until(() => jobs.output.join('').includes('no append-only file'), 'they say why not');
      await bed.close();
    });
});

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
