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
    bench.consumer(
      ({ uid }) =>
        bench.runsOf({ ...key, uid }).length < 4 ? { kind: 'retry', reason: 'full' } : done,
      {
        random: () => 0.999,
      },
    );
    bench.producer().ensureQueued(key);
    await until(() => bench.runs.length >= 4, 'four runs');
    assert.deepEqual(
      bench.runs.map(({ failures }) => failures),
      [0, 1, 2, 3],
    );
    const waits = bench.runs
      .slice(1)
      .map(({ atMs }, index) => atMs - (bench.runs[index]?.endMs ?? 0));
    for (const [index, least] of [9, 19, 39].entries())
      assert.ok((waits[index] ?? 0) >= least, `wait ${index} is ${waits[index]} ms`);
  });

  it('tells a run the reason of the last one that did not end with done', async () => {
    const reasons: (string | undefined)[] = [];
    bench.consumer(async (_, run) => {
      reasons.push((await run.lastStatus())?.reason);
      return reasons.length % 3 === 0
        ? done
        : { kind: 'retry', reason: `failure ${reasons.length}` };
    });
    const producer = bench.producer();
    producer.ensureQueued(key);
    await untilDone(1);
    producer.ensureQueued(key);
    await untilDone(2);
    assert.deepEqual(reasons, [
      undefined,
      'failure 1',
      'failure 2',
      undefined,
      'failure 4',
      'failure 5',
    ]);
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

  it('ends a delay on enqueueNow, not on ensureQueued, and keeps the failures', async () => {
    const producer = bench.producer();
    bench.consumer(() =>
      bench.runs.length === 1 ? { kind: 'retry', reason: 'full', minDelayMs: 60_000 } : done,
    );
    producer.ensureQueued(key);
    await untilDelayed(1);
    producer.ensureQueued(key);
    await producer.waitUntilFlushed();
    await sleep(100);
    assert.equal(bench.runs.length, 1);
    producer.enqueueNow(key);
    await until(() => bench.runs.length >= 2, 'the run after enqueueNow');
    assert.equal(bench.runs[1]?.failures, 1);
  });

  it('promotes a delayed key without resetting failures, and not one that is running', async () => {
    const producer = bench.producer();
    bench.consumer(async () => {
      if (bench.runs.length === 1) return { kind: 'retry', reason: 'full', minDelayMs: 60_000 };
      producer.promote(key);
      await producer.waitUntilFlushed();
      return done;
    });
    producer.ensureQueued(key);
    await untilDelayed(1);
    producer.promote(key);
    await untilDone(1);
    assert.deepEqual(
      bench.runs.map(({ failures }) => failures),
      [0, 1],
    );
    assert.equal(await redis.redis.zcard(keyOf('prioritized')), 0);
  });

  it('runs a key again at once after enqueueNow and ensureQueued during a run', async () => {
    const producer = bench.producer();
    bench.consumer(async () => {
      if (bench.runs.length > 1) return done;
      producer.enqueueNow(key);
      await producer.waitUntilFlushed();
      producer.ensureQueued(key);
      await producer.waitUntilFlushed();
      return { kind: 'retry', reason: 'x', minDelayMs: 60_000 };
    });
    producer.ensureQueued(key);
    await until(() => bench.runs.length >= 2, 'the second run');
  });

  it('keeps the delay of a failing run when enqueueNow came before the run', async () => {
    const producer = bench.producer();
    producer.ensureQueued(key);
    await producer.waitUntilFlushed();
    bench.consumer(() => ({ kind: 'retry', reason: 'x', minDelayMs: 60_000 }));
    await untilDelayed(1);
    producer.enqueueNow(key);
    await until(() => bench.runs.length === 2, 'the second run');
    await untilDelayed(1);
    await sleep(50);
    assert.equal(bench.runs.length, 2);
  });

  it('keeps the delay of a failing run when ensureQueued came during the run', async () => {
    const producer = bench.producer();
    bench.consumer(async () => {
      if (bench.runs.length > 1) return done;
      producer.ensureQueued(key);
      await producer.waitUntilFlushed();
      return { kind: 'retry', reason: 'x', minDelayMs: 300 };
    });
    producer.ensureQueued(key);
    await until(() => bench.runs.length >= 2, 'the second run');
    assert.ok((bench.runs[1]?.atMs ?? 0) - (bench.runs[0]?.endMs ?? 0) >= 300);
  });

  it('delays runs that did not reach the driver longer, without counting failures', async () => {
    bench.consumer(
      () => (bench.runs.length < 4 ? { kind: 'later', reason: 'gateway away' } : done),
      {
        backoff: { startMs: 10, maxMs: 40 },
        random: () => 0.999,
      },
    );
    bench.producer().ensureQueued(key);
    await until(() => bench.runs.length >= 3, 'three runs');
    await until(
      async () => (await readStatus(redis.redis, place()))?.count === 3 || bench.runs.length > 3,
      'the counter',
    );
    await until(() => bench.runs.length >= 4, 'four runs');
    assert.deepEqual(
      bench.runs.map(({ failures }) => failures),
      [0, 0, 0, 0],
    );
    await until(
      async () => (await readStatus(redis.redis, place())) === undefined,
      'the status is removed',
    );
  });

  it('parks a key for the longest delay, and stores what it waits for', async () => {
    const conditions = [{ resource: 'secrets', namespace: 'default', name: 'login', seen: '' }];
    bench.consumer(
      () => ({ kind: 'parked', reason: 'secret default/login is not there', until: conditions }),
      {
        backoff: { startMs: 10, maxMs: 600_000 },
      },
    );
    bench.producer().ensureQueued(key);
    await untilDelayed(1);
    const [, score] = await redis.redis.zrange(keyOf('delayed'), 0, '0', 'WITHSCORES');
    const status = await readStatus(redis.redis, place());
    // BullMQ's score of a delayed job: its time times 4,096, and a counter.
    const waitMs = Number(score) / 4_096 - (status?.atMs ?? 0);
    assert.ok(waitMs >= 600_000 && waitMs < 800_000, `it waits ${waitMs} ms`);
    const reason = 'secret default/login is not there';
    const atMs = status?.atMs ?? 0;
    assert.deepEqual(status, {
      outcome: 'parked',
      count: 1,
      alike: 1,
      reason,
      atMs,
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

  describe('with jobs of other versions', () => {
    let queue: Queue;
    beforeEach(() => {
      queue = new Queue(queueName('volume', driver), {
        connection: { url: redis.url },
        prefix: keyPrefix('csi'),
      });
    });
    afterEach(() => queue.close());

    it('leaves a job of a newer version to a newer worker', async () => {
      await queue.add(
        'volume',
        { ...jobData(key), v: CONTRACT_VERSION + 1 },
        { attempts: 5, jobId: key.uid },
      );
      bench.consumer(() => done);
      await untilDelayed(1);
      assert.equal(bench.runs.length, 0);
    });

    it('completes a job that no version can read', async () => {
      await queue.add('volume', { oops: true }, { attempts: 5 });
      bench.consumer(() => done);
      await untilDone(1);
      assert.equal(bench.runs.length, 0);
    });
  });

  it('takes a job that another worker was unblocked for, which froze', async () => {
    const frozen = redis.redis.duplicate();
    const blocked = async (): Promise<string | undefined> =>
      /^blocked_clients:(\d+)/m.exec(await redis.redis.info('clients'))?.[1];
    const taken = frozen.bzpopmin(keyOf('marker'), 0);
    await until(async () => (await blocked()) === '1', 'the other worker is blocked');
    bench.consumer(() => done);
    await until(async () => (await blocked()) === '2', 'both are blocked');
    bench.producer().ensureQueued(key);
    await taken;
    await until(() => bench.runs.length === 1, 'the run');
    frozen.disconnect();
  });

  describe('close', () => {
    it('aborts the signals of runs, waits for their ends, and starts no more', async () => {
      let aborted = false;
      const consumer = bench.consumer(async (_, { signal }) => {
        await sleep(150);
        aborted = signal.aborted;
        return done;
      });
      const producer = bench.producer();
      producer.ensureQueued(key);
      await until(() => bench.runs.length >= 1, 'the run');
      await consumer.close(5000);
      assert.equal(aborted, true);
      await until(
        async () => (await redis.redis.exists(keyOf(key.uid))) === 0,
        'its end is stored',
      );
      producer.ensureQueued(volumeKey('another'));
      await producer.waitUntilFlushed();
      await sleep(50);
      assert.equal(bench.runs.length, 1);
    });

    it('gives a run that sent nothing to another worker at once, without a failure', async () => {
      const first = bench.consumer(
        async (_, { signal }) => {
          while (!signal.aborted) await sleep(5);
          return { kind: 'later', reason: 'shutting down' };
        },
        { name: 'first' },
      );
      bench.producer().ensureQueued(key);
      await until(() => bench.runs.length >= 1, 'the first run');
      bench.consumer(() => done, { name: 'second' });
      const closed = first.close(5000);
      await until(() => bench.runs.length >= 2, 'the second run');
      assert.equal(bench.runs[1]?.failures, 0);
      await closed;
    });

    it('waits no longer than its grace; another worker takes the job of a run over', async () => {
      let finish: () => void = () => undefined;
      const finished = new Promise<void>((resolve) => (finish = resolve));
      const first = bench.consumer(async () => {
        if (bench.runs.length === 1) await finished;
        return done;
      });
      bench.producer().ensureQueued(key);
      await until(() => bench.runs.length >= 1, 'the run');
      await bench.endProcess(first, 100);
      bench.consumer(() => done);
      await until(() => bench.runs.length >= 2, 'another worker takes over');
      finish();
    });

    it('keeps the job of a run that goes on while its process does', async () => {
      let finish: () => void = () => undefined;
      const finished = new Promise<void>((resolve) => (finish = resolve));
      const first = bench.consumer(async () => {
        await finished;
        return done;
      });
      bench.producer().ensureQueued(key);
      await until(() => bench.runs.length >= 1, 'the run');
      await first.close(100);
      bench.consumer(() => done);
      // The lock would have expired after a second.
      await sleep(1_500);
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
