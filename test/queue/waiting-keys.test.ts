import assert from 'node:assert/strict';
import { after, before, it } from 'node:test';
import { queueName } from '#src/queue/key-names.ts';
import { waitingKeys } from '#src/queue/waiting-keys.ts';
import { claimKey, QueueBench } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

let redis: TestRedis;
before(async () => {
  redis = await startTestRedis();
});
after(() => redis.close());

it('the keys that wait are read without leaving listeners on the connection', async () => {
  const driver = 'waiting.example';
  const bench = new QueueBench(redis, driver);
  bench.producer().ensureQueued(claimKey('a'));
  const read = () =>
    waitingKeys(redis.redis, { prefix: 'csi', queue: queueName('claim', driver) }, 10);
  await until(async () => (await read()).length === 1, 'the key waits');
  const count = (): number => redis.redis.listenerCount('error');
  const before = count();
  for (let i = 0; i < 5; i += 1) assert.equal((await read())[0]?.name, claimKey('a').name);
  assert.equal(count(), before);
  assert.equal(redis.redis.status, 'ready');
  await bench.close();
});
