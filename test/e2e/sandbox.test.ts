import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { DEFAULT_ACCESS } from '#src/redis/access.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type Child, startChild } from '../../sandbox/children.ts';
import { waitForNoLeftovers } from '../../sandbox/leftovers.ts';
import { at, Connection, listAt, type Reply, textAt, unique } from '../conformance/connection.ts';
import { claim, CLASSES, paths, storageClass, VOLUMES } from '../conformance/objects.ts';
import { startRedisServer, type TcpRedisServer } from '../harness/redis-server.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';

const CLI = fileURLToPath(new URL('../../sandbox/cli.js', import.meta.url));
const STOP_GRACE_MS = 60_000;
const READY_WITHIN_MS = 60_000;
const DELETED_WITHIN_MS = 60_000;
const CLAIMS = 20;

// All of sutler in one process, beside the sample driver and a Redis, on the sandbox.
describe('sutler all', () => {
  const closers = new Closers();
  let deployment: Deployment;
  before(async () => {
    try {
      deployment = await start(closers);
    } catch (error) {
      await closers.close();
      throw error;
    }
  });
  after(async () => {
    const errors = await closers.close();
    assert.deepEqual(errors, []);
  });

  it('binds every claim of its driver to a new volume', async () => {
    const { api, namespace, driver } = deployment;
    const className = await newClass(deployment);
    const made = await Promise.all(
      Array.from({ length: CLAIMS }, (_, n) => newClaim(deployment, `many-${n}`, className)),
    );
    for (const { path, uid } of made) {
      const bound = (await api.until(path, isIn('Bound'))).body;
      assert.equal(textAt(bound, 'spec', 'volumeName'), `pvc-${uid}`);
      const volume = await api.read(`${VOLUMES}/pvc-${uid}`);
      assert.equal(at(volume, 'spec', 'csi', 'driver'), driver);
      assert.equal(at(volume, 'spec', 'claimRef', 'uid'), uid);
      assert.equal(at(volume, 'spec', 'claimRef', 'namespace'), namespace);
      assert.equal(at(volume, 'spec', 'persistentVolumeReclaimPolicy'), 'Delete');
      assert.equal(
        at(volume, 'metadata', 'annotations', 'pv.kubernetes.io/provisioned-by'),
        driver,
      );
      assert.ok(
        listAt(volume, 'metadata', 'finalizers').includes(
          'external-provisioner.volume.kubernetes.io/finalizer',
        ),
      );
      assert.ok(
        existsSync(join(deployment.volumesDir, textAt(volume, 'spec', 'csi', 'volumeHandle'))),
        'the driver does not have the volume',
      );
    }
    assert.equal(
      readdirSync(deployment.volumesDir).length,
      CLAIMS,
      'the driver has volumes without a claim',
    );
  });

  it('provisions a claim whose class appears later', async () => {
    const className = unique('late');
    const { path } = await newClaim(deployment, 'early', className);
    await newClass(deployment, className);
    await deployment.api.until(path, isIn('Bound'));
  });

  it('deletes volumes, PVs and jobs of deleted claims', async () => {
    const { api, namespace, redis, facts, volumesDir } = deployment;
    const { claims } = paths(namespace);
    const volumes = listAt(await api.read(claims), 'items')
      .map((item) => at(item, 'spec', 'volumeName'))
      .filter((volume) => typeof volume === 'string');
    assert.ok(volumes.length > CLAIMS);
    assert.equal((await api.call('DELETE', claims)).status, 200);
    for (const volume of volumes) await api.until(`${VOLUMES}/${volume}`, isAbsent);
    const place = {
      redisUrl: redis.url,
      redisAccess: DEFAULT_ACCESS,
      prefix: 'csi',
      driver: facts['driver'] ?? '',
      clock: systemClock,
      log: silentLog,
    };
    assert.deepEqual(await waitForNoLeftovers(place, AbortSignal.timeout(DELETED_WITHIN_MS)), []);
    assert.deepEqual(readdirSync(volumesDir), []);
  });

  it('has one page of health for driver, ingest and jobs, with upstream’s check of the Lease', async () => {
    const { http = '' } = deployment.facts;
    const page = await fetch(`${http}/readyz`);
    const text = await page.text();
    assert.equal(page.status, 200, text);
    for (const part of ['driver', 'ingest/driver', 'jobs/driver'])
      assert.match(text, new RegExp(`^\\[\\+\\]${part} `, 'm'));
    const lease = await fetch(`${http}/healthz/leader-election`);
    assert.equal(lease.status, 200, await lease.text());
  });

  it('has one page of metrics for them', async () => {
    const text = await (await fetch(`${deployment.facts['http']}/metrics`)).text();
    for (const name of [
      'csi_sidecar_operations_seconds_count',
      'controller_persistentvolumeclaim_provision_total',
      'leader_election_master_status',
      'sutler_kube_requests_total',
    ])
      assert.match(text, new RegExp(`^${name}\\b`, 'm'));
  });

  it('ends on request, and removes its temporary folder', async () => {
    const { all, dir } = deployment;
    const { pid = 0 } = all;
    const folders = () => readdirSync(dir).filter((name) => /^sutler-\w{6}$/.test(name));
    assert.equal(folders().length, 1);
    await all.stop(STOP_GRACE_MS);
    assert.ok(await isGone(pid), `process ${pid} still runs:\n${deployment.output()}`);
    assert.deepEqual(folders(), []);
  });
});

