import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { silentLog } from '#src/runtime/log.ts';
import { ChaosRedis } from '../../chaos/redis.ts';

describe('ChaosRedis', () => {
  let dir = '';
  let server: ChaosRedis;
  let client: Redis;
  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'sutler-chaos-redis-'));
    server = await ChaosRedis.start({ dataDir: dir, log: silentLog });
    client = new Redis(server.url, { retryStrategy: () => 20, maxRetriesPerRequest: null });
    client.on('error', () => undefined);
  });
  after(async () => {
    client.disconnect();
    await server.close();
    await rm(dir, { recursive: true });
  });

  // A failover twice, so that each server is the master, then the replica.
  for (const [what, keepsOld, fault] of [
    ['is killed', false, () => server.kill(200)],
    ['is emptied', false, () => server.flush()],
    ['is set back to a copy', true, () => server.restore(200)],
    ['fails over', true, () => server.failOver(200)],
    ['fails over again', true, () => server.failOver(200)],
  ] as const)
    it(`${what}: it loses ${keepsOld ? 'the last that it confirmed' : 'everything'}`, async () => {
      await client.flushall();
      await client.set('old', 'x');
      const over = new AbortController();
      const ended = fault().finally(() => over.abort());
      let last = 0;
      // Redis confirms each before the next one.
      for (; !over.signal.aborted; last += 1) await client.set(`new ${last}`, 'x');
      await ended;
      // This one waits for the connection to the new master.
      await client.set('after', 'x');
      assert.equal(await client.exists('old'), keepsOld ? 1 : 0);
      const names = Array.from({ length: last }, (_, i) => `new ${i}`);
      const found = await Promise.all(names.map((name) => client.exists(name)));
      assert.ok(!keepsOld || found.includes(0), `all ${last} are there`);
    });
});
