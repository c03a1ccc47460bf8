import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { watchKey } from '#src/queue/queue-keys.ts';
import { MAX_SILENCE_MS, WatchLifeReader, writeWatchLife } from '#src/queue/watch-life.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

describe('the life of a watch, as a worker knows it', () => {
  let server: TestRedis;
  let driver = '';
  let serial = 0;
  before(async () => {
    server = await startTestRedis();
  });
  after(() => server.close());
  beforeEach(() => (driver = `d${(serial += 1)}.example`));

  const place = () => ({ prefix: 'csi', driver });
  const reader = () => new WatchLifeReader(server.redis, place());
  const write = (watch: string, ageMs: number) =>
    writeWatchLife(server.redis, place(), { watch, ageMs });

  it('is none before an ingest has told of one', async () => {
    assert.equal(await reader().isAlive('one'), false);
  });

  it('is that of the watch that was told of last', async () => {
    await write('one', 0);
    assert.equal(await reader().isAlive('one'), true);
    await write('two', 0);
    assert.equal(await reader().isAlive('one'), false);
    assert.equal(await reader().isAlive('two'), true);
  });

  it('ends when the watch has brought nothing for some seconds', async () => {
    await write('one', MAX_SILENCE_MS - 1_000);
    assert.equal(await reader().isAlive('one'), true);
    await write('one', MAX_SILENCE_MS + 1_000);
    assert.equal(await reader().isAlive('one'), false);
  });

  it('is asked of Redis once for many jobs', async () => {
    await write('one', 0);
    const life = reader();
    await server.redis.config('RESETSTAT');
    const answers = await Promise.all(Array.from({ length: 50 }, () => life.isAlive('one')));
    assert.ok(answers.every(Boolean));
    const { hmget = 0 } = await server.commands();
    assert.equal(hmget, 1);
  });

  it('is none where Redis’ clock was set back', async () => {
    await server.redis.hset(watchKey('csi', driver), { watch: 'one', at: Date.now() + 60_000 });
    assert.equal(await reader().isAlive('one'), false);
  });

  it('is none while Redis refuses the question', async () => {
    await server.redis.set(watchKey('csi', driver), 'of another type');
    assert.equal(await reader().isAlive('one'), false);
  });
});
