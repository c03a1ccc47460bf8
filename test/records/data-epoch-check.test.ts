import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import type { Redis } from 'ioredis';
import { DataEpochCheck, leaseDataEpochStore } from '#src/records/data-epoch-check.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';

const KEY = '{csi}:blessing:d';
const QUARANTINE_MS = 40_000;

describe('DataEpochCheck', () => {
  let server: TestRedis;
  let redis: Redis;
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let lease = 0;
  let warnings: string[] = [];
  const leaseStore = () =>
    leaseDataEpochStore({ client: kube, namespace: 'default', name: `lease-${lease}` });
  const open = (): DataEpochCheck =>
    new DataEpochCheck({
      dataEpochs: redisDataEpochStore(redis, 'csi', 'd'),
      store: leaseStore(),
      quarantineMs: QUARANTINE_MS,
      log: createLogger({
        name: 'test',
        verbosity: 0,
        format: 'text',
        write: (line) => void (line.includes('WARN') && warnings.push(line)),
      }),
    });
  const quarantine = async (): Promise<number> => Number(await redis.hget(KEY, 'quarantineUntil'));

  before(async () => {
    server = await startTestRedis();
    redis = server.redis;
    cluster = await openSandboxCluster();
    kube = await cluster.client();
  });
  after(async () => {
    await cluster.close();
    await server.close();
  });
  beforeEach(async () => {
    lease += 1;
    warnings = [];
    await redis.flushall();
  });

  it('begins a data epoch without quarantine in a Redis that was never used', async () => {
    assert.equal(await open().check(), false);
    assert.equal(await quarantine(), 0);
  });

  it('keeps the data epoch id on the Lease and leaves the rest of it alone', async () => {
    await kube.create<Lease>(leases, 'default', {
      metadata: { name: `lease-${lease}`, namespace: 'default', annotations: { other: 'kept' } },
      spec: { holderIdentity: 'me' },
    });
    await open().check();
    const found = await kube.get<Lease>(leases, { namespace: 'default', name: `lease-${lease}` });
    assert.equal(found?.metadata.annotations?.['sutler.dev/epoch'], await redis.hget(KEY, 'epoch'));
    assert.equal(found?.metadata.annotations?.['other'], 'kept');
    assert.equal(found?.spec?.holderIdentity, 'me');
  });

  it('reports no loss while the sequence advances', async () => {
    const check = open();
    for (let checks = 0; checks < 5; checks += 1) assert.equal(await check.check(), false);
  });

  it('lets the next leader continue without quarantine', async () => {
    await open().check();
    assert.equal(await open().check(), false);
    assert.equal(await quarantine(), 0);
  });

  it('notices an emptied Redis and begins a quarantine of one ownership period', async () => {
    const check = open();
    await check.check();
    await redis.flushall();
    assert.equal(await check.check(), true);
    assert.ok((await quarantine()) > Date.now() + 30_000);
    assert.equal(await check.check(), false);
  });

  it('notices that Redis was emptied while no process led', async () => {
    await open().check();
    await redis.flushall();
    assert.equal(await open().check(), true);
  });

  it('notices a Redis with another data epoch', async () => {
    await open().check();
    lease += 1;
    await open().check();
    lease -= 1;
    assert.equal(await open().check(), true);
  });

  it('notices that Redis was restored from the past', async () => {
    const check = open();
    await check.check();
    const backup = await redis.dump(KEY);
    const buffer = await redis.dumpBuffer(KEY);
    assert.ok(backup !== null && buffer !== null);
    await check.check();
    await check.check();
    await redis.del(KEY);
    await redis.restore(KEY, 0, buffer);
    assert.equal(await check.check(), true);
  });

  it('names the worker that found that Redis lost its last writes', async () => {
    const check = open();
    await check.check();
    await redis.hdel(KEY, 'epoch');
    await redis.hset(KEY, 'withdrawnBy', 'jobs-7');
    assert.equal(await check.check(), true);
    assert.match(warnings.join(), /jobs-7 noticed/);
    assert.equal(await redis.hexists(KEY, 'withdrawnBy'), 0);
  });

  describe('after a crash', () => {
    /** A check whose n-th write, to Redis or to the Lease, never happens. */
    const openDying = (diesAtWrite: number): DataEpochCheck => {
      let writes = 0;
      const unlessDead =
        <A extends readonly unknown[]>(write: (...args: A) => Promise<void>) =>
        (...args: A): Promise<void> =>
          (writes += 1) >= diesAtWrite ? Promise.reject(new Error('killed')) : write(...args);
      const dataEpochs = redisDataEpochStore(redis, 'csi', 'd');
      const store = leaseStore();
      return new DataEpochCheck({
        dataEpochs: {
          advance: dataEpochs.advance,
          withdraw: unlessDead(dataEpochs.withdraw),
          begin: unlessDead(dataEpochs.begin),
        },
        store: { read: store.read, write: unlessDead(store.write) },
        quarantineMs: QUARANTINE_MS,
        log: silentLog,
      });
    };

    it('between Lease and Redis at first use, the next leader sees a loss', async () => {
      await assert.rejects(openDying(2).check(), /killed/);
      assert.equal(await redis.hexists(KEY, 'epoch'), 0, 'nothing is opened meanwhile');
      assert.equal(await open().check(), true);
      assert.ok((await quarantine()) > Date.now());
    });

    for (const diesAtWrite of [1, 2])
      it(`at write ${diesAtWrite} after Redis was emptied, the next leader sees a loss`, async () => {
        await open().check();
        await redis.flushall();
        await assert.rejects(openDying(diesAtWrite).check(), /killed/);
        assert.equal(await redis.hexists(KEY, 'epoch'), 0, 'nothing is opened meanwhile');
        assert.equal(await open().check(), true);
      });

    for (const diesAtWrite of [2, 3])
      it(`at write ${diesAtWrite} after Redis was exchanged, the next leader sees a loss`, async () => {
        await open().check();
        await redis.hset(KEY, 'epoch', 'of another Redis');
        await assert.rejects(openDying(diesAtWrite).check(), /killed/);
        assert.equal(await redis.hexists(KEY, 'epoch'), 0, 'nothing is opened meanwhile');
        assert.equal(await open().check(), true);
      });
  });

  describe('while the Lease can’t be written', () => {
    const forbid = (verb: 'create' | 'update' | 'get'): (() => void) =>
      cluster.api.faults.inject({
        action: { kind: 'status', code: 403, message: `may not ${verb} leases` },
        verb,
        plural: 'leases',
        times: Infinity,
      });
    const fails = (check: DataEpochCheck, why: RegExp): Promise<void> =>
      assert.rejects(check.check(), why);
    afterEach(() => cluster.api.faults.clear());

    for (const verb of ['create', 'update'] as const)
      it(`begins nothing in a new Redis, and names the right to ${verb} it`, async () => {
        if (verb === 'update')
          await kube.create<Lease>(leases, 'default', { metadata: { name: `lease-${lease}` } });
        const allow = forbid(verb);
        const check = open();
        for (let seconds = 0; seconds < 3; seconds += 1) await fails(check, /403/);
        assert.deepEqual(await redis.hmget(KEY, 'epoch', 'quarantineUntil'), [null, null]);
        assert.match(
          check.trouble ?? '',
          new RegExp(`may not ${verb} leases: grant .* create and update on leases .* default$`),
        );
        assert.equal(warnings.length, 1, 'logged once');
        allow();
        assert.equal(await check.check(), false);
        assert.equal(check.trouble, undefined);
        assert.equal(await quarantine(), 0);
      });

    it('begins no quarantine after a loss until it can be remembered, and opens nothing', async () => {
      const check = open();
      await check.check();
      await redis.flushall();
      const allow = forbid('update');
      for (let seconds = 0; seconds < 3; seconds += 1) await fails(check, /403/);
      assert.deepEqual(await redis.hmget(KEY, 'epoch', 'quarantineUntil'), [null, null]);
      allow();
      assert.equal(await check.check(), true);
      const untilMs = await quarantine();
      assert.equal(await check.check(), false);
      assert.equal(await open().check(), false, 'the next leader continues it');
      assert.equal(await quarantine(), untilMs);
    });

    it('withdraws at once what is not the data that was used before', async () => {
      const check = open();
      await check.check();
      await check.check();
      await redis.hset(KEY, 'beat', '0');
      const allow = forbid('update');
      await fails(check, /403/);
      assert.equal(await redis.hexists(KEY, 'epoch'), 0);
      allow();
      assert.equal(await check.check(), true);
    });

    it('leaves alone what an earlier leader confirmed if it can’t read the Lease', async () => {
      await open().check();
      const id = await redis.hget(KEY, 'epoch');
      forbid('get');
      const check = open();
      await fails(check, /403/);
      assert.match(check.trouble ?? '', /can’t tell whether Redis lost data.*grant .* get/);
      assert.equal(await redis.hget(KEY, 'epoch'), id);
    });

    it('goes on without the Lease while Redis holds the data epoch that it knows', async () => {
      const check = open();
      await check.check();
      cluster.api.faults.inject({ action: { kind: 'reset' }, plural: 'leases', times: Infinity });
      assert.equal(await check.check(), false);
      assert.equal(check.trouble, undefined);
    });

    it('takes an answer that was lost for a write, and begins without quarantine', async () => {
      cluster.api.faults.inject({
        action: { kind: 'lose-answer' },
        verb: 'create',
        plural: 'leases',
      });
      const check = open();
      await assert.rejects(check.check());
      assert.equal(await check.check(), false);
      assert.equal(await quarantine(), 0);
    });
  });

  it('sees a loss where both Redis and the Lease lost the data epoch that it knows', async () => {
    const check = open();
    await check.check();
    await redis.flushall();
    await kube.delete(leases, { namespace: 'default', name: `lease-${lease}` });
    assert.equal(await check.check(), true);
    assert.ok((await quarantine()) > Date.now());
  });

  for (const [what, times] of [
    ['first use', 0],
    ['loss', 1],
  ] as const)
    it(`sees a loss if Redis lost what it began at a ${what} before it could answer`, async () => {
      for (let uses = 0; uses < times; uses += 1) {
        await open().check();
        await redis.del(KEY);
      }
      const dataEpochs = redisDataEpochStore(redis, 'csi', 'd');
      const ids: string[] = [];
      const check = new DataEpochCheck({
        dataEpochs: {
          ...dataEpochs,
          begin: async (dataEpoch) => {
            ids.push(dataEpoch.id);
            await dataEpochs.begin(dataEpoch);
            if (ids.length === 1) throw new Error('Command timed out');
          },
        },
        store: leaseStore(),
        quarantineMs: QUARANTINE_MS,
        log: silentLog,
      });
      await assert.rejects(check.check(), /timed out/);
      await redis.del(KEY);
      assert.equal(await check.check(), true);
      assert.ok((await quarantine()) > Date.now());
      assert.notEqual(ids[0], ids[1], 'no id stands for the data before and after a loss');
    });

  it('reports a loss whose quarantine began although the answer was lost', async () => {
    await open().check();
    await redis.del(KEY);
    const dataEpochs = redisDataEpochStore(redis, 'csi', 'd');
    let begun = 0;
    const check = new DataEpochCheck({
      dataEpochs: {
        ...dataEpochs,
        begin: async (dataEpoch) => {
          begun += 1;
          await dataEpochs.begin(dataEpoch);
          throw new Error('Command timed out');
        },
      },
      store: leaseStore(),
      quarantineMs: QUARANTINE_MS,
      log: silentLog,
    });
    await assert.rejects(check.check(), /timed out/);
    assert.equal(await check.check(), true);
    assert.equal(await check.check(), false);
    assert.equal(begun, 1, 'the quarantine is not begun again');
  });

  it('writes the Lease once while Redis refuses to begin the data epoch', async () => {
    const check = open();
    await redis.config('SET', 'maxmemory', '1');
    await assert.rejects(check.check(), /OOM/);
    const name = `lease-${lease}`;
    const written = await kube.get<Lease>(leases, { namespace: 'default', name });
    await assert.rejects(check.check(), /OOM/);
    assert.deepEqual(await kube.get<Lease>(leases, { namespace: 'default', name }), written);
    await redis.config('SET', 'maxmemory', '0');
    assert.equal(await check.check(), false);
    assert.equal(await quarantine(), 0, 'it is still the first use');
  });
});
