import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Redis } from 'ioredis';
import { OtherProvisioner } from '#src/records/provisioning-pause.ts';
import { type DataEpochStore, redisDataEpochStore } from '#src/records/data-epoch.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const KEY = '{csi}:blessing:d';
const UPSTREAM = 'csi-provisioner-0';

describe('OtherProvisioner', () => {
  let server: TestRedis;
  let redis: Redis;
  let dataEpochs: DataEpochStore;
  let otherProvisioner: OtherProvisioner;
  const named = (): Promise<string | null> => redis.hget(KEY, 'foreign');
  /** Observes until the condition holds, as the tick of every second does. */
  const observeUntil = async (holder: string, condition: () => Promise<boolean>): Promise<void> => {
    otherProvisioner.observe(holder);
    await until(condition, `with the holder ${holder}`, 2_000);
  };
  const isNamed = async (): Promise<boolean> => (await named()) === UPSTREAM;

  before(async () => {
    server = await startTestRedis();
    redis = server.redis;
    dataEpochs = redisDataEpochStore(redis, 'csi', 'd');
  });
  after(() => server.close());
  beforeEach(async () => {
    await redis.flushall();
    otherProvisioner = new OtherProvisioner(dataEpochs, silentLog);
  });

  it('names a holder that is not sutler', async () => {
    await observeUntil(UPSTREAM, isNamed);
  });

  it('names it again at the next second after Redis was emptied', async () => {
    await observeUntil(UPSTREAM, isNamed);
    await redis.flushall();
    await observeUntil(UPSTREAM, isNamed);
  });

  it('names it again after a failover lost only that it was named', async () => {
    await dataEpochs.begin({ id: 'e', quarantineMs: 0, sequence: 0 });
    await observeUntil(UPSTREAM, isNamed);
    await redis.hdel(KEY, 'foreign');
    await observeUntil(UPSTREAM, isNamed);
  });

  it('names it again after a write that Redis refused', async () => {
    await redis.config('SET', 'maxmemory', '1');
    otherProvisioner.observe(UPSTREAM);
    await redis.get('answered after the write above');
    assert.equal(await named(), null);
    await redis.config('SET', 'maxmemory', '0');
    await observeUntil(UPSTREAM, isNamed);
  });

  it('sends nothing while no other provisioner holds the Lease', async () => {
    await redis.hset(KEY, 'foreign', UPSTREAM);
    await redis.config('RESETSTAT');
    otherProvisioner.observe(undefined);
    await redis.ping();
    const { hset = 0, hdel = 0 } = await server.commands();
    assert.deepEqual([hset, hdel], [0, 0]);
    assert.equal(await named(), UPSTREAM, 'only the leader removes what another process named');
  });

  it('is forgotten at the first check of a leader of ours', async () => {
    await observeUntil(UPSTREAM, isNamed);
    await dataEpochs.advance('');
    assert.equal(await named(), null);
  });
});
