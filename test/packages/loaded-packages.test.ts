import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, classes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startBinder } from '../../sandbox/binder/binder.ts';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { startTestRedis } from '../harness/redis.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';
import { directDependencies, neededBy } from './lock-file.ts';
import { pluginKubeconfig } from './plugin-kubeconfig.ts';
import { startTraced } from './traced-process.ts';

const CLIENT_NODE = '@kubernetes/client-node';
const CLAIM = { namespace: 'default', name: 'claim' };
const HTTP = '--http-endpoint=127.0.0.1:0';
const DASHBOARD_PASSWORD = 'open sesame, please';

type Loaded = ReadonlySet<string>;

/** client-node, and every package that nothing else needs. */
const OF_CLIENT_NODE = without(
  neededBy([CLIENT_NODE]),
  neededBy(directDependencies.filter((name) => name !== CLIENT_NODE)),
);

function without(folders: Loaded, others: Loaded): Loaded {
  return new Set([...folders].filter((folder) => !others.has(folder)));
}

function shared(folders: Loaded, others: Loaded): readonly string[] {
  return [...folders].filter((folder) => others.has(folder));
}

/** Writes the files that Kubernetes mounts into a pod. */
async function writeServiceAccount(folder: string, cluster: SandboxCluster): Promise<void> {
  await mkdir(folder);
  const files = { 'ca.crt': cluster.api.ca, token: cluster.api.token, namespace: 'default' };
  for (const [name, text] of Object.entries(files)) await writeFile(`${folder}/${name}`, text);
}

async function newClaim(kube: KubeClient): Promise<void> {
  await kube.create(classes, undefined, {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: 'sample' },
    provisioner: 'sample.csi.sutler.dev',
  });
  await kube.create<Claim>(claims, CLAIM.namespace, {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: CLAIM,
    spec: {
      storageClassName: 'sample',
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage: '1Mi' } },
    },
  });
}

/** Starts every process as in the cluster, has a claim provisioned, opens the dashboard, and ends
 * them.
 * @returns what each has loaded */
async function runInCluster(closers: Closers): Promise<Readonly<Record<string, Loaded>>> {
  const folder = await makeFolder();
  closers.add('folder', () => folder.remove());
  const redis = await startTestRedis();
  closers.add('Redis', () => redis.close());
  const cluster = await openSandboxCluster();
  closers.add('cluster', () => cluster.close());
  const binder = startBinder({ operations: cluster.api.operations, log: silentLog });
  closers.add('binder', () => binder.close());
  const socket = folder.file('csi.sock');
  const driver = await startSampleDriver({ socket, dataDir: folder.file('volumes') });
  closers.add('driver', () => driver.close());
  await writeServiceAccount(folder.file('account'), cluster);
  await writeFile(folder.file('kubeconfig'), pluginKubeconfig(cluster));
  const { hostname, port } = new URL(cluster.api.url);
  const start = async (name: string, ...flags: readonly string[]) => {
    const traceDir = folder.file(`trace-${flags.length}-${name}`);
    const env = {
      REDIS_URL: redis.url,
      SUTLER_DASHBOARD_PASSWORD: DASHBOARD_PASSWORD,
      SERVICE_ACCOUNT_DIR: folder.file('account'),
      KUBERNETES_SERVICE_HOST: hostname,
      KUBERNETES_SERVICE_PORT: port,
    };
    const traced = await startTraced([name, ...flags], { traceDir, env });
    closers.add(name, () => traced.kill());
    return traced;
  };
  const listen = `unix://${folder.file('gateway.sock')}`;
  const gateway = await start('csi-gateway', `--csi-address=${socket}`, `--listen=${listen}`, HTTP);
  const ingest = await start('ingest', `--gateway=${listen}`, HTTP);
  const jobs = await start('jobs', `--gateway=${listen}`, HTTP);
  const dashboard = await start('dashboard', '--dashboard-address=127.0.0.1:0', HTTP);
  const kube = await cluster.client();
  await newClaim(kube);
  await until(
    async () => (await kube.get<Claim>(claims, CLAIM))?.status?.phase === 'Bound',
    'the claim is bound',
  );
  const page = await fetch(dashboard.facts['dashboard'] ?? '', {
    headers: { authorization: `Basic ${btoa(`admin:${DASHBOARD_PASSWORD}`)}` },
  });
  assert.equal(page.status, 200, await page.text());
  const byPlugin = await start(
    'jobs',
    `--gateway=${listen}`,
    HTTP,
    `--kubeconfig=${folder.file('kubeconfig')}`,
  );
  return {
    plugin: await byPlugin.stop(),
    dashboard: await dashboard.stop(),
    jobs: await jobs.stop(),
    ingest: await ingest.stop(),
    gateway: await gateway.stop(),
  };
}

describe('packages that a process loads', () => {
  const closers = new Closers();
  let loaded: Readonly<Record<string, Loaded>> = {};
  before(async () => {
    loaded = await runInCluster(closers);
  });
  after(async () => assert.deepEqual(await closers.close(), []));
  const of = (name: string): Loaded => loaded[name] ?? new Set();

  it('are those of client-node where there is a kubeconfig', () => {
    assert.ok(OF_CLIENT_NODE.size > 30, String(OF_CLIENT_NODE.size));
    const found = shared(of('plugin'), OF_CLIENT_NODE);
    assert.ok(found.includes(`node_modules/${CLIENT_NODE}`) && found.length > 10, found.join(' '));
  });

  for (const name of ['ingest', 'jobs', 'gateway', 'dashboard']) {
    it(`are none of client-node in the cluster: ${name}`, () => {
      assert.ok(of(name).has('node_modules/pino'), [...of(name)].join(' '));
      assert.deepEqual(shared(of(name), OF_CLIENT_NODE), []);
    });
  }

  it('are the one that reads YAML only where there is a kubeconfig', () => {
    const yaml = 'node_modules/yaml';
    assert.ok(of('plugin').has(yaml));
    for (const name of ['ingest', 'jobs']) assert.ok(!of(name).has(yaml), name);
  });

  it('are in the gateway only those of gRPC, logs, metrics and protobuf', () => {
    const allowed = neededBy(['@grpc/grpc-js', 'pino', 'prom-client', '@bufbuild/protobuf']);
    assert.deepEqual([...without(of('gateway'), allowed)], []);
  });

  it('are in the dashboard none of the API server or of the driver', () => {
    const banned = new Set(
      ['undici', 'yaml', '@bufbuild/protobuf'].map((name) => `node_modules/${name}`),
    );
    assert.deepEqual(shared(of('dashboard'), banned), []);
  });
});
