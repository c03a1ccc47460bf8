import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import type { Redis } from 'ioredis';
import { drainOf } from '#src/election/lease-view.ts';
import type { Journal } from '#src/journal/journal.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { registerDriver } from '#src/queue/queues.ts';
import { redisUsers, urlOf } from '../harness/redis-users.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { runSutler } from '../harness/run-sutler.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';
import { openCreation } from './open-creation.ts';

const CLI = new URL('../../../dist/cli.js', import.meta.url).pathname;
const DRIVER = 'd.example';
const LEASE = { namespace: 'default', name: 'd-example' };

describe('sutler drain', () => {
  let server: TestRedis;
  let redis: Redis;
  let cluster: SandboxCluster;
  let kube: KubeClient;
  const where = (): readonly string[] => [
    `--kubeconfig=${cluster.kubeconfig}`,
    '--leader-election-namespace=default',
  ];
  const drain = (...args: string[]) =>
    runSutler(['drain', ...where(), ...args], { REDIS_URL: urlOf('operator', server.url) });
  /** A creation of which a call may be at work. */
  const open = (uid: string, doubtMs = 60_000): Promise<Journal> =>
    openCreation({ kube, server }, DRIVER, { uid, name: `claim-${uid}`, doubtMs });
  const readLease = (): Promise<Lease | undefined> => kube.get<Lease>(leases, LEASE);
  const isDrained = async (): Promise<boolean> =>
    drainOf((await readLease())?.metadata.annotations) !== undefined;

  before(async () => {
    server = await startTestRedis({ settings: redisUsers() });
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
    await registerDriver({ redis, prefix: 'csi', driver: DRIVER }, '');
  });
  afterEach(async () => {
    for (const { metadata } of (await kube.list<Lease>(leases, LEASE)).items)
      await kube.delete(leases, metadata);
  });

  it('annotates the driver’s Lease, and says that sutler can be removed', async () => {
    const { code, out, err } = await drain(`--driver-name=${DRIVER}`);
    assert.equal(code, 0, out + err);
    assert.match(out, /nothing that was begun is left; sutler can be removed: stop its ingest/);
    assert.equal(await isDrained(), true);
  });

  it('leaves what the holder has written to the Lease', async () => {
    const annotations = { 'sutler.dev/redis-history': '3/h' };
    const spec = { holderIdentity: 'sutler_a', leaseTransitions: 3 };
    await kube.create<Lease>(leases, 'default', { metadata: { ...LEASE, annotations }, spec });
    await drain();
    const lease = await readLease();
    assert.equal(lease?.spec?.holderIdentity, 'sutler_a');
    assert.equal(lease.metadata.annotations?.['sutler.dev/redis-history'], '3/h');
  });

  it('says what was begun, until when it is in doubt, and that nobody works on it', async () => {
    await open('busy');
    const { code, out } = await drain(`--driver-name=${DRIVER}`);
    assert.equal(code, 1, out);
    assert.match(out, /1 creation and 0 deletions are not finished; sutler can't be removed/);
    assert.match(out, /no ingest leads driver d\.example, .*see \/readyz of ingest/);
    assert.match(out, /ns\/claim-busy {2}busy {2}a call may be at work in the driver until \d{4}-/);
  });

  it('does not wait for a claim in the journal of which nothing was begun', async () => {
    const o = { uid: 'new', name: 'new' };
    await openCreation({ kube, server }, DRIVER, o);
    const { code, out } = await drain();
    assert.equal(code, 0, out);
  });

  it('drains the only driver where none is named, and prints JSON with -o json', async () => {
    await open('busy');
    const { code, out } = await drain('-o', 'json');
    const state = JSON.parse(out) as {
      driver: string;
      isDrained: boolean;
      creations: { uid: string }[];
    };
    assert.deepEqual(
      [code, state.driver, state.isDrained, state.creations.map(({ uid }) => uid)],
      [1, DRIVER, true, ['busy']],
    );
  });

  it('ends with status 1 if it is interrupted while it waits', async () => {
    await open('busy');
    const argv = [CLI, 'drain', ...where(), '--wait'];
    const env = { PATH: process.env['PATH'], REDIS_URL: urlOf('operator', server.url) };
    const waiting = spawn(process.execPath, argv, { env });
    const ended = once(waiting, 'exit');
    await until(isDrained, 'it has annotated the Lease');
    waiting.kill('SIGINT');
    assert.deepEqual(await ended, [1, null]);
  });

  it('waits until what was begun is finished', async () => {
    const journal = await open('last');
    const waiting = drain(`--driver-name=${DRIVER}`, '--wait');
    await until(isDrained, 'it has annotated the Lease');
    journal.finish(['last']);
    journal.hasten();
    const { code, out } = await waiting;
    assert.equal(code, 0, out);
    assert.match(out, /nothing that was begun is left/);
  });

  it('is ended by --undo', async () => {
    await drain(`--driver-name=${DRIVER}`);
    const { code, out } = await drain(`--driver-name=${DRIVER}`, '--undo');
    assert.equal(code, 0);
    assert.match(out, /the drain of d\.example is ended/);
    assert.equal(await isDrained(), false);
    assert.match((await drain(`--driver-name=${DRIVER}`, '--undo')).out, /was not drained/);
  });

  it('names what is missing or contradicts itself', async () => {
    await registerDriver({ redis, prefix: 'csi', driver: 'e' }, '');
    assert.match((await drain()).err, /--driver-name is missing: .* have d\.example, e/);
    assert.match(
      (await drain(`--driver-name=${DRIVER}`, '--undo', '--wait')).err,
      /give one of them/,
    );
  });
});
