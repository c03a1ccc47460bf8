import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { JOB_KINDS } from '#src/queue/contract.ts';
import { listQueues } from '#src/queue/registry.ts';
import { sleep, until } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { Stand } from './stand.ts';

interface Fault {
  readonly what: string;
  readonly strike: (redis: TestRedis) => Promise<unknown>;
  /** What /readyz says meanwhile; absent where nothing is wrong any more by the time somebody could
   * read it. */
  readonly told?: RegExp;
  readonly logged: RegExp;
  readonly heal?: (redis: TestRedis) => Promise<unknown>;
  /** How long it lasts. */
  readonly lastsMs: number;
}

const FAULTS: readonly Fault[] = [
  {
    what: 'killed and started with its file',
    strike: (redis) => redis.kill(),
    told: /can't be reached|connection lost/,
    logged: /Redis is not usable/,
    heal: (redis) => redis.start(),
    lastsMs: 800,
  },
  {
    what: 'killed and started empty',
    strike: (redis) => redis.kill(),
    told: /can't be reached|connection lost/,
    logged: /Redis was emptied/,
    heal: (redis) => redis.startEmpty(),
    lastsMs: 300,
  },
  {
    what: 'flushed',
    strike: (redis) => redis.redis.flushall(),
    logged: /Redis was emptied[\s\S]*volume records may be lost/,
    lastsMs: 0,
  },
  {
    what: 'frozen',
    strike: (redis) => Promise.resolve(redis.freeze()),
    told: /has not answered for \d+ s/,
    logged: /Redis does not answer/,
    heal: (redis) => Promise.resolve(redis.thaw()),
    lastsMs: 4000,
  },
  {
    what: 'out of memory',
    strike: (redis) => redis.redis.config('SET', 'maxmemory', '1mb'),
    told: /OOM.*raise maxmemory/,
    logged: /OOM/,
    heal: (redis) => redis.redis.config('SET', 'maxmemory', '0'),
    lastsMs: 1500,
  },
  {
    what: 'made a read-only replica',
    strike: (redis) => redis.redis.replicaof('127.0.0.1', 1),
    told: /READONLY.*name the master/,
    logged: /READONLY/,
    heal: (redis) => redis.redis.replicaof('NO', 'ONE'),
    lastsMs: 1500,
  },
  {
    what: 'given another password',
    strike: async (redis) => {
      await redis.redis.config('SET', 'requirepass', 'another');
      await redis.redis
        .call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'no')
        .catch(() => undefined);
    },
    told: /refuses the login \(WRONGPASS\).*REDIS_URL/,
    logged: /refuses the login/,
    heal: async (redis) => {
      const admin = new Redis(redis.port, '127.0.0.1', { password: 'another' });
      await admin.config('SET', 'requirepass', decodeURIComponent(new URL(redis.url).password));
      admin.disconnect();
    },
    lastsMs: 800,
  },
];

describe('a Redis that is', { concurrency: false }, () => {
  let redis: TestRedis;
  let serial = 0;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());

  for (const { what, strike, told, logged, heal, lastsMs } of FAULTS) {
    it(`${what}: nothing is lost, no key is called twice, and all goes on by itself`, async (t) => {
      serial += 1;
      const driver = `f${serial}.example`;
      const stand = new Stand(redis, driver);
      try {
        await stand.claims(15, 10);
        await until(() => stand.volumes.size > 3, 'the first volumes');
        const rest = stand.claims(25, 10);
        await strike(redis);
        const strikeMs = Date.now();
        if (told !== undefined)
          await until(
            () => told.test(stand.troubles),
            `trouble like ${String(told)}, not: ${stand.troubles}`,
            30_000,
          );
        const toldMs = Date.now() - strikeMs;
        await sleep(Math.max(0, lastsMs - toldMs));
        await heal?.(redis);
        const healedMs = Date.now();
        await rest;
        await until(() => stand.isDone, `all volumes; ${stand.troubles}`, 12_000).catch(
          (error: unknown) => {
            throw new Error(
              `${stand.volumes.size} of ${stand.keys.length}; ${stand.troubles}\n${stand.log.slice(-15).join('')}`,
              {
                cause: error,
              },
            );
          },
        );
        t.diagnostic(
          `told after ${toldMs} ms, done ${Date.now() - healedMs} ms after it was healed`,
        );
        await until(() => /^[ |]*$/.test(stand.troubles), 'nothing is wrong any more', 30_000);
        assert.deepEqual(stand.doubles, []);
        assert.deepEqual(
          [...stand.calls].filter(([, calls]) => calls > 1),
          [],
        );
        assert.match(stand.log.join(''), logged);
        const mine = (await listQueues(redis.redis, 'csi')).filter(
          (queue) => queue.driver === driver,
        );
        assert.equal(mine.length, JOB_KINDS.length, 'the queues are registered');
        assert.equal(
          await redis.redis.hget(`{csi}:claims.${driver}:meta`, 'opts.maxLenEvents'),
          '5000',
        );
      } finally {
        await stand.close();
      }
    });
  }
});
