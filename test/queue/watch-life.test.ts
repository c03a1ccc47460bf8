import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { watchKey } from '#src/queue/queue-keys.ts';
import { MAX_SILENCE_MS, WatchLifeReader, WatchLifeWriter } from '#src/queue/watch-life.ts';
import { sleep } from '../harness/queue.ts';
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

  const place = () => ({ redis: server.redis, prefix: 'csi', driver });
  const reader = () => new WatchLifeReader(place());
  const write = (watch: string, ageMs: number) =>
    new WatchLifeWriter(place()).write(watch, performance.now() - ageMs);

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

  it('is not longer for a worker that asks again', async () => {
    await write('one', MAX_SILENCE_MS - 100);
    const life = reader();
    assert.equal(await life.isAlive('one'), true);
    await sleep(200);
    server.freeze();
    const answers = [life.isAlive('one'), life.isAlive('one')];
    server.thaw();
    assert.deepEqual(await Promise.all(answers), [false, false]);
  });

  it('is not longer where Redis has hung meanwhile', async () => {
    const writer = new WatchLifeWriter(place());
    await writer.write('one', performance.now());
    server.freeze();
    const written = writer.write('one', performance.now() - MAX_SILENCE_MS + 100);
    await sleep(200);
    server.thaw();
    await written;
    assert.equal(await reader().isAlive('one'), false);
  });

  it('is none while Redis refuses the question', async () => {
    await server.redis.set(watchKey('csi', driver), 'of another type');
    assert.equal(await reader().isAlive('one'), false);
  });
});
