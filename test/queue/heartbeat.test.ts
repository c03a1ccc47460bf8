import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Queue, Worker } from 'bullmq';
import { type Heartbeat, startHeartbeat } from '#src/queue/heartbeat.ts';
import {
  DELAYED_SCORE_PER_MS,
  heartbeatKey,
  markerKey,
  queueName,
  queueRoot,
} from '#src/queue/queue-keys.ts';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const PLACE = { prefix: 'csi', queue: queueName('claim', 'd.example') };
const DELAYED = `${queueRoot(PLACE.prefix, PLACE.queue)}delayed`;
const HEARTBEAT = heartbeatKey(PLACE.prefix, PLACE.queue);
const HOUR_MS = 3_600_000;

describe('a heartbeat', () => {
  let redis: TestRedis;
  let link: RedisLink;
  let heartbeat: Heartbeat;
  let markers: string[];
  let queue: Queue;
  /** When BullMQ's job would run. */
  let dueMs = 0;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(async () => {
    await redis.redis.flushall();
    queue = new Queue(PLACE.queue, { connection: { url: redis.url }, prefix: '{csi}' });
    const { timestamp } = await queue.add('claim', {}, { jobId: 'job', delay: HOUR_MS });
    dueMs = timestamp + HOUR_MS;
    link = openRedis({ url: redis.url, role: 'worker', log: silentLog });
    markers = [];
    heartbeat = startHeartbeat(link, {
      prefix: PLACE.prefix,
      onMarker: (marker) => void markers.push(marker),
      log: silentLog,
    });
    heartbeat.add(PLACE.queue);
  });
  afterEach(async () => {
    heartbeat.stop();
    link.close();
    await queue.close();
  });
  /** By how much a heartbeat extends the delay of a job, in whole seconds. */
  const extensionS = async (last: string): Promise<number> => {
    await redis.redis.set(HEARTBEAT, last);
    await heartbeat.write();
    const score = Number(await redis.redis.zscore(DELAYED, 'job'));
    return Math.round((score / DELAYED_SCORE_PER_MS - dueMs) / 1_000);
  };
  const ago = (seconds: number): number => Date.now() - seconds * 1_000;

  it('unblocks a worker for a job that waits, or is due', async () => {
    const root = queueRoot(PLACE.prefix, PLACE.queue);
    const marker = () => redis.redis.zscore(`${root}marker`, '0');
    await redis.redis.zadd(DELAYED, Date.now() * DELAYED_SCORE_PER_MS, 'job');
    await heartbeat.write();
    assert.equal(await marker(), '0');
    await redis.redis.del(DELAYED, `${root}marker`);
    for (const waiting of [
      () => redis.redis.lpush(`${root}wait`, 'job'),
      () => redis.redis.zadd(`${root}prioritized`, 1, 'job'),
    ]) {
      await heartbeat.write();
      await heartbeat.write();
      assert.equal(await marker(), null);
      await waiting();
      await heartbeat.write();
      await heartbeat.write();
      assert.equal(await marker(), '0');
      await redis.redis.del(`${root}wait`, `${root}prioritized`, `${root}marker`);
    }
  });

  it('unblocks the workers of each of its queues', async () => {
    const queue = queueName('volume', 'd.example');
    const root = queueRoot(PLACE.prefix, queue);
    heartbeat.add(queue);
    await redis.redis.lpush(`${root}wait`, 'job');
    await heartbeat.write();
    assert.equal(await redis.redis.zscore(`${root}marker`, '0'), '0');
  });

  it('is written for a queue that was added while one was under way', async () => {
    const queue = queueName('volume', 'd.example');
    const earlier = heartbeat.write();
    heartbeat.add(queue);
    await heartbeat.write();
    await earlier;
    assert.equal(await redis.redis.exists(heartbeatKey(PLACE.prefix, queue)), 1);
  });

  it('is not written any more for a queue that was removed', async () => {
    heartbeat.remove(PLACE.queue);
    await heartbeat.write();
    assert.equal(await redis.redis.exists(HEARTBEAT), 0);
  });

  it('tells whether its queues have jobs', async () => {
    await heartbeat.write();
    assert.ok(heartbeat.hasJobs, 'a delayed one');
    await redis.redis.del(DELAYED);
    await heartbeat.write();
    await heartbeat.write();
    assert.ok(!heartbeat.hasJobs);
  });

  it('passes on the flush marker, another one after Redis was emptied', async () => {
    await heartbeat.write();
    await heartbeat.write();
    const [first, second] = markers;
    assert.equal(second, first);
    await redis.redis.flushall();
    await heartbeat.write();
    assert.notEqual(markers.at(-1), first);
    assert.equal(markers.at(-1), await redis.redis.get(markerKey(PLACE.prefix)));
  });

  it('extends delays by the time since the last one', async () => {
    assert.equal(await extensionS(`${ago(600)} ${ago(600)}`), 600);
  });

  it('extends no delay after a second', async () => {
    assert.equal(await extensionS(`${ago(1)} ${ago(1)}`), 0);
  });

  it('extends no delay when Redis’ clock was set forward', async () => {
    assert.equal(await extensionS(`${ago(600)} ${ago(1)}`), 0);
  });

  it('extends no delay when the last one came from a worker whose clock is behind', async () => {
    assert.equal(await extensionS(`${ago(1)} ${ago(600)}`), 0);
  });

  it('has locks and pauses end no later when Redis’ clock was set back', async () => {
    const root = queueRoot(PLACE.prefix, PLACE.queue);
    const longMs = HOUR_MS + 30_000;
    const worker = new Worker(PLACE.queue, () => new Promise(() => undefined), {
      connection: { url: redis.url },
      prefix: '{csi}',
      lockDuration: longMs,
      stalledInterval: longMs,
    });
    await queue.add('claim', {}, { jobId: 'running' });
    await queue.rateLimit(longMs);
    const names = ['running:lock', 'limiter', 'stalled-check'].map((name) => root + name);
    await until(async () => (await redis.redis.exists(...names)) === 3, 'BullMQ has made them');
    assert.equal(await extensionS(`${ago(-3_600)} ${ago(1)}`), 0);
    for (const name of names) {
      const leftMs = await redis.redis.pttl(name);
      assert.ok(leftMs > 0 && leftMs < 31_000, `${name} ends in ${leftMs} ms`);
    }
    await worker.close(true);
  });

  it('shortens delays when the clocks of Redis and of the worker were set back', async () => {
    assert.equal(await extensionS(`${ago(-600)} ${ago(-600)}`), -600);
  });
});
