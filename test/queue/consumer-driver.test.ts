import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Reachability } from '#src/queue/consumer.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import { Listeners } from '#src/runtime/listeners.ts';
import { claimKey, QueueBench } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const DRIVER = 'away.example';
const DOWN: Outcome = { kind: 'later', reason: 'the driver is not connected', isDriverDown: true };

describe('a worker whose driver can’t be reached', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let trouble: string | undefined;
  let asked = 0;
  const changes = new Listeners<void>();
  const driverState: Reachability = {
    get trouble() {
      return trouble;
    },
    onChange: (listener) => changes.subscribe(listener),
    askNow: () => (asked += 1),
  };
  const become = (next: string | undefined): void => {
    trouble = next;
    changes.notify();
  };
  const waiting = (): Promise<number> =>
    redis.redis.zcard(`${queueRoot('csi', queueName('claim', DRIVER))}prioritized`);

  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(async () => {
    bench = new QueueBench(redis, DRIVER);
    trouble = undefined;
    asked = 0;
    await redis.redis.flushall();
  });

  it('takes no job, and says so on its metric, until it can be reached', async () => {
    become('no socket');
    bench.consumer(() => ({ kind: 'done' }), { driverState });
    const isDown = () => bench.metric('sutler_queue_driver_down', { driver: DRIVER });
    assert.equal(await isDown(), 1);
    const producer = bench.producer();
    for (const name of ['a', 'b', 'c']) producer.ensureQueued(claimKey(name));
    await until(async () => (await waiting()) === 3, 'all wait');
    assert.equal(bench.runs.length, 0);
    become(undefined);
    assert.equal(await isDown(), 0);
    await until(() => bench.runs.length === 3, 'all ran');
    await bench.close();
  });

  it('has it asked again when a run does not reach it', async () => {
    bench.consumer(() => (bench.runs.length === 1 ? DOWN : { kind: 'done' }), { driverState });
    bench.producer().ensureQueued(claimKey('a'));
    await until(() => asked === 1, 'it is asked');
    await until(() => bench.runs.length === 2, 'the run is repeated');
    assert.equal(asked, 1);
    await bench.close();
  });
});
