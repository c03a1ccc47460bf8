import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';

import { checkSettings } from '#src/redis/settings.ts';
import { readStatus } from '#src/queue/status.ts';

import { claimKey, QueueBench } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

/** The commands that producer and consumer send, for a Redis user with restricted rights. */
const COMMANDS =
  '+bzpopmin +client|setname +del +eval +evalsha +exists +get +hello +hget +hgetall +hincrby ' +
  '+hmget +hmset +hset +incr +info +llen +hscan +lpos +lpush +lrange +lrem +ltrim +pexpire ' +
  '+persist +pttl +rpoplpush +rpush +sadd +scard +set +smembers +srem +time +xadd +xtrim +zadd ' +
  '+zcard +zpopmin +zrange +zcount +zrangebyscore +zrem +zremrangebyrank +zrevrange ' +
  '+zrevrangebyscore +zscore';

describe('a Redis user with the least rights', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await startTestRedis();
    await redis.redis.call(
      'ACL',
      'SETUSER',
      'sutler',
      'on',
      '>hidden',
      '~{csi}:*',
      ...COMMANDS.split(' '),
    );
  });
  after(() => redis.close());

  it('may add, run, retry, park, promote and take over jobs', async () => {
    const url = new URL(redis.url);
    url.username = 'sutler';
    url.password = 'hidden';
    const bench = new QueueBench(redis, 'd.example');
    const key = claimKey('data');
    const outcomes = [
      { kind: 'retry', reason: 'a' },
      { kind: 'later', reason: 'b', delayMs: 1 },
      { kind: 'parked', reason: 'c' },
    ] as const;
    const producer = bench.producer({ redisUrl: url.href });
    const consumer = bench.consumer(() => outcomes[bench.runs.length - 1] ?? { kind: 'done' }, {
      redisUrl: url.href,
    });
    producer.ensureQueued(key);
    await until(() => bench.runs.length >= 3, 'three runs');
    await until(
      async () =>
        (await readStatus(redis.redis, { prefix: 'csi', driver: 'd.example', key }))?.outcome ===
        'parked',
      'it is parked',
    );
    producer.enqueueNow(key);
    await until(
      async () => (await redis.redis.zcard('{csi}:claims.d.example:completed')) === 1,
      'it is done',
    );
    await until(
      async () => (await redis.redis.exists('{csi}:epoch')) === 1,
      'the flush marker is set',
    );
    assert.deepEqual([producer.trouble, consumer.trouble], [undefined, undefined]);
    const asUser = new Redis(url.href);
    assert.deepEqual(await checkSettings(asUser), []);
    asUser.disconnect();
    const denied = (await redis.redis.call('ACL', 'LOG')) as unknown[];
    // The client tells Redis 7.2 and later its version; a refusal of that is harmless.
    assert.deepEqual(
      denied.filter((entry) => !JSON.stringify(entry).includes('client|setinfo')),
      [],
    );
    assert.deepEqual(await checkSettings(redis.redis), []);
    await bench.close();
  });
});
