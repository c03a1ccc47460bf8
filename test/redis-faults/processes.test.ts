import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { sleep } from '../harness/queue.ts';
import { until } from '../harness/until.ts';
import { Processes } from './processes.ts';

describe('ingest and jobs', () => {
  let processes: Processes;
  before(async () => {
    processes = await Processes.open({
      flags: ['--timeout=1s', '--write-allowance=1s'],
      jobsFlags: ['--retry-interval-start=50ms'],
      prepare: async ({ redis }) => {
        await redis.set('{csi}:cluster', 'uid-of-another-cluster');
      },
    });
  });
  after(() => processes.close());

  const readiness = async ({ url }: { readonly url: string }): Promise<string> =>
    (await fetch(`${url}/readyz`)).text();
  const isReady = async ({ url }: { readonly url: string }): Promise<boolean> =>
    (await fetch(`${url}/readyz`)).status === 200;

  it('wait while Redis belongs to another cluster, and report it', async () => {
    const { redis, kube, ingest, jobs } = processes;
    const claim = await processes.newClaim();
    for (const process of [ingest, jobs]) {
      await until(async () => /redis-cluster/.test(await readiness(process)), 'it is reported');
      await until(
        async () => /belongs to another cluster.*--redis-prefix/.test(await readiness(process)),
        'with the fix',
      );
      assert.match(
        process.output.join(''),
        /this Redis belongs to another cluster: nothing is done with it/,
      );
      assert.equal((await fetch(`${process.url}/healthz`)).status, 200);
    }
    await sleep(500);
    assert.deepEqual(await redis.redis.keys('{csi}:claims*:default*'), [], 'nothing is enqueued');
    assert.deepEqual(await redis.redis.keys('{csi}:blessing*'), []);
    assert.deepEqual(
      (await kube.list<Lease>(leases, { namespace: 'default' })).items,
      [],
      'no process leads',
    );
    assert.equal((await fetch(`${ingest.url}/healthz/leader-election`)).status, 200);
    assert.equal((await fetch(`${jobs.url}/healthz/progress`)).status, 200);
    await redis.redis.del('{csi}:cluster');
    await until(() => processes.isBound(claim), 'the claim is bound');
    for (const process of [ingest, jobs]) await until(() => isReady(process), 'it is ready');
    assert.notEqual(await redis.redis.get('{csi}:cluster'), null);
  });

  it('mark Redis again after a flush, and go on', async () => {
    const { redis } = processes;
    const owner = await redis.redis.get('{csi}:cluster');
    await redis.redis.flushall();
    const claim = await processes.newClaim();
    await until(() => processes.isBound(claim), 'the claim is bound');
    assert.equal(await redis.redis.get('{csi}:cluster'), owner);
  });

  it('report on /readyz that Redis is away, and are ready when it is back', async () => {
    const { redis, ingest, jobs } = processes;
    await redis.kill();
    for (const process of [ingest, jobs]) {
      await until(
        async () =>
          /redis: Redis at [^ ]+( can't be reached|: connection lost)/.test(
            await readiness(process),
          ),
        'it is reported',
      );
      assert.equal((await fetch(`${process.url}/healthz`)).status, 200);
    }
    const claim = await processes.newClaim();
    await redis.start();
    for (const process of [ingest, jobs]) await until(() => isReady(process), 'it is ready');
    await until(() => processes.isBound(claim), 'the claim is bound');
  });
});
