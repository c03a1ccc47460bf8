import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { JOB_KINDS } from '#src/queue/contract.ts';
import { openProducerConnection } from '#src/queue/connections.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import { listQueues } from '#src/queue/queues.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { silentLog } from '#src/runtime/log.ts';
import { claimKey, QueueBench, sleep, volumeKey } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('Producer', () => {
  let redis: TestRedis;
  let bench: QueueBench;
  let driver = 'd0.example';
  let serial = 0;
  const keyOf = (part: string): string => queueRoot('csi', queueName('claim', driver)) + part;
  /** Names in the order in which they will run. */
  const order = async (): Promise<string[]> =>
    (await redis.redis.zrange(keyOf('prioritized'), 0, '-1')).map((id) => id.replace(/~.*/, ''));

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
    for (let i = 0; i < 1000; i += 1) producer.ensureQueued(claimKey('data'));
    assert.equal(producer.pending, 1);
    await producer.waitUntilFlushed();
    producer.ensureQueued(claimKey('data'));
    await producer.waitUntilFlushed();
    assert.equal(await redis.redis.zcard(keyOf('prioritized')), 1);
    assert.equal(await bench.metric('sutler_queue_jobs_added_total', { driver }), 1);
    assert.equal(await bench.metric('sutler_queue_jobs_deduplicated_total', { driver }), 1);
    assert.equal(await bench.metric('sutler_queue_requests_total', { driver }), 1001);
  });

  it('counts what a Redis that hangs has not taken', async () => {
    const producer = bench.producer();
    producer.ensureQueued(claimKey('first'));
    await producer.waitUntilFlushed();
    const dirty = () => bench.metric('sutler_queue_dirty_keys', { driver });
    redis.freeze();
    try {
      for (const name of ['a', 'b', 'c']) producer.ensureQueued(claimKey(name));
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
    producer.promote(claimKey('a'));
    await producer.waitUntilFlushed();
    assert.equal(await redis.redis.zcard(keyOf('prioritized')), 0);
    producer.promote(claimKey('a'));
    producer.ensureQueued(claimKey('a'));
    await producer.waitUntilFlushed();
    assert.equal(await redis.redis.zcard(keyOf('prioritized')), 1);
  });

  it('stores keys, readable ids and small options, nothing else', async () => {
    const producer = bench.producer();
    producer.ensureQueued(claimKey('data', 'team-a'));
    producer.ensureQueued(volumeKey('pvc-1'));
    await producer.waitUntilFlushed();
    const [job = ''] = await redis.redis.keys(keyOf('team-a.data~*'));
    const { data = '', opts = '' } = await redis.redis.hgetall(job);
    assert.deepEqual(JSON.parse(data), { v: 1, ...claimKey('data', 'team-a') });
    assert.ok(opts.length < 300, opts);
    assert.equal((await redis.redis.keys(`{csi}:volumes.${driver}:pvc-1~*`)).length, 1);
  });

  describe('with copies of claims', () => {
    let heardMs: number | undefined;
    const copies = { heardMs: () => heardMs, seal: () => 'seal' };
    const dataOf = async (
      name: string,
    ): Promise<{ readonly copy?: { readonly claim: string; readonly watch: string } }> => {
      const [job = ''] = await redis.redis.keys(keyOf(`default.${name}~*`));
      const { data = '' } = await redis.redis.hgetall(job);
      return JSON.parse(data) as object;
    };
    beforeEach(() => (heardMs = performance.now()));

    it('gives the job the claim as the watch has shown it, and tells that the watch lives', async () => {
      const producer = bench.producer({ copies });
      producer.ensureQueued({ ...claimKey('a'), claim: 'text' });
      await producer.waitUntilFlushed();
      const { copy } = await dataOf('a');
      const life = () => redis.redis.hgetall(`{csi}:watch:${driver}`);
      await until(async () => Number((await life())['at']) > 0, 'it is told');
      const { watch } = await life();
      assert.deepEqual(copy, { watch, claim: 'text', seal: 'seal' });
    });

    it('gives it none while no watch lives', async () => {
      heardMs = undefined;
      const producer = bench.producer({ copies });
      producer.ensureQueued({ ...claimKey('a'), claim: 'text' });
      await producer.waitUntilFlushed();
      assert.equal((await dataOf('a')).copy, undefined);
    });

    it('replaces the copy in a job that waits, or takes it away', async () => {
      const producer = bench.producer({ copies });
      producer.ensureQueued({ ...claimKey('a'), claim: 'text' });
      await producer.waitUntilFlushed();
      producer.renewCopy({ ...claimKey('a'), claim: 'newer' });
      await producer.waitUntilFlushed();
      assert.equal((await dataOf('a')).copy?.claim, 'newer');
      producer.renewCopy(claimKey('a'));
      await producer.waitUntilFlushed();
      assert.equal((await dataOf('a')).copy, undefined);
    });

    it('takes the copy from a request that Redis has not got yet', async () => {
      const producer = bench.producer({ copies });
      producer.ensureQueued({ ...claimKey('a'), claim: 'text' });
      producer.renewCopy(claimKey('a'));
      await producer.waitUntilFlushed();
      assert.equal((await dataOf('a')).copy, undefined);
    });

    it('takes the copy from a request that is under way to Redis', async () => {
      const producer = bench.producer({ copies });
      producer.ensureQueued({ ...claimKey('b'), claim: 'text' });
      await producer.waitUntilFlushed();
      redis.freeze();
      try {
        producer.renewCopy(claimKey('b'));
        producer.ensureQueued({ ...claimKey('a'), claim: 'text' });
        await until(() => producer.pending === 0, 'it is under way');
        producer.renewCopy(claimKey('a'));
      } finally {
        redis.thaw();
      }
      await producer.waitUntilFlushed();
      assert.equal((await dataOf('a')).copy, undefined);
    });

    it('takes the copy from a request that Redis has refused', async () => {
      const producer = bench.producer({ copies });
      producer.ensureQueued(claimKey('b'));
      await producer.waitUntilFlushed();
      await redis.redis.config('SET', 'maxmemory', '1');
      redis.freeze();
      producer.ensureQueued({ ...claimKey('a'), claim: 'text' });
      await until(() => producer.pending === 0, 'it is under way');
      producer.renewCopy(claimKey('a'));
      redis.thaw();
      await until(() => producer.pending === 1, 'it is refused');
      await redis.redis.config('SET', 'maxmemory', '0');
      await producer.waitUntilFlushed();
      assert.equal((await dataOf('a')).copy, undefined);
    });

    it('names another watch after each connection: a Redis may have lost what it had', async () => {
      const producer = bench.producer({ copies });
      const watchOf = async (name: string): Promise<string | undefined> => {
        producer.ensureQueued({ ...claimKey(name), claim: 'text' });
        await producer.waitUntilFlushed();
        return (await dataOf(name)).copy?.watch;
      };
      const before = await watchOf('a');
      await redis.redis.call('CLIENT', 'KILL', 'TYPE', 'NORMAL', 'SKIPME', 'yes');
      await until(() => producer.trouble !== undefined, 'the connection is lost');
      assert.notEqual(await watchOf('b'), before);
    });

    it('gives up all copies, and touches none, when a claim changes while no watch lives', async () => {
      const producer = bench.producer({ copies });
      producer.ensureQueued({ ...claimKey('a'), claim: 'text' });
      await producer.waitUntilFlushed();
      heardMs = undefined;
      producer.renewCopy(claimKey('a'));
      await producer.waitUntilFlushed();
      heardMs = performance.now();
      producer.ensureQueued({ ...claimKey('b'), claim: 'text' });
      await producer.waitUntilFlushed();
      const { copy } = await dataOf('a');
      assert.equal(copy?.claim, 'text');
      assert.notEqual((await dataOf('b')).copy?.watch, copy.watch);
    });

    it('gives a job no copy of before a change that came while no watch lived', async () => {
      const producer = bench.producer({ copies });
      producer.ensureQueued({ ...claimKey('a'), claim: 'text' });
      await producer.waitUntilFlushed();
      producer.renewCopy({ ...claimKey('a'), claim: 'newer' });
      heardMs = undefined;
      producer.renewCopy({ ...claimKey('a'), claim: 'newest' });
      heardMs = performance.now();
      await producer.waitUntilFlushed();
      assert.equal((await dataOf('a')).copy?.claim, 'newest');
    });

    it('adds no job when the copy of a claim without one is renewed', async () => {
      const producer = bench.producer({ copies });
      producer.renewCopy({ ...claimKey('a'), claim: 'text' });
      await producer.waitUntilFlushed();
      assert.equal(await redis.redis.zcard(keyOf('prioritized')), 0);
    });
  });

  it('sends one script per key and nothing else', async () => {
    const producer = bench.producer();
    producer.ensureQueued(claimKey('first'));
    await producer.waitUntilFlushed();
    await redis.redis.config('RESETSTAT');
    for (let i = 0; i < 1000; i += 1) producer.ensureQueued(claimKey(`c${i}`));
    await producer.waitUntilFlushed();
    const { evalsha = 0, info = 0 } = await redis.commands();
    assert.ok(evalsha >= 1000 && evalsha <= 1010, `${evalsha} scripts for 1,000 keys`);
    assert.ok(info <= 1);
  });

  it('does not delay single keys that come one after the other', async () => {
    const producer = bench.producer();
    let names = 0;
    const addTen = async (): Promise<number> => {
      const beginMs = performance.now();
      for (let i = 0; i < 10; i += 1) {
        producer.ensureQueued(claimKey(`c${(names += 1)}`));
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

  it('runs keys of a small namespace between those of a large one', async () => {
    const producer = bench.producer();
    for (let i = 0; i < 300; i += 1) producer.ensureQueued(claimKey(`c${i}`, 'large'));
    await producer.waitUntilFlushed();
    for (let i = 0; i < 3; i += 1) producer.ensureQueued(claimKey(`c${i}`, 'small'));
    await producer.waitUntilFlushed();
    const names = await order();
    assert.deepEqual(names.slice(0, 6), [
      'large.c0',
      'small.c0',
      'large.c1',
      'small.c1',
      'large.c2',
      'small.c2',
    ]);
    assert.equal(names.length, 303);
  });

  it('does not put a namespace back for requests that made no job', async () => {
    const producer = bench.producer();
    for (let round = 0; round < 20; round += 1) {
      producer.ensureQueued(claimKey('c0', 'busy'));
      await producer.waitUntilFlushed();
    }
    producer.ensureQueued(claimKey('c0', 'other'));
    producer.ensureQueued(claimKey('c1', 'busy'));
    producer.ensureQueued(claimKey('c1', 'other'));
    await producer.waitUntilFlushed();
    assert.deepEqual((await order()).slice(0, 2), ['busy.c0', 'other.c0']);
    const [, score] = await redis.redis.zrange(keyOf('prioritized'), -1, '-1', 'WITHSCORES');
    assert.ok(Number(score) / 2 ** 32 < 4, 'busy.c1 is second in its namespace');
  });

  it('keeps the order when it lowers priorities that run out', async () => {
    await redis.redis.set(`{csi}:fairness:${queueName('claim', driver)}`, 1_500_000);
    const producer = bench.producer();
    producer.ensureQueued(claimKey('early'));
    await producer.waitUntilFlushed();
    // The first producer lowered the stored time; a second one goes on from there.
    const saved = Number(await redis.redis.get(`{csi}:fairness:${queueName('claim', driver)}`));
    assert.ok(saved < 1000, `virtual time is ${saved}`);
    const next = bench.producer();
    next.ensureQueued(claimKey('late'));
    await next.waitUntilFlushed();
    assert.deepEqual(await order(), ['default.early', 'default.late']);
    const [job = ''] = await redis.redis.keys(keyOf('default.early~*'));
    assert.ok(Number(await redis.redis.hget(job, 'priority')) < 1000);
  });

  it('registers its queues', async () => {
    bench.producer();
    await until(
      async () => (await listQueues(redis.redis, 'csi')).some((queue) => queue.driver === driver),
      'the queues are listed',
    );
    const mine = (await listQueues(redis.redis, 'csi')).filter((queue) => queue.driver === driver);
    assert.deepEqual(mine, [
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
    producer.ensureQueued(claimKey('a'));
    await producer.waitUntilFlushed();
    await until(
      async () => (await redis.redis.exists('{csi}:epoch')) === 1,
      'the flush marker is set',
    );
    await redis.redis.flushall();
    await until(
      async () => (await listQueues(redis.redis, 'csi')).length === JOB_KINDS.length - 1,
      'the queues are registered again',
    );
    await until(
      async () => (await redis.redis.hget(keyOf('meta'), 'opts.maxLenEvents')) === '5000',
      'the settings are written again',
    );
    assert.equal(await bench.metric('sutler_queue_redis_emptied_total', { driver }), 1);
  });

  it('flushes its requests on close, and takes none afterwards', async () => {
    const producer = bench.producer();
    await until(() => producer.trouble === undefined, 'connected');
    producer.ensureQueued(claimKey('data'));
    await producer.close();
    assert.equal(
      await redis.redis.zcard(keyOf('prioritized')),
      1,
      'the earlier request is in Redis',
    );
    producer.ensureQueued(claimKey('late'));
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
    producer.ensureQueued(claimKey('data'));
    await until(() => /ECONNREFUSED/.test(producer.trouble ?? ''), 'the trouble is reported');
    await producer.close();
  });
});
