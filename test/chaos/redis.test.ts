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

  it('loses nothing that it confirmed when the master is killed', async () => {
    const before = confirmed;
    await server.kill(20);
    await until(() => confirmed > before + 10, 'more numbers');
    assert.deepEqual(await missing(confirmed), []);
  });

  // Twice, so that each server is the master, then the replica.
  for (const turn of ['first', 'second'])
    it(`loses what it confirmed since the replication ended: ${turn} failover`, async () => {
      const before = confirmed;
      const loss = await server.failOver(200);
      const after = confirmed;
      await until(() => confirmed > after, 'the new master takes writes');
      const lost = await missing(after);
      assert.ok(lost.length > 0);
      assert.ok(Math.min(...lost) > before);
      // Counted besides: the number itself, and one that was written but not confirmed.
      const others = loss.keys - lost.length;
      assert.ok(others === 1 || others === 2, `${lost.length} lost, ${loss.keys} counted`);
      // A timer may be a millisecond early by this clock.
      assert.ok(loss.killedMs - loss.splitMs >= 199 && loss.overMs >= loss.killedMs);
    });

  it('loses nothing in a failover while no one writes', async () => {
    stopped.abort();
    await writing;
    const { keys } = await server.failOver(0);
    assert.equal(keys, 0);
    assert.deepEqual(await missing(confirmed), []);
  });

  it('names the records that a failover lost, and those that it opened again', async () => {
    const open = '{csi}:open:driver';
    const record = (id: string): string => `{csi}:volume:driver:${id}`;
    await client.hset(open, 'old', 'job');
    await client.hset(record('old'), 'state', 'creating');
    const failover = server.failOver(500);
    await until(
      async () => /connected_slaves:0/.test(await client.info('replication')),
      'the replication ends',
    );
    await client.hdel(open, 'old');
    await client.hset(record('old'), 'state', 'stored');
    await client.hset(open, 'new', 'job');
    await client.hset(record('new'), 'state', 'creating');
    const { records, forgotten, reopened } = await failover;
    assert.deepEqual(
      [[...records].sort(), forgotten, reopened],
      [['new', 'old'], ['new'], ['old']],
    );
  });
});