interface Deployment {
  readonly api: Connection;
  readonly namespace: string;
  readonly driver: string;
  /** Temporary files are in it. */
  readonly dir: string;
  readonly volumesDir: string;
  readonly redis: TcpRedisServer;
  readonly all: Child;
  readonly facts: Readonly<Record<string, string>>;
  /** The end of the processes' output. */
  readonly output: () => string;
}

async function start(closers: Closers): Promise<Deployment> {
  const cluster = await openSandboxCluster({ binder: true });
  const { kubeconfig } = cluster;
  closers.add('cluster', () => cluster.close());
  const { url, ca, token } = cluster.api;
  const api = new Connection({ url, tls: { ca }, token, close: () => Promise.resolve() });
  closers.add('connection', () => api.close());
  const dir = await mkdtemp(join(tmpdir(), 'sutler-e2e-'));
  closers.add('folder', () => rm(dir, { recursive: true, force: true }));
  const redis = await startRedisServer({ dataDir: join(dir, 'redis') });
  closers.add('Redis', () => redis.close());

  let output = '';
  const run = async (name: string, args: readonly string[]) => {
    const plan = {
      name,
      command: [process.execPath, '--enable-source-maps', CLI, name, ...args] as const,
      env: {
        PATH: process.env['PATH'],
        HOME: dir,
        TMPDIR: dir,
        REDIS_URL: redis.url,
      },
      output: (text: string) => (output = (output + text).slice(-20_000)),
    };
    const child = startChild(plan, { log: silentLog, onUsageError: () => undefined });
    closers.add(name, () => child.stop(STOP_GRACE_MS));
    const facts = await Promise.race([
      child.announced,
      delay(READY_WITHIN_MS, undefined, { ref: false }),
    ]).catch((cause: unknown) => {
      throw new Error(`${name} did not start:\n${output}`, { cause });
    });
    assert.ok(facts !== undefined, `not ready after ${READY_WITHIN_MS} ms:\n${output}`);
    return { child, facts };
  };
  const namespace = await api.namespace();
  const driver = `${unique('e2e')}.csi.sutler.dev`;
  const volumesDir = join(dir, 'volumes');
  const socket = `unix://${join(dir, 'csi.sock')}`;
  await run('sandbox-driver', [
    `--csi-address=${socket}`,
    `--driver-name=${driver}`,
    `--data-dir=${volumesDir}`,
  ]);
  const { child, facts } = await run('all', [
    `--kubeconfig=${kubeconfig}`,
    `--csi-address=${socket}`,
    '--http-endpoint=127.0.0.1:0',
    '--leader-election',
    `--leader-election-namespace=${namespace}`,
    '--retry-interval-start=100ms',
    '-v=4',
  ]);
  return {
    api,
    namespace,
    driver,
    dir,
    volumesDir,
    redis,
    all: child,
    facts,
    output: () => output,
  };
}

async function newClass({ api, driver }: Deployment, name = unique('class')): Promise<string> {
  await api.create(CLASSES, storageClass(name, { fields: { provisioner: driver } }));
  return name;
}

async function newClaim({ api, namespace }: Deployment, name: string, className: string) {
  const { claims } = paths(namespace);
  const stored = await api.create(claims, claim(name, { spec: { storageClassName: className } }));
  return { path: `${claims}/${name}`, uid: textAt(stored, 'metadata', 'uid') };
}

/** A process may still be a zombie for a moment after its parent ended. */
async function isGone(pid: number): Promise<boolean> {
  for (let round = 0; round < 100; round++) {
    try {
      process.kill(pid, 0);
    } catch {
      return true;
    }
    await delay(50);
  }
  return false;
}

function isIn(phase: string): (reply: Reply) => boolean {
  return (reply) => at(reply.body, 'status', 'phase') === phase;
}

function isAbsent(reply: Reply): boolean {
  return reply.status === 404;
}
