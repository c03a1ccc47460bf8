import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { type AddressInfo, connect as dial, createServer } from 'node:net';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { DEFAULT_ACCESS } from '#src/redis/access.ts';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { watchTlsFiles } from '#src/runtime/tls-files.ts';
import { startSandboxApi } from '../../sandbox/api/server.ts';
import { startBinder } from '../../sandbox/binder/binder.ts';
import { openChangeOverBed } from '../harness/change-over/bed.ts';
import { type ChurnPlan, churn } from '../harness/change-over/scenario.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { HOST_NAMES, useHostsFile } from '../harness/host-names.ts';
import { makeSecrets, type SecretServer, startSecretServer } from '../harness/make-secrets.ts';
import { makeRedisPods, NO_PODS, POD_NAMES, type RedisPod, TESTER } from '../harness/redis-pods.ts';
import { sleep } from '../harness/queue.ts';
import { K8S } from '../harness/real-manifests.ts';
import { runSutler } from '../harness/run-sutler.ts';
import { until } from '../harness/until.ts';

const SWITCH_MS = 15_000;
const claims = Number(process.env['SENTINEL_CLAIMS'] ?? 1_500);
const PLAN: ChurnPlan = { claims, perSecond: 20, bursts: 1, deleteWithinMs: 3_000 };

