import assert from 'node:assert/strict';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { sleep } from '../harness/queue.ts';
import type { TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';
import { isReady, ProcessBed, readiness, type Running } from '../harness/process-bed.ts';

interface Refusal {
  /** The error word, and what Redis is. */
  readonly word: string;
  readonly what: string;
  /** What /readyz says to do. */
  readonly fix: RegExp;
  readonly inject: (redis: TestRedis) => Promise<unknown>;
  readonly repair: (redis: TestRedis) => Promise<unknown>;
}

const setting = (name: string, value: string) => (redis: TestRedis) =>
  redis.redis.config('SET', name, value);

/** Changes what ingest and jobs may do; the selectors of their users permit scripts. */
async function changeUsers(redis: TestRedis['redis'], rule: string): Promise<void> {
  for (const user of ['sutler-ingest', 'sutler-jobs'])
    await redis.call('ACL', 'SETUSER', user, rule);
}

/** The snapshot can't be renamed to the name of a folder. */
const snapshotFile = ({ dataDir }: TestRedis): string => join(dataDir, 'dump.rdb');

async function snapshot({ redis }: TestRedis, status: 'ok' | 'err'): Promise<void> {
  await redis.bgsave();
  await until(
    async () => (await redis.info('persistence')).includes(`rdb_last_bgsave_status:${status}`),
    `the snapshot ends with ${status}`,
  );
}

const REFUSALS: readonly Refusal[] = [
  {
    word: 'MISCONF',
    what: 'can’t save its snapshot',
    fix: /check its disk/,
    inject: async (redis) => {
      await redis.redis.config('SET', 'save', '3600 1');
      await rm(snapshotFile(redis), { force: true });
      await mkdir(snapshotFile(redis));
      await snapshot(redis, 'err');
    },
    repair: async (redis) => {
      await rm(snapshotFile(redis), { recursive: true });
      await snapshot(redis, 'ok');
    },
  },
  {
    word: 'OOM',
    what: 'is out of memory',
    fix: /raise maxmemory/,
    inject: setting('maxmemory', '1'),
    repair: setting('maxmemory', '0'),
  },
  {
    word: 'READONLY',
    what: 'is a replica',
    fix: /name the master in --redis-url/,
    inject: ({ redis }) => redis.replicaof('127.0.0.1', 1),
    repair: ({ redis }) => redis.replicaof('NO', 'ONE'),
  },
  {
    word: 'MASTERDOWN',
    what: 'is a replica that lost its master',
    fix: /name the master in --redis-url/,
    inject: async (redis) => {
      await redis.redis.config('SET', 'replica-serve-stale-data', 'no');
      await redis.redis.replicaof('127.0.0.1', 1);
    },
    repair: ({ redis }) => redis.replicaof('NO', 'ONE'),
  },
  {
    word: 'NOPERM',
    what: 'forbids scripts',
    fix: /user sutler-(ingest|jobs) may not run a script on \{csi\}:.*: grant its user the missing/,
    inject: ({ redis }) => changeUsers(redis, 'clearselectors'),
    repair: async ({ redis }) => {
      await changeUsers(redis, '(~{csi}:* +eval +evalsha)');
      await redis.call('ACL', 'LOG', 'RESET');
    },
  },
];

/** What one process logged about the refusal, without its time. */
function linesAbout(word: string, output: readonly string[]): string[] {
  return output.filter((line) => line.includes(word)).map((line) => line.replace(/^\S+ /, ''));
}

// Side by side, because they wait most of the time; each has a Redis and processes of its own.
describe('a Redis that', { concurrency: true }, () => {
  for (const { word, what, fix, inject, repair } of REFUSALS)
    describe(`${what} (${word})`, { concurrency: false }, () => {
      let bed: ProcessBed;
      let processes: readonly Running[] = [];
      before(async () => {
        bed = await ProcessBed.open();
      });
      after(() => bed.close());

      /** Waits for the report, then for the end of the refusal.
       * @param before  number of lines that each process had logged before it */
      const goesOn = async (before: readonly number[]): Promise<void> => {
        const output = (i: number): string[] => processes[i]?.output.slice(before[i] ?? 0) ?? [];
        for (const running of processes)
          await until(async () => {
            const text = await readiness(running);
            return text.includes(word) && fix.test(text);
          }, `${word} is reported with its fix`);
        const claim = await bed.newClaim();
        // Everything that asks Redis has done so twice.
        await sleep(4_500);
        for (const i of processes.keys()) {
          const lines = linesAbout(word, output(i));
          assert.ok(lines.length > 0, 'it is logged');
          assert.deepEqual(lines, [...new Set(lines)], 'once for each connection');
          assert.doesNotMatch(output(i).join(''), /connection lost|first=false/, 'nothing else is');
        }
        await repair(bed.redis);
        for (const running of processes) await until(() => isReady(running), 'it is ready');
        await until(() => bed.isBound(claim), 'the claim is bound');
        for (const i of processes.keys())
          assert.match(
            output(i).join(''),
            /Redis (takes again what it is sent|has refused nothing)/,
          );
      };

      it('is named at the first start, and everything goes on when it ends', async () => {
        await inject(bed.redis);
        processes = [await bed.startIngest(), await bed.startJobs()];
        await goesOn([]);
      });

      it('is named later, and everything goes on when it ends', async () => {
        const before = processes.map(({ output }) => output.length);
        await inject(bed.redis);
        await goesOn(before);
      });
    });
});
