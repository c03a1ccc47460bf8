import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { RedisClient, redisOptions } from '#src/redis/client.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('RedisClient', () => {
  let server: TestRedis;
  const opened: RedisClient[] = [];
  const open = (): RedisClient => {
    const redis = new RedisClient(redisOptions(server.url, 'worker'));
    redis.on('error', () => undefined);
    opened.push(redis);
    return redis;
  };
  const reads = async (): Promise<number> => {
    const [, count] = /total_reads_processed:(\d+)/.exec(await server.redis.info('stats')) ?? [];
    return Number(count);
  };

  before(async () => {
    server = await startTestRedis();
  });
  after(async () => {
    for (const redis of opened) redis.disconnect();
    await server.close();
  });

  it('sends the commands of one turn in one write, in their order', async () => {
    const redis = open();
    await redis.ping();
    const before = await reads();
    const answers = [redis.rpush('list', 'a'), redis.rpush('list', 'b')];
    // Commands that follow from an answer, or from a promise, are of the same turn.
    await Promise.resolve();
    answers.push(redis.rpush('list', 'c'));
    const ends = await redis.pipeline([['rpush', 'list', 'd']]).exec();
    assert.deepEqual(await Promise.all(answers), [1, 2, 3]);
    assert.deepEqual(ends, [[null, 4]]);
    // One is that of the second INFO.
    assert.equal((await reads()) - before, 2);
  });

  it('sends what is asked for in the turn in which it is closed', async () => {
    const redis = open();
    await redis.ping();
    void redis.set('last', '1').catch(() => undefined);
    redis.disconnect();
    await until(async () => (await server.redis.get('last')) === '1', 'the last command arrives');
  });
});
