import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { Closers } from '#src/runtime/closers.ts';
import { startRedisServer } from '../harness/redis-server.ts';
import { TestBed } from './test-bed.ts';
import { startSentinel } from '../harness/sentinel.ts';
import { until } from '../harness/until.ts';

describe('a failover by Sentinel', () => {
  it('loses nothing and calls no key twice, and no process is restarted', async (t) => {
    const closers = new Closers();
    try {
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

      const testBed = new TestBed(
        { url: `redis-sentinel://:${password}@127.0.0.1:${port}/main` },
        'failover.example',
      );
      closers.add('test bed', () => testBed.close());
      await testBed.addClaims(15, 10);
      await until(() => testBed.volumes.size > 3, 'the first volumes');
      const rest = testBed.addClaims(40, 20);
      await master.close(0);
      const killedMs = Date.now();
      await until(() => testBed.troubles.replaceAll(/[ |]/g, '') !== '', 'trouble is reported');
      await until(
        async () => /role:master/.test(await reader.info('replication')),
        'the replica is the master now',
      );
      const failedOverMs = Date.now();
      await rest;
      await until(() => testBed.isDone, `all volumes: ${testBed.troubles}`);
      t.diagnostic(
        `failed over after ${failedOverMs - killedMs} ms, ` +
          `done ${Date.now() - failedOverMs} ms later`,
      );
      assert.deepEqual(testBed.doubleCalls, []);
      assert.deepEqual(
        [...testBed.calls].filter(([, calls]) => calls > 1),
        [],
      );
      await until(() => /^[ |]*$/.test(testBed.troubles), 'nothing is wrong any more', 30_000);
      assert.match(testBed.log.join(''), /Redis is not usable/);
    } finally {
      await closers.close();
    }
  });
});

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
