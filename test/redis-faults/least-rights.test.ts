import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import type { Volume } from '#src/kube/objects.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { checkSettings } from '#src/redis/settings.ts';
import { RIGHT, type RunningDashboard, startTestDashboard } from '../harness/dashboard-server.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import type { Running } from '../harness/run-main.ts';
import { denials, type RedisUser, redisUsers, urlOf } from '../harness/redis-users.ts';
import { installCrds, snapshotCrds } from '../harness/snapshot-crds.ts';
import { until } from '../harness/until.ts';

const QUEUE = `claims.${DRIVER}`;

describe('the users of k8s/redis/users.acl', () => {
  let bed: ProcessBed;
  let jobs: Running;
  const connections: Redis[] = [];
  const as = (user: RedisUser): Redis => {
    const redis = new Redis(urlOf(user, bed.redis.url), { disableClientInfo: true });
    redis.on('error', () => undefined);
    connections.push(redis);
    return redis;
  };
  before(async () => {
    bed = await ProcessBed.open();
    await installCrds(bed.kube, snapshotCrds);
    const login = 'csi.storage.k8s.io/provisioner-secret';
    const parameters = { [`${login}-name`]: 'none', [`${login}-namespace`]: 'default' };
    await bed.createClass('locked', { provisioner: DRIVER, parameters });
    const short = ['--timeout=1s', '--settle-time=100ms'];
    await bed.startIngest(
      '--snapshot-orphan-sweep-interval=500ms',
      '--audit-interval=1s',
      // After a loss of data, deletions wait until no call can be at work.
      ...short,
    );
    jobs = await bed.startJobs(...short);
  });
  after(async () => {
    for (const redis of connections) redis.disconnect();
    // What the last tests had denied on purpose.
    await denials(bed.redis.redis);
    await bed.close();
  });

  /** A claim whose secret is missing. */
  const newStuckClaim = () => bed.newClaim('1Mi', { storageClassName: 'locked' });
  const provisionAndDelete = async (): Promise<void> => {
    const claim = await bed.newClaim();
    await until(() => bed.isBound(claim), 'the claim is bound');
    await bed.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    await until(
      async () => (await bed.kube.list<Volume>(volumes, {})).items.length === 0,
      'its volume is deleted',
    );
  };

  it('let ingest and jobs recover from an emptied Redis, and nothing is denied', async () => {
    await bed.redis.redis.flushall();
    await provisionAndDelete();
    await bed.redis.kill();
    await bed.redis.start();
    await provisionAndDelete();
    assert.deepEqual(await denials(bed.redis.redis), []);
  });

  it('let the settings be checked by every user', async () => {
    for (const user of ['ingest', 'jobs', 'operator'] as const)
      assert.deepEqual(await checkSettings(as(user)), [], user);
  });

  it('let an operator run every command', async () => {
    const claim = await newStuckClaim();
    const forget = ['forget', claim.metadata.uid, `--driver-name=${DRIVER}`, '--why=test'] as const;
    await until(
      async () => (await bed.operate(...forget)).startsWith('forgot '),
      'it is forgotten',
    );
    await bed.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    assert.match(await bed.operate('audit'), /volumes/);
    assert.match(await bed.operate('drain'), /sutler can be removed/);
    assert.match(await bed.operate('drain', '--undo'), /is ended/);
    // test/operator/uninstall.test.ts removes an installation as this user.
    assert.match(await bed.operate('uninstall'), /is still running/);
    assert.deepEqual(await denials(bed.redis.redis), []);
  });

  describe('let a command that runs', () => {
    let object: string;
    before(async () => {
      object = `default/${(await newStuckClaim()).metadata.name}`;
      const isTold = async () => (await bed.operate('status', '-o', 'wide')).includes(object);
      await until(isTold, 'it waits for its secret');
      // Of the tests before.
      await denials(bed.redis.redis);
    });
    after(async () => {
      const [namespace = '', name = ''] = object.split('/');
      await bed.kube.delete(claims, { namespace, name });
      const queue = new Queue(QUEUE, { connection: bed.redis.redis, prefix: '{csi}' });
      await until(async () => (await queue.getDelayedCount()) === 0, 'its job has ended');
      await queue.close();
    });

    it('in a container of ingest look, retry, drain and forget', async () => {
      assert.match(await bed.operateAs('ingest', 'status'), /pending: Secret/);
      assert.match(await bed.operateAs('ingest', 'explain', object), /not found/);
      assert.equal(await bed.operateAs('ingest', 'retry', object), `${object}: tried now\n`);
      assert.match(await bed.operateAs('ingest', 'drain', '--undo'), /was not drained/);
      assert.match(await bed.operateAs('ingest', 'forget', 'none', '--why=x'), /has no entry/);
      assert.deepEqual(await denials(bed.redis.redis), []);
    });

    it('in a container of the dashboard look', async () => {
      assert.match(await bed.operateAs('dashboard', 'status'), /pending: Secret/);
      assert.deepEqual(await denials(bed.redis.redis), []);
    });

    it('in a container of jobs say where it works', async () => {
      assert.match(
        await bed.operateAs('jobs', 'status'),
        /run this in a container of ingest .*sutler-operator/,
      );
      await denials(bed.redis.redis);
    });
  });

  describe('for the dashboard', () => {
    let reader: RunningDashboard;
    let promoter: RunningDashboard;
    let queue: Queue;
    let pending: string;
    before(async () => {
      const { metadata } = await newStuckClaim();
      pending = `/claims/default/${metadata.name}`;
      queue = new Queue(QUEUE, { connection: bed.redis.redis, prefix: '{csi}' });
      const isDelayed = async () => (await queue.getJobState(metadata.uid)) === 'delayed';
      // Longer than the delays before it.
      const endMs = Date.now() + 1_000;
      await until(async () => Date.now() > endMs && (await isDelayed()), 'it is delayed');
      await jobs.stop();
      await queue.add('claim', {}, { jobId: 'a~1', delay: 3_600_000 });
      const url = bed.redis.url;
      const options = { allowActions: true };
      reader = await startTestDashboard(urlOf('dashboard', url), options);
      promoter = await startTestDashboard(urlOf('promoter', url), options);
    });
    after(async () => {
      await reader.close();
      await promoter.close();
      await queue.close();
    });

    it('show all pages, and nothing is denied', async () => {
      for (const dashboard of [reader, promoter])
        for (const path of ['/', pending])
          await until(
            async () => (await dashboard.send(path, { basic: RIGHT })).status === 200,
            path,
          );
      const paths = ['', `/${QUEUE}/a~1`, `/${QUEUE}/a~1/logs`, `/${QUEUE}/a~1/flow`];
      for (const dashboard of [reader, promoter])
        for (const path of [...paths, `?activeQueue=${QUEUE}&status=delayed&page=1`]) {
          const reply = await dashboard.send(`/queues/api/queues${path}`, { basic: RIGHT });
          assert.ok([200, 404].includes(reply.status), `${path}: ${reply.status} ${reply.text}`);
        }
      assert.deepEqual(await denials(bed.redis.redis), []);
    });

    it('try a claim now as sutler-promoter', async () => {
      const reply = await promoter.send(`${pending}/retry`, { method: 'POST', basic: RIGHT });
      assert.equal(reply.status, 303);
      assert.equal(await queue.getDelayedCount(), 1, 'it is not delayed any more');
      assert.deepEqual(await denials(bed.redis.redis), []);
    });

    it('try nothing now as sutler-dashboard', async () => {
      const reply = await reader.send(`${pending}/retry`, { method: 'POST', basic: RIGHT });
      assert.equal(reply.status, 503);
    });
  });

  const WRITES = [
    ['SET', '{csi}:epoch', 'x'],
    ['DEL', `{csi}:${QUEUE}:a~1`],
    ['UNLINK', '{csi}:drivers'],
    ['GET', '{csi}:epoch'],
    ['HDEL', `{csi}:forget:${DRIVER}`, 'uid'],
    ['RPUSH', `{csi}:${QUEUE}:wait`, 'x'],
    ['EVAL', "return redis.call('SET', KEYS[1], 'x')", '1', '{csi}:epoch'],
  ] as const;
  /** What each user must not do. */
  const FORBIDDEN: Readonly<Record<RedisUser, readonly (readonly string[])[]>> = {
    dashboard: [
      ...WRITES,
      ['ZREM', `{csi}:${QUEUE}:delayed`, 'a~1'],
      ['LPUSH', `{csi}:${QUEUE}:wait`, 'x'],
      ['HSET', `{csi}:${QUEUE}:a~1`, 'data', 'x'],
      ['EVAL', "return redis.call('LPUSH', KEYS[1], 'x')", '1', `{csi}:${QUEUE}:wait`],
    ],
    promoter: [
      ...WRITES,
      ['HSET', `{csi}:${QUEUE}:meta`, 'paused', '1'],
      ['ZREM', `{csi}:${QUEUE}:prioritized`, 'b~1'],
      ['EVAL', "return redis.call('DEL', KEYS[1])", '1', `{csi}:${QUEUE}:a~1`],
      ['HSET', `{csi}:forget:${DRIVER}`, 'u', 'x'],
      ['SET', `{csi}:term:${DRIVER}`, 'x'],
    ],
    ingest: [
      ['HSET', `{csi}:room:${DRIVER}`, 'uid', 'x'],
      ['EVAL', "return redis.call('DEL', KEYS[1])", '1', `{csi}:class:${QUEUE}:gold`],
      ['KEYS', '*'],
    ],
    jobs: [
      ['HSET', `{csi}:gateway:${DRIVER}`, 'address', 'x'],
      ['DEL', `{csi}:shared:${DRIVER}`],
      ['SET', `{csi}:term:${DRIVER}`, 'x'],
      ['SET', `{csi}:jobs-history:${DRIVER}`, 'x'],
      ['HSET', '{csi}:drivers', 'q', 'x'],
      ['KEYS', '*'],
    ],
    all: [['KEYS', '*']],
    operator: [['KEYS', '*']],
  };
  const FORBIDDEN_TO_ALL = [
    ['FLUSHALL'],
    ['CONFIG', 'GET', '*'],
    ['ACL', 'LIST'],
    ['MONITOR'],
    ['SCRIPT', 'FLUSH'],
    ['REPLICAOF', '127.0.0.1', '1'],
    ['PUBLISH', 'channel', 'x'],
    ['GET', '{other}:epoch'],
    ['SET', '{other}:epoch', 'x'],
    ['EVAL', "return redis.call('GET', KEYS[1])", '1', '{other}:epoch'],
    ['EVAL', "return redis.call('GET', '{other}:epoch')", '0'],
  ] as const;

  for (const user of ['dashboard', 'promoter', 'ingest', 'jobs', 'all', 'operator'] as const)
    it(`deny sutler-${user} everything else`, async () => {
      const redis = as(user);
      for (const [command, ...args] of [...FORBIDDEN_TO_ALL, ...FORBIDDEN[user]])
        await assert.rejects(
          redis.call(command ?? '', ...args),
          /NOPERM|can't run this command|can't access|No permissions|without permission/i,
          `${command} ${args.join(' ')}`,
        );
    });

  it('work for an installation with another prefix', async () => {
    const line = redisUsers('other').find((user) => user.startsWith('user sutler-jobs '));
    const rules = line?.split(' ').slice(2) ?? [];
    await bed.redis.redis.call('ACL', 'SETUSER', 'sutler-jobs-other', ...rules);
    const url = new URL(urlOf('jobs', bed.redis.url));
    url.username += '-other';
    const redis = new Redis(url.href, { disableClientInfo: true });
    connections.push(redis);
    assert.equal(await redis.set('{other}:marker', 'x'), 'OK');
    await assert.rejects(redis.get('{csi}:marker'), /NOPERM/);
  });
});
