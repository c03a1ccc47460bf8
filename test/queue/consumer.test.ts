import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Queue } from 'bullmq';
import { CONTRACT_VERSION, jobData } from '#src/queue/contract.ts';
import { keyPrefix } from '#src/redis/key-prefix.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import type { RunStatus } from '#src/queue/status.ts';
import { readStatus, type StatusPlace } from '#src/queue/status.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import { QueueBench, sleep, volumeKey } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('Consumer', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let driver = 'd0.example';
  let serial = 0;
  const key = volumeKey('data');
  const done: Outcome = { kind: 'done' };
  const LONG_RETRY: Outcome = { kind: 'retry', reason: 'full', minDelayMs: 60_000 };
  const failures = () => bench.runs.map((run) => run.failures);
  const place = (): StatusPlace => ({ prefix: 'csi', driver, key });
  const keyOf = (part: string): string => queueRoot('csi', queueName('volume', driver)) + part;

  /** Waits until so many jobs are delayed. */
  const untilDelayed = (count: number): Promise<void> =>
    until(
      async () => (await redis.redis.zcard(keyOf('delayed'))) === count,
      `${count} are delayed`,
    );
  /** Waits until so many runs were done, and Redis knows it. */
  const untilDone = (count: number): Promise<void> =>
    until(async () => {
      const labels = { driver, kind: 'volume', outcome: 'done' };
      const ended = await bench.metric('sutler_queue_runs_total', labels);
      return ended === count && (await redis.redis.llen(keyOf('active'))) === 0;
    }, `${count} are done`);

  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(() => {
    serial += 1;
    driver = `d${serial}.example`;
    bench = new QueueBench(redis, driver, 'volume');
    bench.readsFailures = true;
  });
  afterEach(() => bench.close());

  it('runs a key once more for all requests that came during its run', async () => {
    const producer = bench.producer();
    bench.consumer(async () => {
      if (bench.runs.length === 1) {
        for (let i = 0; i < 5; i += 1) {
          producer.ensureQueued(key);
          await producer.waitUntilFlushed();
        }
      }
      return done;
    });
    producer.ensureQueued(key);
    await untilDone(2);
    assert.equal(bench.runs.length, 2);
    assert.deepEqual(bench.doubles, []);
  });

  it('waits longer after each failure and counts them', async () => {
    const full: Outcome = { kind: 'retry', reason: 'full' };
    bench.consumer(() => (bench.runs.length < 4 ? full : done), { random: () => 0.999 });
    bench.producer().ensureQueued(key);
    await until(() => bench.runs.length >= 4, 'four runs');
    assert.deepEqual(failures(), [0, 1, 2, 3]);
    for (const [index, least] of [9, 19, 39].entries()) {
      const waitMs = (bench.runs[index + 1]?.atMs ?? 0) - (bench.runs[index]?.endMs ?? 0);
      assert.ok(waitMs >= least, `wait ${index} is ${waitMs} ms`);
    }
  });

  it('logs a failure once, until its reason is another one, whatever numbers are in it', async () => {
    const reasons = [
      'usual',
      '1 of 7 GiB free',
      '2 of 7 GiB free',
      'no route',
      'no route',
      '3 of 7 GiB free',
    ];
    const lines: string[] = [];
    const log = createLogger({
      name: 'jobs',
      verbosity: 0,
      format: 'json',
      write: (line) => void lines.push(line),
    });
    let runs = 0;
    bench.consumer(
      () => {
        const reason = reasons[runs++];
        return reason === undefined
          ? done
          : { kind: 'running', reason, isUsual: reason.startsWith('usual') };
      },
      { log, backoff: { startMs: 1, maxMs: 1 } },
    );
    bench.producer().ensureQueued(key);
    await untilDone(1);
    const logged = lines
      .map((line) => JSON.parse(line) as { msg: string; level: string; reason: string })
      .filter(({ msg }) => msg === 'run failed')
      .map(({ level, reason }) => `${level} ${reason}`);
    assert.deepEqual(logged, ['warn 1 of 7 GiB free', 'warn no route', 'warn 3 of 7 GiB free']);
  });

  it('tells each run how long the infeasible back-off lasts, and of which scope (Q-57)', async () => {
    const answers: RunStatus['infeasible'][] = [];
    bench.consumer(async (_, run) => {
      answers.push((await run.lastStatus())?.infeasible);
      if (answers.length === 1)
        return {
          kind: 'retry',
          reason: 'infeasible',
          minDelayMs: 3_600_000,
          infeasibleScope: 'gold',
        };
      return answers.length < 4
        ? { kind: 'later', reason: 'infeasible', delayMs: 1 }
        : { kind: 'retry', reason: 'full', minDelayMs: 1 };
    });
    const producer = bench.producer();
    producer.ensureQueued(key);
    await untilDelayed(1);
    producer.enqueueNow(key);
    await until(() => answers.length >= 5, 'five runs');
    const [first, ...later] = answers.slice(0, 5);
    assert.equal(first, undefined);
    for (const infeasible of later) {
      assert.equal(infeasible?.scope, 'gold');
      const leftMs = infeasible.untilMs - Date.now();
      assert.ok(leftMs > 0 && leftMs <= 3_600_000, String(leftMs));
    }
  });

  for (const way of ['enqueueNow', 'promote'] as const)
    it(`ends a delay on ${way}, not on ensureQueued, and keeps the failures`, async () => {
      const producer = bench.producer();
      bench.consumer(() => (bench.runs.length === 1 ? LONG_RETRY : done));
      producer.ensureQueued(key);
      await untilDelayed(1);
      producer.ensureQueued(key);
      await producer.waitUntilFlushed();
      await untilDelayed(1);
      assert.equal(bench.runs.length, 1);
      producer[way](key);
      await untilDone(1);
      assert.deepEqual(failures(), [0, 1]);
    });

  it('runs a key again at once after enqueueNow and ensureQueued during a run', async () => {
    const producer = bench.producer();
    bench.consumer(async () => {
      if (bench.runs.length > 1) return done;
      producer.enqueueNow(key);
      await producer.waitUntilFlushed();
      producer.ensureQueued(key);
      await producer.waitUntilFlushed();
      return LONG_RETRY;
    });
    producer.ensureQueued(key);
    await untilDone(1);
  });

  it('keeps the delay of a failing run when ensureQueued came during the run', async () => {
    const producer = bench.producer();
    bench.consumer(async () => {
      producer.ensureQueued(key);
      await producer.waitUntilFlushed();
      return LONG_RETRY;
    });
    producer.ensureQueued(key);
    await untilDelayed(1);
  });

  it('counts runs that did not reach the driver, not as failures, until one is done', async () => {
    const later: Outcome = { kind: 'later', reason: 'gateway away', delayMs: 1 };
    let counted: number | undefined;
    bench.consumer(async (_, run) => {
      counted = (await run.lastStatus())?.count;
      return bench.runs.length < 4 ? later : done;
    });
    bench.producer().ensureQueued(key);
    await untilDone(1);
    assert.deepEqual([failures(), counted], [[0, 0, 0, 0], 3]);
    const isCleared = async () => (await readStatus(redis.redis, place())) === undefined;
    await until(isCleared, 'the status is removed');
  });

  it('parks a key, and stores what it waits for', async () => {
    const conditions = [{ resource: 'secrets', namespace: 'default', name: 'login', seen: '' }];
    const reason = 'secret default/login is not there';
    bench.consumer(() => ({ kind: 'parked', reason, until: conditions }));
    bench.producer().ensureQueued(key);
    await untilDelayed(1);
    const { atMs = 0, ...status } = (await readStatus(redis.redis, place())) ?? {};
    assert.deepEqual(status, {
      outcome: 'parked',
      count: 1,
      alike: 1,
      reason,
      firstMs: atMs,
      runs: 1,
      until: conditions,
      sinceMs: atMs,
      isTold: true,
    });
    const statusKey = `{csi}:last-run:${driver}:${key.uid}`;
    assert.ok((await redis.redis.pttl(statusKey)) > 80_000_000);
  });

  it('counts a run that throws as failed, stores no message of it, and goes on', async () => {
    const broken = volumeKey('broken');
    let stored = '';
    bench.consumer(async () => {
      if (bench.runs.length === 1) throw new TypeError('password=geheim');
      stored = JSON.stringify(await redis.redis.hgetall(keyOf(broken.uid)));
      return done;
    });
    const producer = bench.producer();
    producer.ensureQueued(broken);
    await untilDone(1);
    assert.equal(bench.runs[1]?.failures, 1);
    assert.match(stored, /unexpected TypeError/);
    assert.ok(!stored.includes('geheim'));
  });

  it('leaves a job of a newer version to a newer worker, and completes an unreadable one', async () => {
    const connection = { url: redis.url };
    const queue = new Queue(queueName('volume', driver), { connection, prefix: keyPrefix('csi') });
    const newer = { ...jobData(key), v: CONTRACT_VERSION + 1 };
    await queue.add('volume', newer, { attempts: 5, jobId: key.uid });
    await queue.add('volume', { oops: true }, { attempts: 5 });
    bench.consumer(() => done);
    await untilDelayed(1);
    await untilDone(1);
    assert.equal(bench.runs.length, 0);
    await queue.close();
  });

  describe('close', () => {
    it('aborts runs, and gives one that sent nothing to another worker without a failure', async () => {
      const first = bench.consumer(async (_, { signal }) => {
        while (!signal.aborted) await sleep(5);
        return { kind: 'later', reason: 'shutting down' };
      });
      bench.producer().ensureQueued(key);
      await until(() => bench.runs.length >= 1, 'the first run');
      bench.consumer(() => done);
      await first.close(5000);
      assert.ok(bench.runs[0]?.endMs, 'it waits for the end');
      await until(() => bench.runs.length >= 2, 'the second run');
      assert.deepEqual(failures(), [0, 0]);
    });

    it('waits no longer than its grace, and keeps the job of a run that goes on', async () => {
      let finish: () => void = () => undefined;
      const finished = new Promise<void>((resolve) => (finish = resolve));
      const first = bench.consumer(() => finished.then(() => done));
      bench.producer().ensureQueued(key);
      await until(() => bench.runs.length >= 1, 'the run');
      await first.close(100);
      bench.consumer(() => done);
      const lockEnd = () => redis.redis.pexpiretime(`${keyOf(key.uid)}:lock`);
      const firstEnd = await lockEnd();
      await until(async () => (await lockEnd()) > firstEnd + 1_000, 'its lock is renewed');
      assert.equal(bench.runs.length, 1);
      finish();
      await until(() => bench.runs[0]?.endMs !== undefined, 'the run ends');
    });

    it('does not hang when Redis was never there', async () => {
      const lost = bench.consumer(() => done, { redisUrl: 'redis://127.0.0.1:1', log: silentLog });
      await until(() => /ECONNREFUSED/.test(lost.trouble ?? ''), 'the trouble is reported');
      // Longer than any test may take.
      await lost.close(3_600_000);
    });
  });
});
