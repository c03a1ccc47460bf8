import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { startRedisServer, type RedisServer } from '#src/redis/server.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { TestBed } from './test-bed.ts';
import { until } from '../harness/until.ts';

describe('a failover by Sentinel', () => {
  it('loses nothing and calls no key twice, and no process is restarted', async (t) => {
    const closers = new Closers();
    try {
      const dir = await mkdtemp(join(tmpdir(), 'sutler-sentinel-'));
      closers.add('folder', () => rm(dir, { recursive: true, force: true }));
      const master = await startRedisServer({ dataDir: join(dir, 'a'), log: silentLog });
      closers.add('master', () => master.close(0));
      const password = decodeURIComponent(new URL(master.url).password);
      const replica = await startRedisServer({
        dataDir: join(dir, 'b'),
        log: silentLog,
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
      const port = await startSentinel({ dir, master, password, closers });

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

/** Starts one Sentinel that decides alone, and quickly. */
async function startSentinel(o: {
  readonly dir: string;
  readonly master: RedisServer;
  readonly password: string;
  readonly closers: Closers;
}): Promise<number> {
  const port = await freePort();
  const file = join(o.dir, 'sentinel.conf');
  const lines = [
    `port ${port}`,
    'bind 127.0.0.1',
    `dir ${o.dir}`,
    `sentinel monitor main 127.0.0.1 ${o.master.port} 1`,
    `sentinel auth-pass main ${o.password}`,
    'sentinel down-after-milliseconds main 500',
    'sentinel failover-timeout main 3000',
  ];
  await writeFile(file, `${lines.join('\n')}\n`);
  const child = spawn('redis-server', [file, '--sentinel'], { stdio: 'ignore' });
  o.closers.add('Sentinel', async () => {
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  const sentinel = new Redis(port, '127.0.0.1', {
    retryStrategy: () => 50,
    maxRetriesPerRequest: null,
  });
  sentinel.on('error', () => undefined);
  o.closers.add('connection to Sentinel', () => sentinel.disconnect());
  await until(async () => {
    const replicas = (await sentinel.call('SENTINEL', 'replicas', 'main')) as readonly unknown[];
    return replicas.length === 1;
  }, 'Sentinel knows the replica');
  return port;
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}
