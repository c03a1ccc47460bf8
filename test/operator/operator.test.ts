import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { Redis } from 'ioredis';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, Lease } from '#src/kube/objects.ts';
import { claims, leases, nodes } from '#src/kube/resources.ts';
import { main as auditMain } from '#src/operator/audit.ts';
import { commandMain, type Means, type Result } from '#src/operator/command.ts';
import { audit, forget, status } from '#src/operator/flags.ts';
import { repeat } from '#src/operator/repeat.ts';
import { processes } from '#src/processes.ts';
import { registerQueues } from '#src/queue/queues.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { openJobs } from '#src/records/open-records.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import type { Invocation } from '#src/runtime/process.ts';
import { plannedRequest } from '../harness/planned-request.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { startReplica } from '../harness/replicas.ts';
import { runSutler } from '../harness/run-sutler.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';

const DRIVER = 'd.example';

describe('operator commands', () => {
  let server: TestRedis;
  let redis: Redis;
  let cluster: SandboxCluster;
  let kube: KubeClient;
  const sutler = (...args: string[]) => runSutler(args, { REDIS_URL: server.url });
  const records = (ownMs: number): VolumeRecords =>
    new VolumeRecords({ redis, prefix: 'csi', driver: DRIVER, ownMs, settleMs: 1000 });
  const open = async (ownMs: number, uid = 'u'): Promise<void> => {
    const job = { kind: 'claim', uid, namespace: 'ns', name: 'c' } as const;
    await records(ownMs).openCreate(uid, {
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
    await redisDataEpochStore(redis, 'csi', DRIVER).begin({
      id: 'e',
      quarantineMs: 0,
      sequence: 0,
    });
    await registerQueues(redis, 'csi', [{ name: 'claims.d', driver: DRIVER, kind: 'claim' }]);
  });

  describe('sutler forget', () => {
    it('drops a record without an owner, says so as text or JSON, and keeps why', async () => {
      await open(1);
      await open(1, 'v');
      const { code, out } = await sutler('forget', 'u', '--why=array was replaced');
      assert.equal(code, 0, out);
      assert.match(out, /^forgot u \(creating\)/);
      const json = await sutler('forget', 'v', '--why=x', '-o', 'json');
      assert.deepEqual(JSON.parse(json.out), { driver: DRIVER, id: 'v', state: 'creating' });
      assert.equal((await openJobs(redis, 'csi', DRIVER)).size, 0);
      const [, note = ''] = await redis.lrange(`{csi}:forgotten:${DRIVER}`, 0, 1);
      assert.equal((JSON.parse(note) as { why: string }).why, 'array was replaced');
    });

    it('leaves a closed record, and says that there is nothing to drop', async () => {
      await open(1);
      await records(1).closeStored('u', 'a');
      const { code, err } = await sutler('forget', 'u', '--why=x');
      assert.equal(code, 1);
      assert.match(
        err,
        /record u of driver d\.example \(stored\) is closed; there is nothing to drop/,
      );
      assert.equal(await redis.hget(`{csi}:volume:${DRIVER}:u`, 'state'), 'stored');
    });

    it('leaves a record that a run owns', async () => {
      await open(60_000);
      const { code, err } = await sutler('forget', 'u', `--driver-name=${DRIVER}`, '--why=x');
      assert.equal(code, 1);
      assert.match(err, /a run owns u for up to \d+ s more/);
    });

    for (const [what, name] of [
      ['a UID', '3f1c5a52-0c7e'],
      ['a claim', 'ns/c'],
    ] as const)
      it(`ends with 1 and names the likeliest record for ${what} that has none`, async () => {
        await open(1, '3f1c5a52-0c7f');
        const { code, err } = await sutler('forget', name, '--why=x');
        assert.equal(code, 1);
        assert.match(err, /has no volume record \S+ \(1 .*\): did you mean 3f1c5a52-0c7f\?/);
      });

    it('ends with 1 and names the likeliest driver for one that does not exist', async () => {
      const { code, err } = await sutler('forget', 'u', '--driver-name=d.exmaple', '--why=x');
      assert.equal(code, 1);
      assert.match(err, /no sutler serves driver d\.exmaple \(.*\): did you mean d\.example\?/);
    });

    it('names a missing argument', async () => {
      assert.match((await sutler('forget')).err, /name the record: sutler forget UID/);
      assert.match((await sutler('forget', 'u', '--driver-name=d')).err, /--why is missing/);
    });
  });

  describe('sutler abandon', () => {
    it('names the likeliest node that is gone and waited for, for one that is neither', async () => {
      await kube.create(nodes, undefined, { metadata: { name: 'node-70' } });
      await kube.create<Claim>(claims, 'default', {
        metadata: {
          name: 'waits',
          namespace: 'default',
          annotations: {
            'volume.kubernetes.io/storage-provisioner': DRIVER,
            'volume.kubernetes.io/selected-node': 'node-17',
          },
        },
        spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Mi' } } },
      });
      const where = [`--kubeconfig=${cluster.kubeconfig}`, `--driver-name=${DRIVER}`];
      const { code, err } = await sutler('abandon', 'node-71', ...where);
      assert.equal(code, 1);
      assert.match(
        err,
        /nothing of driver d\.example waits for a node node-71: did you mean node-17/,
      );
    });
  });

  describe('every command', () => {
    const commands = Object.entries(processes).filter(([, { command }]) => command !== undefined);

    for (const [name, { command }] of commands)
      it(`${name} has examples, exit statuses and groups of flags in its help, and refuses others’ flags`, async () => {
        const { out } = await sutler(name, '--help');
        for (const part of ['Examples', 'Exit status', 'Redis', 'Logs'])
          assert.ok(out.includes(`\n${part}:\n`), part);
        assert.ok(command !== undefined && 2 in command.exits);
        const json = await sutler(name, '--json');
        assert.equal(json.code, 2);
        assert.match(json.err, /unknown flag --json: did you mean --output=json\?/);
        assert.match((await sutler(name, '--worker-threads=4')).err, /unknown flag/);
        assert.match(
          (await sutler(name, '-o', 'toml')).err,
          /"toml" is not one of text, wide, json, yaml/,
        );
      });

    it('ends with 1 and a sentence if Redis can’t be reached', async () => {
      const run = async ({ openRedis }: Means<typeof forget.flags>): Promise<Result> => {
        await openRedis();
        return assert.fail('Redis can be used');
      };
      const main = commandMain({ name: 'forget', ...forget }, run, 300);
      const table = { forget: { ...forget, load: () => Promise.resolve({ main }) } };
      const unreachable = ['forget', '--redis-url=redis://127.0.0.1:1'];
      const { code, out, err } = await runSutler(unreachable, {}, table);
      assert.deepEqual([code, out], [1, '']);
      assert.match(
        err,
        /^sutler forget: Redis at 127\.0\.0\.1:1 can't be reached \(ECONNREFUSED\): start it, or[^\n]*\n$/,
      );
    });
  });

  it('sutler status --watch prints each change, as JSON too', async () => {
    const main = commandMain({ name: 'status', ...status }, (means) => {
      let looks = 0;
      return repeat(means, () => {
        looks += 1;
        if (looks === 2) means.context.stop(0);
        return Promise.resolve({ status: 0, lines: [`look ${looks}`], json: { looks } });
      });
    });
    const table = { status: { ...status, load: () => Promise.resolve({ main }) } };
    const { code, out } = await runSutler(['status', '--watch', '-o', 'json'], {}, table);
    assert.equal(code, 0);
    assert.equal(out.replaceAll(/\s/g, ''), '{"looks":1}{"looks":2}');
  });

  describe('sutler audit', () => {
    it('ends with 1 and a sentence if no driver answers', async () => {
      const main = (invocation: Invocation) => auditMain(invocation, 1_000);
      const table = { audit: { ...audit, load: () => Promise.resolve({ main }) } };
      const where = [`--kubeconfig=${cluster.kubeconfig}`, '--gateway=unix:///nowhere.sock'];
      const env = { REDIS_URL: server.url };
      const { code, err } = await runSutler(['audit', ...where], env, table);
      assert.equal(code, 1);
      assert.match(
        err,
        /^sutler audit: no driver answered within 1 s \(gateway unix:\/\/\/nowhere\S*: .+\): start the driver, or name its gateway with --gateway\n$/,
      );
    });

    it('refuses a --redis-prefix without the driver, and works once its queues are there', async (t) => {
      const replica = await startReplica();
      t.after(() => replica.close());
      const name = 'sample.csi.sutler.dev';
      const where = [
        `--kubeconfig=${cluster.kubeconfig}`,
        `--gateway=dns:///127.0.0.1:${replica.port}`,
      ];
      const { code, err } = await sutler('audit', ...where, '--redis-prefix=nope');
      assert.equal(code, 1);
      assert.match(
        err,
        /no sutler serves driver \S+ \(this Redis and --redis-prefix=nope have none\)/,
      );
      assert.deepEqual(await redis.keys('{nope}:*'), []);
      await registerQueues(redis, 'nope', [{ name: 'claims.s', driver: name, kind: 'claim' }]);
      const registered = await sutler('audit', ...where, '--redis-prefix=nope');
      assert.equal(registered.code, 0, registered.err);
    });

    it('refuses a --driver-name that no sutler serves, and names those that are', async () => {
      const where = [`--kubeconfig=${cluster.kubeconfig}`, '--gateway=unix:///nowhere.sock'];
      const { code, err } = await sutler('audit', ...where, '--driver-name=d.exmaple');
      assert.equal(code, 1);
      assert.match(err, /no sutler serves driver d\.exmaple \(.*\): did you mean d\.example\?/);
    });
  });

  describe('sutler uninstall', () => {
    const uninstall = (...args: string[]) =>
      sutler('uninstall', `--kubeconfig=${cluster.kubeconfig}`, ...args);

    it('says that there is nothing to remove with a --redis-prefix that is not in use', async () => {
      const { code, out } = await uninstall('--redis-prefix=nope', '--yes');
      assert.equal(code, 0);
      assert.match(out, /there is nothing to remove/);
      assert.doesNotMatch(out, /removed all/);
    });

    it('refuses while a record is open', async () => {
      await open(1);
      const { code, err } = await uninstall('--yes');
      assert.equal(code, 1);
      assert.match(err, /1 volume records are open, ns\/c among them/);
    });

    it('only lists without --yes, then removes its finalizers, annotations and keys', async () => {
      const meta = {
        name: 'protected',
        namespace: 'default',
        annotations: { 'volume.kubernetes.io/storage-provisioner': DRIVER },
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
      assert.match(out, /on 1 claims, .* on 1 Leases, 2 keys in Redis\n(.*\n)*nothing was changed/);
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
