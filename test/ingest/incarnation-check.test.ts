import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Redis } from 'ioredis';
import { leaseIncarnationStore } from '#src/ingest/lease-incarnation-store.ts';
import { IncarnationCheck } from '#src/ingest/incarnation-check.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { redisIncarnationStore } from '#src/records/incarnation.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';

const KEY = '{csi}:blessing:d';

describe('IncarnationCheck', () => {
  let server: TestRedis;
  let redis: Redis;
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let lease = 0;
  const open = (): IncarnationCheck =>
    new IncarnationCheck({
      incarnations: redisIncarnationStore(redis, 'csi', 'd'),
      store: leaseIncarnationStore({ client: kube, namespace: 'default', name: `lease-${lease}` }),
      quarantineMs: 40_000,
      log: silentLog,
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
    await redis.flushall();
  });

  it('begins an incarnation without quarantine in a Redis that was never used', async () => {
    assert.equal(await open().check(), false);
    assert.equal(await quarantine(), 0);
  });

  it('keeps the incarnation id on the Lease and leaves the rest of it alone', async () => {
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

  it('notices a Redis with another incarnation', async () => {
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

  it('sees a loss, not a first use, if a leader died before it annotated the Lease', async () => {
    const dying = new IncarnationCheck({
      incarnations: redisIncarnationStore(redis, 'csi', 'd'),
      store: {
        read: () => Promise.resolve(undefined),
        write: () => Promise.reject(new Error('killed')),
      },
      quarantineMs: 40_000,
      log: silentLog,
    });
    await assert.rejects(dying.check(), /killed/);
    assert.equal(await open().check(), true);
  });
});
