import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { JOB_KINDS } from '#src/queue/contract.ts';
import { openProducerConnection } from '#src/queue/connections.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import { listQueues } from '#src/queue/queues.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { silentLog } from '#src/runtime/log.ts';
import { QueueBench, sleep, snapshotKey } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('Producer', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let driver = 'd0.example';
  let serial = 0;
  const keyOf = (part: string): string => queueRoot('csi', queueName('snapshot', driver)) + part;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(() => {
    serial += 1;
    driver = `d${serial}.example`;
    bench = new QueueBench(redis, driver);
  });
  afterEach(() => bench.close());

  it('refuses an unreadable URL or prefix at once', () => {
    assert.throws(() => bench.producer({ redisUrl: 'nonsense' }), UsageError);
    assert.throws(() => bench.producer({ prefix: '{x}' }), UsageError);
  });

  it('makes one job of many requests for one key', async () => {
    const producer = bench.producer();
    for (let i = 0; i < 1000; i += 1) producer.ensureQueued(snapshotKey('data'));
    assert.equal(producer.pending, 1);
    await producer.waitUntilFlushed();
    producer.ensureQueued(snapshotKey('data'));
    await producer.waitUntilFlushed();
    assert.equal(await redis.redis.llen(keyOf('wait')), 1);
    assert.equal(await bench.metric('sutler_queue_jobs_added_total', { driver }), 1);
    assert.equal(await bench.metric('sutler_queue_jobs_deduplicated_total', { driver }), 1);
    assert.equal(await bench.metric('sutler_queue_requests_total', { driver }), 1001);
  });

  it('counts what a Redis that hangs has not taken', async () => {
    const producer = bench.producer();
    producer.ensureQueued(snapshotKey('first'));
    await producer.waitUntilFlushed();
    const dirty = () => bench.metric('sutler_queue_dirty_keys', { driver });
    redis.freeze();
    try {
      for (const name of ['a', 'b', 'c']) producer.ensureQueued(snapshotKey(name));
      await until(() => producer.pending === 0, 'they are sent');
      assert.equal(await dirty(), 3);
    } finally {
      redis.thaw();
    }
    await producer.waitUntilFlushed();
    assert.equal(await dirty(), 0);
  });

  it('makes no job for a promotion alone, and one when another request asks for it', async () => {
    const producer = bench.producer();
    producer.promote(snapshotKey('a'));
    await producer.waitUntilFlushed();
    assert.equal(await redis.redis.llen(keyOf('wait')), 0);
    producer.promote(snapshotKey('a'));
    producer.ensureQueued(snapshotKey('a'));
    await producer.waitUntilFlushed();
    assert.equal(await redis.redis.llen(keyOf('wait')), 1);
  });

  it('stores keys, readable ids and small options, nothing else', async () => {
    const producer = bench.producer();
    producer.ensureQueued(snapshotKey('data', 'team-a'));
    await producer.waitUntilFlushed();
    const [job = ''] = await redis.redis.keys(keyOf('team-a.data~*'));
    const { data = '', opts = '' } = await redis.redis.hgetall(job);
    assert.deepEqual(JSON.parse(data), { v: 1, ...snapshotKey('data', 'team-a') });
    assert.ok(opts.length < 300, opts);
  });

  it('sends one script per key and nothing else', async () => {
    const producer = bench.producer();
    producer.ensureQueued(snapshotKey('first'));
    await producer.waitUntilFlushed();
    await redis.redis.config('RESETSTAT');
    for (let i = 0; i < 1000; i += 1) producer.ensureQueued(snapshotKey(`c${i}`));
    await producer.waitUntilFlushed();
    const { evalsha = 0 } = await redis.commands();
    // Besides, the leader looks at Redis' history, and for finished jobs.
    assert.ok(evalsha >= 1000 && evalsha <= 1100, `${evalsha} scripts for 1,000 keys`);
  });

  it('does not delay single keys that come one after the other', async () => {
    const producer = bench.producer();
    let names = 0;
    const addTen = async (): Promise<number> => {
      const beginMs = performance.now();
      for (let i = 0; i < 10; i += 1) {
        producer.ensureQueued(snapshotKey(`c${(names += 1)}`));
        await producer.waitUntilFlushed();
      }
      return performance.now() - beginMs;
    };
    // With the 10 ms between the batches of a burst it would always take 90 ms.
    await until(async () => {
      await sleep(100);
      return (await addTen()) < 85;
    }, 'ten keys are added without pauses');
  });

  it('registers its queues', async () => {
    bench.producer();
    await until(
      async () => (await listQueues(redis.redis, 'csi')).some((queue) => queue.driver === driver),
      'the queues are listed',
    );
    const mine = (await listQueues(redis.redis, 'csi')).filter((queue) => queue.driver === driver);
    assert.deepEqual(mine, [
      { name: `capacity.${driver}`, driver, kind: 'capacity' },
      { name: `claims.${driver}`, driver, kind: 'claim' },
      { name: `snapshots.${driver}`, driver, kind: 'snapshot' },
      { name: `volumes.${driver}`, driver, kind: 'volume' },
    ]);
    await redis.redis.hset('{csi}:queues', 'broken', 'not json', 'newer', '{"kind":"node"}');
    assert.ok(
      (await listQueues(redis.redis, 'csi')).every(
        (queue) => queue.name !== 'broken' && queue.name !== 'newer',
      ),
    );
  });

  it('adds registry and settings again after Redis was emptied', async () => {
    const producer = bench.producer();
    producer.ensureQueued(snapshotKey('a'));
    await producer.waitUntilFlushed();
    await until(
      async () => (await redis.redis.exists('{csi}:marker')) === 1,
      'the flush marker is set',
    );
    await redis.redis.flushall();
    await until(
      async () => (await listQueues(redis.redis, 'csi')).length === JOB_KINDS.length,
      'the queues are registered again',
    );
    await until(
      async () => (await redis.redis.hget(keyOf('meta'), 'opts.maxLenEvents')) === '5000',
      'the settings are written again',
    );
  });

  it('flushes its requests on close, and takes none afterwards', async () => {
    const producer = bench.producer();
    await until(() => producer.trouble === undefined, 'connected');
    producer.ensureQueued(snapshotKey('data'));
    await producer.close();
    assert.equal(await redis.redis.llen(keyOf('wait')), 1, 'the earlier request is in Redis');
    producer.ensureQueued(snapshotKey('late'));
    assert.equal(producer.pending, 0);
  });

  it('adds nothing to the listeners of a connection, which all drivers share', async () => {
    const redisUrl = 'redis://127.0.0.1:1';
    const connection = openProducerConnection({ redisUrl, prefix: 'csi', log: silentLog });
    const { redis: client } = connection.link;
    const listeners = (): number =>
      client.eventNames().reduce((sum, name) => sum + client.listenerCount(name), 0);
    const before = listeners();
    const producer = bench.producer({ connection });
    assert.equal(listeners(), before);
    await producer.close();
    connection.close();
  });

  it('closes without Redis', async () => {
    const producer = bench.producer({ redisUrl: 'redis://127.0.0.1:1' });
    producer.ensureQueued(snapshotKey('data'));
    await until(() => /ECONNREFUSED/.test(producer.trouble ?? ''), 'the trouble is reported');
    await producer.close();
  });
});