describe('k8s/redis-sentinel, as processes', { skip: NO_PODS }, () => {
  const closers = new Closers();
  let pods: readonly RedisPod[];
  let secrets: SecretServer['secrets'];
  let link: RedisLink;
  let ca = '';
  let hosts = '';
  let kubeconfig = '';
  let written = 0;

  const secretOf = (key: string): string => secrets.get('sutler-redis')?.[key] ?? '';
  /** A client of one Redis, or of one Sentinel. */
  const connect = (host: string, user: string, password: string, port = 6379): Redis => {
    const redis = new Redis({
      host,
      port,
      username: user,
      password,
      tls: { ca: secretOf('ca.crt') },
      lazyConnect: true,
      maxRetriesPerRequest: 0,
      retryStrategy: null,
      connectTimeout: 2_000,
      commandTimeout: 2_000,
    });
    redis.on('error', () => undefined);
    return redis;
  };
  const asking = async <T>(redis: Redis, ask: (redis: Redis) => Promise<T>): Promise<T> => {
    try {
      await redis.connect();
      return await ask(redis);
    } finally {
      redis.disconnect();
    }
  };
  /** What a pod's Redis says of its role; undefined if it does not answer. */
  const roleOf = ({ name }: RedisPod): Promise<string | undefined> =>
    asking(connect(name, 'sutler-sentinel', secretOf('sentinel-password')), async (redis) => {
      const [role, master] = (await redis.role()) as readonly string[];
      return role === 'master' ? 'master' : `replica of ${master}`;
    }).catch(() => undefined);
  const masters = async (): Promise<readonly RedisPod[]> => {
    const roles = await Promise.all(pods.map(roleOf));
    return pods.filter((_, i) => roles[i] === 'master');
  };
  const areAllReady = async (): Promise<boolean> => {
    const ready = pods.flatMap((pod) =>
      (['redis', 'sentinel'] as const).map((name) => pod.probe('readinessProbe', name)),
    );
    return (await Promise.all(ready)).every(Boolean);
  };
  /** Writes by sutler's own connection.
   * @throws AssertionError where a write of before is gone */
  const write = async (): Promise<void> => {
    const found = await link.redis.incr('{csi}:openings:test');
    assert.ok(found > written, `${found} after ${written}`);
    written = found;
  };
  const tryWrite = (): Promise<boolean> =>
    write().then(
      () => true,
      (error: unknown) => {
        if (error instanceof assert.AssertionError) throw error;
        return false;
      },
    );
  /** Replication is asynchronous: a write that only lost pods have is lost with them. */
  const haveAllTheWrite = async (): Promise<boolean> => {
    const found = await Promise.all(
      pods.map(({ name }) =>
        asking(connect(name, TESTER.user, TESTER.password), (redis) =>
          redis.get('{csi}:openings:test'),
        ).catch(() => undefined),
      ),
    );
    return found.every((value) => value === String(written));
  };
  const replicasAndMaster = async (): Promise<readonly RedisPod[]> => {
    const roles = await Promise.all(pods.map(roleOf));
    return pods.filter((_, i) => roles[i] !== undefined);
  };
  const replicas = async (): Promise<readonly RedisPod[]> => {
    const [master] = await masters();
    return pods.filter((pod) => pod !== master);
  };
  const theMaster = async (): Promise<RedisPod> => {
    const [only, ...others] = await masters();
    assert.ok(only !== undefined && others.length === 0, `${others.length} masters more`);
    return only;
  };

  before(async () => {
    const store = await startSecretServer();
    closers.add('Secrets', () => store.server.close());
    ({ secrets } = store);
    await makeSecrets({ url: store.server.url, token: 'a-token', redisPods: POD_NAMES });
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    const made = await makeRedisPods({ folder: folder.path, secrets, closers });
    ({ pods } = made);
    ({ hosts } = made);
    useHostsFile(hosts);
    ca = folder.file('ca.crt');
    await writeFile(ca, secretOf('ca.crt'));
    const files = await watchTlsFiles({
      files: { ca, cert: '', key: '' },
      flags: { ca: 'redis-tls-ca', cert: 'redis-tls-cert', key: 'redis-tls-key' },
      clock: systemClock,
      log: silentLog,
    });
    closers.add('TLS files', () => files.close());
    const api = await startSandboxApi({ log: silentLog });
    closers.add('API', () => api.close());
    const binder = startBinder({ operations: api.operations, log: silentLog });
    closers.add('binder', () => binder.close());
    kubeconfig = folder.file('kubeconfig');
    await writeFile(kubeconfig, api.kubeconfig(), { mode: 0o600 });
    for (const pod of pods) pod.start();
    link = openRedis({
      url: secretOf('jobs-url'),
      role: 'plain',
      log: silentLog,
      access: {
        ...DEFAULT_ACCESS,
        files,
        sentinelUsername: 'sutler-client',
        sentinelPassword: secretOf('client-password'),
      },
    });
    closers.add('link', () => link.close());
  });
  beforeEach(async () => {
    await until(areAllReady, 'all pods are ready');
    await until(tryWrite, 'a write');
    await until(haveAllTheWrite, 'all have the write');
  });
  afterEach(() => {
    for (const pod of pods) pod.signal('SIGCONT');
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  it('begins with the first pod as the master', async () => {
    assert.equal((await theMaster()).name, POD_NAMES[0]);
  });

  it('switches to another master when that dies, and has it back as a replica', async (t) => {
    const before = await theMaster();
    const startMs = Date.now();
    await before.kill({ stays: true });
    await until(tryWrite, 'a write at the new master', SWITCH_MS);
    t.diagnostic(`${Date.now() - startMs} ms without writes`);
    const next = await theMaster();
    before.start();
    await until(async () => (await roleOf(before)) === `replica of ${next.name}`, 'a replica');
  });

  it('keeps the data when the master’s pod is lost and comes back empty at once', async (t) => {
    const before = await theMaster();
    const startMs = Date.now();
    await before.kill({ stays: true });
    await before.wipe();
    before.start();
    await until(tryWrite, 'a write at the new master', SWITCH_MS);
    t.diagnostic(`${Date.now() - startMs} ms without writes`);
    assert.notEqual((await theMaster()).name, before.name);
  });

  it('keeps the data when two pods, of which one is the master, come back empty', async (t) => {
    const lost = [await theMaster(), ...(await replicas()).slice(1)];
    const startMs = Date.now();
    await Promise.all(lost.map((pod) => pod.kill({ stays: true })));
    for (const pod of lost) {
      await pod.wipe();
      pod.start();
    }
    await until(tryWrite, 'a write at the new master');
    t.diagnostic(`${Date.now() - startMs} ms without writes`);
  });

  it('has the data and the master again when all are killed at once', async (t) => {
    const before = await theMaster();
    const startMs = Date.now();
    await Promise.all(pods.map((pod) => pod.kill()));
    await until(tryWrite, 'a write', SWITCH_MS);
    t.diagnostic(`${Date.now() - startMs} ms without writes`);
    assert.equal((await theMaster()).name, before.name);
  });

  it('never goes by a master of before, which waits for another pod', async () => {
    const before = await theMaster();
    await before.kill({ stays: true });
    await until(tryWrite, 'a write at the new master', SWITCH_MS);
    const others = await replicasAndMaster();
    await Promise.all(others.map((pod) => pod.kill({ stays: true })));
    before.start();
    await until(() => before.probe('livenessProbe', 'sentinel'), 'its Sentinel runs');
    await sleep(3_000);
    assert.equal(await roleOf(before), undefined);
    assert.ok(await before.probe('livenessProbe', 'redis'), 'it waits');
    assert.equal(await before.probe('readinessProbe', 'redis'), false);
    for (const pod of others) pod.start();
    await until(tryWrite, 'a write', SWITCH_MS);
    assert.notEqual((await theMaster()).name, before.name);
  });

  it('has a master that is cut off refuse writes before there could be another', async (t) => {
    const master = await theMaster();
    const startMs = Date.now();
    // A Sentinel that was stopped would do nothing for 30 s.
    for (const pod of await replicas()) pod.signal('SIGSTOP', 'redis');
    const redis = connect(master.name, 'sutler-jobs', secretOf('jobs-password'));
    const refusal = async (): Promise<string> =>
      redis.incr('{csi}:openings:cut').then(
        () => '',
        (error: Error) => error.message,
      );
    await redis.connect();
    await until(async () => /NOREPLICAS/.test(await refusal()), 'it refuses', SWITCH_MS);
    t.diagnostic(`${Date.now() - startMs} ms of writes`);
    redis.disconnect();
    assert.ok(Date.now() - startMs < 5_000);
    assert.equal(await master.probe('readinessProbe', 'redis'), false);
  });

  it('replaces a master that stands still, which then takes no writes', async (t) => {
    const before = await theMaster();
    const startMs = Date.now();
    before.signal('SIGSTOP');
    assert.equal(await before.probe('livenessProbe', 'redis'), false);
    await until(async () => (await masters()).length === 1, 'another master', SWITCH_MS);
    t.diagnostic(`another master after ${Date.now() - startMs} ms`);
    await until(tryWrite, 'a write at the new master');
    t.diagnostic(`${Date.now() - startMs} ms without writes`);
    before.signal('SIGCONT');
    await until(async () => (await roleOf(before))?.startsWith('replica') === true, 'a replica');
  });

  it('finds a pod at its new address, and makes it the master', async () => {
    const master = await theMaster();
    const [moved] = await replicas();
    await moved?.kill({ stays: true });
    await moved?.moveTo('127.0.0.9');
    moved?.start();
    await until(areAllReady, 'all are ready');
    // The one that is left is chosen.
    const rest = pods.filter((pod) => pod !== moved);
    await Promise.all(rest.map((pod) => pod.kill({ stays: true })));
    rest.find((pod) => pod !== master)?.start();
    await until(tryWrite, 'a write at the new master', 40_000);
    for (const pod of pods) pod.start();
  });

  it('has users with the rights that they need, and nobody else', async () => {
    const { name: master } = await theMaster();
    for (const user of ['ingest', 'jobs', 'dashboard', 'operator'])
      await asking(connect(master, `sutler-${user}`, secretOf(`${user}-password`)), (redis) =>
        redis.info(),
      );
    for (const port of [6379, 26_379])
      await asking(connect(master, TESTER.user, TESTER.password, port), async (redis) => {
        for (const user of ['default', 'sutler-promoter', 'sutler-jobs'])
          await assert.rejects(redis.auth(user, 'wrong'), /WRONGPASS/);
        await redis.call('ACL', 'LOG', 'RESET');
      });
    const client = connect(master, 'sutler-client', secretOf('client-password'), 26_379);
    await asking(client, async (sentinel) => {
      const [host] = (await sentinel.call(
        'SENTINEL',
        'get-master-addr-by-name',
        'main',
      )) as string[];
      assert.equal(host, master);
      await assert.rejects(sentinel.call('SENTINEL', 'failover', 'main'), /NOPERM/);
    });
    for (const pod of pods)
      for (const port of [6379, 26_379])
        await asking(connect(pod.name, TESTER.user, TESTER.password, port), async (redis) => {
          const denied = (await redis.call('ACL', 'LOG')) as readonly unknown[][];
          const lines = denied.map((entry) => `${String(entry[9])} ${String(entry[7])}`);
          assert.deepEqual(
            lines.filter((line) => !line.startsWith('sutler-client ')),
            [],
            `${pod.name}:${port}`,
          );
        });
  });

  it('is reached by a command as k8s/README.md says', async () => {
    const readme = readFileSync(join(K8S, 'README.md'), 'utf8');
    const [, block = ''] = /```sh\n(master=[^`]*)```/.exec(readme) ?? [];
    const [, ask = ''] = / sh -c '([^']*)'/.exec(block) ?? [];
    const [first] = pods;
    // The pod listens on its address alone.
    const said = await first?.exec(['sh', '-c', ask.replace(' -p ', ` -h ${first.name} -p `)]);
    const master = said?.split('\n')[0] ?? '';
    assert.equal(master, (await theMaster()).name);
    const forward = createServer((socket) => {
      const there = dial({ host: master, port: 6379 });
      for (const each of [socket, there]) each.on('error', () => undefined);
      socket.pipe(there).pipe(socket);
    }).listen(0, '127.0.0.1');
    await once(forward, 'listening');
    const { port } = forward.address() as AddressInfo;
    const [, edits = ''] = /operator-url \| (sed '[^']*')/.exec(block) ?? [];
    const url = execFileSync('sh', ['-c', edits], { input: secretOf('operator-url') });
    const env = {
      REDIS_URL: String(url).trim().replace(':6379', `:${port}`),
      SUTLER_REDIS_TLS_CA: ca,
      SUTLER_REDIS_TLS_SERVER_NAME: master,
    };
    const { code, err } = await runSutler(['drain'], env);
    forward.close();
    assert.equal(code, 2);
    assert.match(err, /--driver-name is missing: name the driver \(this Redis .* have none\)/);
  });

  it('loses, doubles and leaks no volume while masters die', async (t) => {
    const bed = await openChangeOverBed({
      kubeconfig,
      workerThreads: 10,
      driverDelayMs: 200,
      envOf: (name) => ({
        REDIS_URL: secretOf(`${name}-url`),
        REDIS_SENTINEL_USERNAME: 'sutler-client',
        REDIS_SENTINEL_PASSWORD: secretOf('client-password'),
        SUTLER_REDIS_TLS_CA: ca,
        SUTLER_CLAIM_FINALIZER: 'true',
        HOSTS_FILE: hosts,
        NODE_OPTIONS: `--import=${HOST_NAMES}`,
      }),
    });
    await bed.startIngest();
    await bed.startJobs();
    await bed.startJobs();
    let switches = 0;
    const result = await churn(bed, PLAN, async () => {
      const from = bed.ledger.creations;
      await until(() => bed.ledger.creations >= from + 20, 'some volumes', 120_000);
      const master = await theMaster();
      const startMs = Date.now();
      await master.kill({ stays: true });
      // As a crash of its node, and as the loss of it.
      if (switches % 2 === 1) await master.wipe();
      await until(async () => (await masters()).length === 1, 'another master', SWITCH_MS);
      switches += 1;
      const before = bed.ledger.creations;
      await until(() => bed.ledger.creations > before, 'a volume', 240_000);
      t.diagnostic(`a volume ${Date.now() - startMs} ms after the master died`);
      master.start();
      await until(areAllReady, 'all are ready');
    });
    const { lost, madeTwice, madeAgain, left, leaked } = result;
    t.diagnostic(`${switches} times another master, ${bed.ledger.creations} volumes`);
    assert.deepEqual(
      { lost, madeTwice, madeAgain, left, leaked: leaked.sutler },
      { lost: [], madeTwice: [], madeAgain: [], left: [], leaked: [] },
    );
    assert.deepEqual(await bed.close(), []);
    assert.ok(switches > 1, 'masters died');
  });
});
