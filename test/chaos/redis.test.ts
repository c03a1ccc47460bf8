import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { silentLog } from '#src/runtime/log.ts';
import { ChaosRedis } from '../../chaos/redis.ts';
import { until } from '../harness/until.ts';

describe('ChaosRedis', () => {
  let dir = '';
  let server: ChaosRedis;
  let client: Redis;
  /** The last number that Redis confirmed. */
  let confirmed = 0;
  const stopped = new AbortController();
  let writing: Promise<void>;
  /** The confirmed numbers that Redis does not have. */
  const missing = async (upTo: number): Promise<readonly number[]> => {
    const numbers = Array.from({ length: upTo }, (_, i) => i + 1).filter((n) => !gone.has(n));
    const found = await Promise.all(numbers.map((n) => client.exists(`key ${n}`)));
    const lost = numbers.filter((_, i) => found[i] === 0);
    for (const n of lost) gone.add(n);
    return lost;
  };
  /** The numbers that were lost in earlier failovers. */
  const gone = new Set<number>();

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'sutler-chaos-redis-'));
    server = await ChaosRedis.start({ dataDir: dir, log: silentLog });
    client = new Redis(server.url, { retryStrategy: () => 20, maxRetriesPerRequest: null });
    client.on('error', () => undefined);
    writing = (async () => {
      // One number at a time, each in a key of its own too. The number never goes back by itself.
      while (!stopped.signal.aborted) {
        const next = confirmed + 1;
        const answers = await client.multi().set('number', next).set(`key ${next}`, next).exec();
        if (answers?.every(([error]) => error === null) === true) confirmed = next;
      }
    })();
    await until(() => confirmed > 10, 'the first numbers');
  });
  after(async () => {
    stopped.abort();
    await writing;
    client.disconnect();
    await server.close();
    await rm(dir, { recursive: true });
  });

  it('goes on without data when the master is killed', async () => {
    const before = confirmed;
    await server.kill(20);
    await until(() => confirmed > before + 10, 'more numbers');
    assert.equal((await missing(before)).length, before);
  });

  it('goes on without data when it is emptied', async () => {
    const before = confirmed;
    await server.flush();
    await until(() => confirmed > before + 10, 'more numbers');
    assert.ok((await missing(before)).length > 0);
  });

  it('goes on with the data that it had when a copy is restored', async () => {
    await missing(confirmed);
    const before = confirmed;
    await server.restore(200);
    const after = confirmed;
    await until(() => confirmed > after + 10, 'more numbers');
    const lost = await missing(after);
    assert.ok(lost.length > 0 && Math.min(...lost) > before);
    // The copy is gone: another kill loses everything.
    await server.kill(20);
    await until(() => confirmed > after + 20, 'more numbers');
    assert.ok((await missing(after)).length > 0);
  });

  // Twice, so that each server is the master, then the replica.
  for (const turn of ['first', 'second'])
    it(`loses what it confirmed since the replication ended: ${turn} failover`, async () => {
      await missing(confirmed);
      const before = confirmed;
      await server.failOver(200);
      const after = confirmed;
      await until(() => confirmed > after, 'the new master takes writes');
      const lost = await missing(after);
      assert.ok(lost.length > 0);
      assert.ok(Math.min(...lost) > before);
    });

  it('loses nothing in a failover while no one writes', async () => {
    stopped.abort();
    await writing;
    await server.failOver(0);
    assert.deepEqual(await missing(confirmed), []);
  });
});
