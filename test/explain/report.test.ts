import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { causeNamed } from '#src/explain/causes.ts';
import type { PendingEntry } from '#src/explain/pending-index.ts';
import { type DriverReport, renderReport, reportDriver } from '#src/explain/report.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { claimKey, QueueBench } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { removeProcess, writeProcess } from '#src/redis/processes.ts';
import { until } from '../harness/until.ts';

describe('a claim whose call is under way', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let driver: string;
  let serial = 0;
  /** End the runs under way, in their order. */
  let ends: ((outcome: Outcome) => void)[];
  const key = claimKey('data');
  const entry: PendingEntry = { key, className: 'gold', sinceMs: Date.now(), why: '' };
  const explained = async () => {
    const { pending } = await reportDriver({ redis: redis.redis, prefix: 'csi', driver }, [entry]);
    return pending[0];
  };

  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(async () => {
    driver = `report-${(serial += 1)}`;
    ends = [];
    bench = new QueueBench(redis, driver);
    bench.producer().ensureQueued(key);
    for (const process of ['ingest', 'jobs'])
      await writeProcess(redis.redis, 'csi', {
        process,
        instance: process,
        version: '1',
        drivers: [driver],
        lines: [],
      });
  });
  afterEach(async () => {
    for (const end of ends) end({ kind: 'done' });
    await bench.close();
  });
  const work = () => bench.consumer(() => new Promise<Outcome>((end) => void ends.push(end)));

  it('is told as running at once', async () => {
    work();
    await until(() => ends.length === 1, 'the first run');
    const { cause, isRunning } = (await explained()) ?? {};
    assert.deepEqual([cause?.name, isRunning], ['Running', true]);
  });

  it('keeps the cause of its last run, and says that another is at work', async () => {
    work();
    await until(() => ends.length === 1, 'the first run');
    ends[0]?.({ kind: 'retry', reason: 'rpc error: code = ResourceExhausted desc = full' });
    await until(() => ends.length === 2, 'the second run');
    const { cause, isRunning } = (await explained()) ?? {};
    assert.deepEqual([cause?.name, isRunning], ['ResourceExhausted', true]);
  });

  it('is not told as running once no worker lives', async () => {
    const worker = work();
    await until(() => ends.length === 1, 'the first run');
    await bench.endProcess(worker, 0);
    await removeProcess(redis.redis, 'csi', 'jobs');
    const { cause, isRunning } = (await explained()) ?? {};
    assert.deepEqual([cause?.name, isRunning], ['NoWorker', false]);
  });
});

describe('a report for people', () => {
  const pending = (object: string, sinceMs: number, sentence: string, isRunning = false) => ({
    kind: 'claim' as const,
    uid: object,
    object,
    className: 'gold',
    driver: 'd.example',
    cause: causeNamed('ResourceExhausted', sentence),
    sinceMs,
    isRunning,
  });
  const report: DriverReport = {
    state: {
      driver: 'd.example',
      processes: [],
      isConfirmed: true,
      otherProvisioner: undefined,
      drain: undefined,
      gateway: '',
      driverTrouble: undefined,
      journal: {},
    },
    cause: undefined,
    isFine: false,
    troubles: [],
    pending: [
      pending('ns/a', 0, 'the pool is full: 7 MiB for ns/a'),
      pending('ns/b', 60_000, 'the pool is full: 8 MiB for ns/b', true),
      pending('ns/c', 120_000, 'the quota is used up'),
    ],
  };
  const linesOf = (isWide: boolean) => renderReport(report, 180_000, isWide).slice(5);
  const step = '(administrator: free or add capacity, or raise the quota of the storage)';

  it('tells a fault once, with its count, its step and its oldest claim', () =>
    assert.deepEqual(linesOf(false), [
      `  2 claims pending: ResourceExhausted, the oldest for 3m, 1 of them running ${step}`,
      '    ns/a and 1 more: the pool is full: 7 MiB for ns/a',
      `  1 claim pending: ResourceExhausted, the oldest for 60s ${step}`,
      '    ns/c: the quota is used up',
    ]));

  it('lists all claims of a fault with -o wide', () =>
    assert.deepEqual(linesOf(true).slice(1, 3), [
      '    ns/a  3m  the pool is full: 7 MiB for ns/a',
      '    ns/b  2m  the pool is full: 8 MiB for ns/b',
    ]));
});
