import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Redis } from 'ioredis';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, Lease } from '#src/kube/objects.ts';
import { claims, leases } from '#src/kube/resources.ts';
import { registerQueues } from '#src/queue/registry.ts';
import { redisIncarnationStore } from '#src/records/incarnation.ts';
import { openJobs } from '#src/records/open-jobs.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { plannedRequest } from '../harness/planned-request.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';

const CLI = new URL('../../../dist/cli.js', import.meta.url).pathname;
const DRIVER = 'd.example';

describe('operator commands', () => {
  let server: TestRedis;
  let redis: Redis;
  let cluster: SandboxCluster;
  let kube: KubeClient;
  const sutler = (...args: string[]): Promise<{ code: number; out: string; err: string }> =>
    new Promise((resolve) => {
      const env = { PATH: process.env['PATH'], REDIS_URL: server.url };
      execFile(process.execPath, [CLI, ...args], { env }, (error, out, err) =>
        resolve({ code: error === null ? 0 : Number(error.code), out, err }),
      );
    });
  const records = (ownMs: number): VolumeRecords =>
    new VolumeRecords({ redis, prefix: 'csi', driver: DRIVER, ownMs, settleMs: 1000 });
  const open = async (ownMs: number): Promise<void> => {
    const job = { kind: 'claim', uid: 'u', namespace: 'ns', name: 'c' } as const;
    await records(ownMs).openCreate('u', {
      owner: 'a',
      job,
      planned: plannedRequest(),
      mode: 'plan',
    });
  };

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
    await redis.flushall();
    await redisIncarnationStore(redis, 'csi', DRIVER).begin({
      id: 'e',
      quarantineMs: 0,
      sequence: 0,
    });
    await registerQueues(redis, 'csi', [{ name: 'claims.d', driver: DRIVER, kind: 'claim' }]);
  });

  describe('sutler forget', () => {
    it('drops a record without an owner, and keeps who did so and why', async () => {
      await open(1);
      const { code, out } = await sutler(
        'forget',
        'u',
        `--driver-name=${DRIVER}`,
        '--why=array was replaced',
      );
      assert.equal(code, 0, out);
      assert.match(out, /^forgot u \(creating\)/);
      assert.equal((await openJobs(redis, 'csi', DRIVER)).size, 0);
      assert.equal(
        (
          JSON.parse((await redis.lrange(`{csi}:forgotten:${DRIVER}`, 0, 0))[0] ?? '') as {
            why: string;
          }
        ).why,
        'array was replaced',
      );
    });

    it('leaves a record that a run owns', async () => {
      await open(60_000);
      const { code, out } = await sutler('forget', 'u', `--driver-name=${DRIVER}`, '--why=x');
      assert.equal(code, 1);
      assert.match(out, /a run owns u for up to \d+ s more/);
    });

    it('names a missing argument', async () => {
      assert.match((await sutler('forget')).err, /name the record: sutler forget UID/);
      assert.match((await sutler('forget', 'u', '--driver-name=d')).err, /--why is missing/);
    });
  });

  describe('sutler uninstall', () => {
    const uninstall = (...args: string[]) =>
      sutler('uninstall', `--kubeconfig=${cluster.kubeconfig}`, ...args);

    it('refuses while a record is open', async () => {
      await open(1);
      const { code, out } = await uninstall('--yes');
      assert.equal(code, 1);
      assert.match(out, /1 volume records are open, ns\/c among them/);
    });

    it('only lists without --yes, then removes its finalizers, annotations and keys', async () => {
      const meta = {
        name: 'protected',
        namespace: 'default',
        finalizers: ['sutler.dev/volume-record', 'example.com/other'],
      };
      await kube.create<Claim>(claims, 'default', {
        metadata: meta,
        spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Mi' } } },
      });
      await kube.create<Lease>(leases, 'default', {
        metadata: {
          name: 'l',
          namespace: 'default',
          annotations: { 'sutler.dev/epoch': 'e', other: 'x' },
        },
        spec: {},
      });
      await redis.set('unrelated', '1');
      const read = async () => ({
        claim: (await kube.get<Claim>(claims, { namespace: 'default', name: 'protected' }))
          ?.metadata.finalizers,
        lease: (await kube.get<Lease>(leases, { namespace: 'default', name: 'l' }))?.metadata
          .annotations,
        keys: await redis.keys('*'),
      });
      const before = await read();
      const { out } = await uninstall();
      assert.match(out, /on 1 claims, .* on 1 Leases, 2 keys in Redis\nnothing was changed/);
      assert.deepEqual(await read(), before);
      assert.equal((await uninstall('--yes')).code, 0);
      const left = await read();
      assert.ok(
        left.claim?.includes('example.com/other') &&
          !left.claim.includes('sutler.dev/volume-record'),
      );
      assert.deepEqual([left.lease, left.keys], [{ other: 'x' }, ['unrelated']]);
    });
  });
});
