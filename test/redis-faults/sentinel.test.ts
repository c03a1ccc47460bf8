import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { Closers } from '#src/runtime/closers.ts';
import { claimKey, QueueBench, sleep } from '../harness/queue.ts';
import { startRedisServer } from '../harness/redis-server.ts';
import { startSentinel } from '../harness/sentinel.ts';
import { until } from '../harness/until.ts';

describe('a failover by Sentinel', () => {
  it('loses no key and runs none twice at a time, and no process is restarted', async (t) => {
    const closers = new Closers();
    try {
      const { master, reader, redisUrl } = await startReplicated(closers);
      const bench = new QueueBench({ url: redisUrl }, 'failover.example');
      closers.add('bench', () => bench.close());
      const producer = bench.producer({ redisUrl });
      const consumer = bench.consumer(() => sleep(60).then(() => ({ kind: 'done' })), {
        redisUrl,
        lockMs: 1_500,
      });
      const troubles = (): string => `${producer.trouble ?? ''}${consumer.trouble ?? ''}`;
      const keys = Array.from({ length: 55 }, (_, i) => claimKey(`c${i}`));
      const addKeys = async (): Promise<void> => {
        for (const key of keys) {
          producer.ensureQueued(key);
          await sleep(20);
        }
      };
      const added = addKeys();
      await until(() => bench.runs.length > 3, 'the first runs');
      await master.close(0);
      const killedMs = Date.now();
      await until(() => troubles() !== '', 'trouble is reported');
      await until(
        async () => /role:master/.test(await reader.info('replication')),
        'the replica is the master now',
      );
      const failedOverMs = Date.now();
      await added;
      // As the leader does when Redis is back: a replica may lack the last moments.
      for (const key of keys) if (bench.runsOf(key).length === 0) producer.ensureQueued(key);
      const isDone = (): boolean => keys.every((key) => bench.runsOf(key).length > 0);
      await until(isDone, `all keys: ${troubles()}`);
      t.diagnostic(
        `failed over after ${failedOverMs - killedMs} ms, ` +
          `done ${Date.now() - failedOverMs} ms later`,
      );
      assert.deepEqual(bench.doubles, []);
      await until(() => troubles() === '', 'nothing is wrong any more', 30_000);
    } finally {
      await closers.close();
    }
  });
});

/** A master, a replica and a Sentinel. */
async function startReplicated(closers: Closers) {
  const dir = await mkdtemp(join(tmpdir(), 'sutler-sentinel-'));
  closers.add('folder', () => rm(dir, { recursive: true, force: true }));
  const master = await startRedisServer({ dataDir: join(dir, 'a') });
  closers.add('master', () => master.close(0));
  const password = decodeURIComponent(new URL(master.url).password);
  const replica = await startRedisServer({
    dataDir: join(dir, 'b'),
    password,
    settings: [`masterauth ${password}`],
  });
  closers.add('replica', () => replica.close(0));
  const reader = new Redis(replica.url);
  closers.add('connection', () => reader.disconnect());
  await reader.replicaof('127.0.0.1', master.port);
  await until(
    async () => /master_link_status:up/.test(await reader.info('replication')),
    'the replica has its data',
  );
  const port = await startSentinel({
    dir,
    masterPort: master.port,
    masterPassword: password,
    closers,
  });
  await waitForReplica(port, closers);
  const redisUrl = `redis-sentinel://:${password}@127.0.0.1:${port}/main`;
  return { master, reader, redisUrl };
}

async function waitForReplica(port: number, closers: Closers): Promise<void> {
  const sentinel = new Redis(port, '127.0.0.1', {
    retryStrategy: () => 50,
    maxRetriesPerRequest: null,
  });
  sentinel.on('error', () => undefined);
  closers.add('connection to Sentinel', () => sentinel.disconnect());
  await until(async () => {
    const replicas = (await sentinel.call('SENTINEL', 'replicas', 'main')) as readonly unknown[];
    return replicas.length === 1;
  }, 'Sentinel knows the replica');
}
