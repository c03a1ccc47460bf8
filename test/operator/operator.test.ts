import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import type { Redis } from 'ioredis';
import type { KubeClient } from '#src/kube/client.ts';
import type { Journal } from '#src/journal/journal.ts';
import { listJournal } from '#src/journal/list-journal.ts';
import type { Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { main as auditMain } from '#src/operator/audit.ts';
import { commandMain, type Means, type Result } from '#src/operator/command.ts';
import { audit, forget } from '#src/operator/flags.ts';
import { processes } from '#src/processes.ts';
import { registerDriver } from '#src/queue/queues.ts';
import { forgetKey } from '#src/queue/work-queue.ts';
import type { Invocation } from '#src/runtime/process.ts';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { runSutler } from '../harness/run-sutler.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { openCreation } from './open-creation.ts';

const DRIVER = 'd.example';

describe('operator commands', () => {
  let server: TestRedis;
  let redis: Redis;
  let cluster: SandboxCluster;
  let kube: KubeClient;
  const sutler = (...args: string[]) => runSutler(args, { REDIS_URL: server.url });
  const journals: Journal[] = [];
  const open = async (
    uid: string,
    more: { readonly doubtMs?: number; readonly node?: string } = {},
  ): Promise<void> => {
    const o = { uid, name: 'c', ...more };
    journals.push(await openCreation({ kube, server }, DRIVER, o));
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
  afterEach(async () => {
    journals.length = 0;
    for (const { metadata } of (await kube.list<Lease>(leases, { namespace: 'default' })).items)
      await kube.delete(leases, metadata);
  });
  beforeEach(async () => {
    await redis.flushall();
    await registerDriver({ redis, prefix: 'csi', driver: DRIVER }, '');
  });

  describe('sutler forget', () => {
    const where = (): readonly string[] => [
      `--kubeconfig=${cluster.kubeconfig}`,
      '--leader-election-namespace=default',
    ];
    const forgetClaim = (...args: string[]) => sutler('forget', ...where(), ...args);
    const stored = async (): Promise<readonly string[]> => {
      const place = { namespace: 'default', lease: 'd-example', driver: DRIVER };
      return (await listJournal(kube, place)).map(({ uid }) => uid);
    };
    /** As the leader does once a second.
     * @returns ends that */
    const lead = (): (() => void) => {
      const look = async (): Promise<void> => {
        for (const uid of await redis.hkeys(forgetKey('csi', DRIVER))) {
          journals[0]?.finish([uid]);
          journals[0]?.hasten();
        }
      };
      const timer = setInterval(() => void look(), 50);
      return () => clearInterval(timer);
    };

    it('has the leader drop the claim’s entry, and says so as text or JSON', async (t) => {
      await open('u');
      t.after(lead());
      const { code, out, err } = await forgetClaim('u', '--why=array was replaced');
      assert.equal(code, 0, out + err);
      assert.match(out, /^forgot u \(ns\/c\)\. If its volume exists, .*run sutler audit/);
      assert.deepEqual(await stored(), []);
      await open('v');
      journals.reverse();
      const json = await forgetClaim('v', '--why=x', '-o', 'json');
      assert.deepEqual(JSON.parse(json.out), {
        version: 1,
        driver: DRIVER,
        uid: 'v',
        claim: 'ns/c',
      });
    });

    it('finds the claim in the journal of a process for one node', async (t) => {
      await open('u', { node: 'node-1' });
      t.after(lead());
      assert.equal((await forgetClaim('u', '--why=x')).code, 0);
    });

    it('ends with 1 and says how many entries there are for a UID that has none', async () => {
      await open('3f1c5a52-0c7f');
      const { code, err } = await forgetClaim('3f1c5a52-0c7e', '--why=x');
      assert.equal(code, 1);
      assert.match(err, /has no entry 3f1c5a52-0c7e \(it has 1; .*\)/);
    });

    it('ends with 1 and names the UID where the claim’s name was given', async () => {
      await open('u');
      const { err } = await forgetClaim('ns/c', '--why=x');
      assert.match(err, /has no entry ns\/c .*the UID of that claim is u/);
    });

    it('changes nothing while a run is at work on the claim', async () => {
      await open('u');
      const root = `{csi}:claims.${DRIVER}:`;
      await redis.zrem(`${root}prioritized`, 'u');
      await redis.lpush(`${root}active`, 'u');
      await redis.hset(`${root}u`, 'processedOn', Date.now());
      const { code, err } = await forgetClaim('u', '--why=x');
      assert.equal(code, 1);
      assert.match(err, /a run is at work on u: nothing was changed/);
      assert.deepEqual(await stored(), ['u']);
    });

    it('ends with 1 and names the drivers for one that does not exist', async () => {
      const { code, err } = await forgetClaim('u', '--driver-name=d.exmaple', '--why=x');
      assert.equal(code, 1);
      assert.match(err, /no sutler serves driver d\.exmaple \(.*d\.example\)/);
    });

    it('names a missing argument', async () => {
      assert.match((await sutler('forget')).err, /name the claim’s UID: sutler forget UID/);
      assert.match((await sutler('forget', 'u', '--driver-name=d')).err, /--why is missing/);
    });
  });

  describe('every command', () => {
    const commands = Object.entries(processes).filter(([, { command }]) => command !== undefined);

    for (const [name, { command }] of commands) {
      it(`${name} has examples, exit statuses and groups of flags in its help`, async () => {
        const { out } = await sutler(name, '--help');
        for (const part of ['Examples', 'Exit status', 'Redis', 'Logs'])
          assert.ok(out.includes(`\n${part}:\n`), part);
        assert.ok(command !== undefined && 2 in command.exits);
      });
    }

    it('ends with 1 and a sentence if Redis can’t be reached', async () => {
      const run = async ({ openRedis }: Means<typeof forget.flags>): Promise<Result> => {
        await openRedis();
        return assert.fail('Redis can be used');
      };
      const main = commandMain(forget, run, 300);
      const table = { forget: { ...forget, load: () => Promise.resolve({ main }) } };
      const unreachable = ['forget', '--redis-url=redis://127.0.0.1:1'];
      const { code, out, err } = await runSutler(unreachable, {}, table);
      assert.deepEqual([code, out], [1, '']);
      assert.match(
        err,
        /^sutler forget: Redis at 127\.0\.0\.1:1 can't be reached \(ECONNREFUSED\): start it[^\n]*\n$/,
      );
    });
  });

  it('sutler explain takes the namespace from -n for a claim that has none', async () => {
    const where = `--kubeconfig=${cluster.kubeconfig}`;
    const { code, err } = await sutler('explain', where, '-n', 'other', 'c');
    assert.equal(code, 1);
    assert.match(err, /there is no claim other\/c: kubectl get pvc -A/);
    assert.match((await sutler('explain', where, 'a/b/c')).err, /"a\/b\/c" names no claim/);
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
        /^sutler audit: no driver answered within 1 s \(unix:\/\/\/nowhere\S*: .+\): start [^\n]+\n$/,
      );
    });

    it('refuses a --redis-prefix without the driver, and works once its queues are there', async (t) => {
      const folder = await makeFolder();
      t.after(() => folder.remove());
      const socket = folder.file('csi.sock');
      const driver = await startSampleDriver({ socket, dataDir: folder.file('volumes') });
      t.after(() => driver.close());
      const name = 'sample.csi.sutler.dev';
      const where = [`--kubeconfig=${cluster.kubeconfig}`, `--gateway=unix://${socket}`];
      const { code, err } = await sutler('audit', ...where, '--redis-prefix=nope');
      assert.equal(code, 1);
      assert.match(err, /this Redis and --redis-prefix=nope have no driver/);
      assert.deepEqual(await redis.keys('{nope}:*'), []);
      await registerDriver({ redis, prefix: 'nope', driver: name }, '');
      const registered = await sutler('audit', ...where, '--redis-prefix=nope');
      assert.equal(registered.code, 0, registered.err);
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

    it('refuses while a creation that was begun is not finished', async () => {
      await open('u', { doubtMs: 60_000 });
      const { code, err } = await uninstall('--yes');
      assert.equal(code, 1);
      assert.match(err, /1 creations are not finished, ns\/c among them; nothing was removed/);
    });

    it('only lists without --yes, then removes journal, annotations and keys', async () => {
      await open('u');
      const history = await redis.get(`{csi}:jobs-history:${DRIVER}`);
      const annotations = { 'sutler.dev/redis-history': `1/${history}`, other: 'x' };
      const metadata = { name: 'd-example', namespace: 'default', annotations };
      await kube.create<Lease>(leases, 'default', { metadata, spec: {} });
      await redis.set('unrelated', '1');
      const read = async () => ({
        leases: (await kube.list<Lease>(leases, { namespace: 'default' })).items.map(
          (each) => [each.metadata.name, each.metadata.annotations] as const,
        ),
        keys: await redis.keys('*'),
      });
      const before = await read();
      const { out } = await uninstall();
      const counts = /^1 Leases of the journal, annotation \S+ on 1 Leases, \d+ keys in Redis$/m;
      assert.match(out, counts);
      assert.match(out, /^nothing was changed/m);
      assert.deepEqual(await read(), before);
      assert.equal((await uninstall('--yes')).code, 0);
      assert.deepEqual(await read(), {
        leases: [['d-example', { other: 'x' }]],
        keys: ['unrelated'],
      });
    });
  });
});
