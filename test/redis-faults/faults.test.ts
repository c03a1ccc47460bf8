import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { JOB_KINDS } from '#src/queue/contract.ts';
import { queueName } from '#src/queue/queue-keys.ts';
import { listQueues } from '#src/queue/queues.ts';
import { sleep } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { TestBed } from './test-bed.ts';
import { until } from '../harness/until.ts';

interface Fault {
  readonly what: string;
  readonly inject: (redis: TestRedis) => Promise<unknown>;
  /** What /readyz reports meanwhile; absent where the fault ends too soon for a check. */
  readonly trouble?: RegExp;
  readonly logged: RegExp;
  readonly repair?: (redis: TestRedis) => Promise<unknown>;
  readonly durationMs: number;
}

const FAULTS: readonly Fault[] = [
  {
    what: 'killed and started with its file',
    inject: (redis) => redis.kill(),
    trouble: /can't be reached|connection lost/,
    logged: /Redis is not usable/,
    repair: (redis) => redis.start(),
    durationMs: 800,
  },
  {
    what: 'killed and started empty',
    inject: (redis) => redis.kill(),
    trouble: /can't be reached|connection lost/,
    logged: /Redis was emptied/,
    repair: (redis) => redis.startEmpty(),
    durationMs: 300,
  },
  {
    what: 'flushed',
    inject: (redis) => redis.redis.flushall(),
    // Two parts report it, in either order.
    logged: /(?=[\s\S]*WARN.*: Redis was emptied)(?=[\s\S]*volume records may be lost)/,
    durationMs: 0,
  },
  {
    what: 'frozen',
    inject: (redis) => Promise.resolve(redis.freeze()),
    trouble: /has not answered for \d+ s/,
    logged: /Redis does not answer/,
    repair: (redis) => Promise.resolve(redis.thaw()),
    durationMs: 4000,
  },
  {
    what: 'out of memory',
    inject: (redis) => redis.redis.config('SET', 'maxmemory', '1mb'),
    trouble: /OOM.*raise maxmemory/,
    logged: /OOM/,
    repair: (redis) => redis.redis.config('SET', 'maxmemory', '0'),
    durationMs: 1500,
  },
  {
    what: 'made a read-only replica',
    inject: (redis) => redis.redis.replicaof('127.0.0.1', 1),
    trouble: /READONLY.*name the master/,
    logged: /READONLY/,
    repair: (redis) => redis.redis.replicaof('NO', 'ONE'),
    durationMs: 1500,
  },
  {
    what: 'given another password',
    inject: async (redis) => {
      await redis.redis.config('SET', 'requirepass', 'another');
      await redis.redis
        .call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no')
        .catch(() => undefined);
    },
    trouble: /refuses the login \(WRONGPASS\).*REDIS_URL/,
    logged: /refuses the login/,
    repair: async (redis) => {
      const admin = new Redis(redis.port, '127.0.0.1', { password: 'another' });
      await admin.config('SET', 'requirepass', decodeURIComponent(new URL(redis.url).password));
      admin.disconnect();
    },
    durationMs: 800,
  },
];

// Side by side, because they wait most of the time; each has its own Redis.
describe('a Redis that is', { concurrency: true }, () => {
  for (const { what, inject, trouble, logged, repair, durationMs } of FAULTS) {
    it(`${what}: nothing is lost or called twice, and work goes on by itself`, async (t) => {
      const redis = await startTestRedis();
      const driver = 'f.example';
      const testBed = new TestBed(redis, driver);
      try {
        await testBed.addClaims(15, 10);
        await until(() => testBed.volumes.size > 3, 'the first volumes');
        const rest = testBed.addClaims(25, 10);
        await inject(redis);
        const injectedMs = Date.now();
        if (trouble !== undefined)
          await until(
            () => trouble.test(testBed.troubles),
            `trouble like ${String(trouble)}, not: ${testBed.troubles}`,
            30_000,
          );
        const reportedMs = Date.now() - injectedMs;
        await sleep(Math.max(0, durationMs - reportedMs));
        await repair?.(redis);
        const repairedMs = Date.now();
        await rest;
        await until(() => testBed.isDone, `all volumes; ${testBed.troubles}`, 12_000).catch(
          (error: unknown) => {
            throw new Error(
              `${testBed.volumes.size} of ${testBed.keys.length}; ${testBed.troubles}\n` +
                testBed.log.slice(-15).join(''),
              { cause: error },
            );
          },
        );
        t.diagnostic(
          `reported after ${reportedMs} ms, done ${Date.now() - repairedMs} ms after the repair`,
        );
        await until(() => /^[ |]*$/.test(testBed.troubles), 'nothing is wrong any more', 30_000);
        assert.deepEqual(testBed.doubleCalls, []);
        assert.deepEqual(
          [...testBed.calls].filter(([, calls]) => calls > 1),
          [],
        );
        assert.match(testBed.log.join(''), logged);
        const ownQueues = (await listQueues(redis.redis, 'csi')).filter(
          (queue) => queue.driver === driver,
        );
        assert.equal(ownQueues.length, JOB_KINDS.length - 1, 'the queues are registered');
        assert.equal(
          await redis.redis.hget(`{csi}:${queueName('claim', driver)}:meta`, 'opts.maxLenEvents'),
          '5000',
        );
      } finally {
        await testBed.close();
        await redis.close();
      }
    });
  }
});
