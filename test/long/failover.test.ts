import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import type { Volume } from '#src/kube/objects.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { ProcessBed } from '../harness/process-bed.ts';
import { isReady, type Running } from '../harness/run-main.ts';
import { startRedisServer } from '../harness/redis-server.ts';
import { redisUsers, urlOf } from '../harness/redis-users.ts';
import { startSentinel } from '../harness/sentinel.ts';
import { until } from '../harness/until.ts';

const SENTINELS = 3;
const CLAIMS = 20;
/** Less than a claim is in doubt. */
const WITHIN_MS = 30_000;

/** But for what a run says of its own volume, and ingest of lost data: a replica counts as that. */
const SAID = /(WARN|ERROR) (?!jobs: run failed|ingest: Redis has lost its data).*|Redis is usable/g;

describe('ingest and jobs, when three Sentinels replace the master', () => {
  const closers = new Closers();
  let bed: ProcessBed;
  let replica: Redis;
  let processes: readonly Running[];
  const ports: number[] = [];
  const isLeft = async (): Promise<number> =>
    (await bed.kube.list<Volume>(volumes, {})).items.length;
  before(async () => {
    bed = await ProcessBed.open({
      flags: ['--timeout=10s'],
      onCall: async ({ method, proceed }) => {
        if (method !== 'DeleteVolume') return undefined;
        await new Promise((done) => setTimeout(done, 300));
        return proceed();
      },
    });
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    const password = decodeURIComponent(new URL(bed.redis.url).password);
    const server = await startRedisServer({
      dataDir: folder.file('replica'),
      password,
      settings: [...redisUsers(), `masterauth ${password}`],
    });
    closers.add('replica', () => server.close(0));
    replica = new Redis(server.url);
    closers.add('connection', () => replica.disconnect());
    await replica.replicaof('127.0.0.1', bed.redis.port);
    await until(
      async () => /master_link_status:up/.test(await replica.info('replication')),
      'the replica has its data',
    );
    for (let i = 0; i < SENTINELS; i += 1) {
      const dir = join(folder.file(`sentinel-${i}`));
      await mkdir(dir);
      ports.push(
        await startSentinel({ dir, masterPort: bed.redis.port, masterPassword: password, closers }),
      );
    }
    for (const port of ports) {
      const sentinel = new Redis(port, '127.0.0.1', {
        retryStrategy: () => 50,
        maxRetriesPerRequest: null,
      });
      sentinel.on('error', () => undefined);
      await until(
        async () => {
          const known = async (what: string) =>
            ((await sentinel.call('SENTINEL', what, 'main')) as readonly unknown[]).length;
          return (await known('replicas')) === 1 && (await known('sentinels')) === SENTINELS - 1;
        },
        'the Sentinels know each other',
        30_000,
      );
      sentinel.disconnect();
    }
    const url = (user: 'ingest' | 'jobs'): string => {
      const { username, password: secret } = new URL(urlOf(user, bed.redis.url));
      const hosts = ports.map((port) => `127.0.0.1:${port}`).join(',');
      return `--redis-url=redis-sentinel://${username}:${secret}@${hosts}/main`;
    };
    processes = [await bed.startIngest(url('ingest')), await bed.startJobs(url('jobs'))];
  });
  after(async () => {
    await bed.close();
    await closers.close();
  });

  it('say so once, delete on, and say once that it is over', async (t) => {
    const made = [];
    for (let i = 0; i < CLAIMS; i += 1) made.push(await bed.newClaim());
    for (const claim of made) await until(() => bed.isBound(claim), 'the claim is bound');
    const before = processes.map(({ output }) => output.length);
    for (const { metadata } of made)
      await bed.kube.delete(claims, { namespace: 'default', name: metadata.name });
    await until(async () => (await isLeft()) < CLAIMS, 'the first is deleted');
    await bed.redis.kill();
    const killedMs = Date.now();
    await until(
      async () => /role:master/.test(await replica.info('replication')),
      'the replica is the master now',
      60_000,
    );
    const overMs = Date.now();
    await until(async () => (await isLeft()) === 0, 'all volumes are deleted', 120_000);
    const doneMs = Date.now();
    for (const running of processes) await until(() => isReady(running), 'it is ready', 60_000);
    t.diagnostic(`failed over after ${overMs - killedMs} ms, deleted ${doneMs - overMs} ms later`);
    for (const [i, { output }] of processes.entries()) {
      const said = output.slice(before[i]).join('').match(SAID) ?? [];
      assert.equal(said.length, 2, said.join('\n'));
      assert.match(said[0] ?? '', /Redis is not usable; waiting for it/);
      assert.equal(said[1], 'Redis is usable');
    }
    assert.ok(doneMs - overMs < WITHIN_MS, `${doneMs - overMs} ms`);
  });
});
