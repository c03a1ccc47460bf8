import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { parseAllDocuments, stringify } from 'yaml';
import { flagsOf } from '#src/dispatch.ts';
import { isConfig, readDriverConfig } from '#src/driver-config/read-config.ts';
import type { PodSpec, Workload } from '#src/operator/migrate/provisioner.ts';
import { processes } from '#src/processes.ts';
import { Journal } from '#src/journal/journal.ts';
import { namespaces } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type DriverTraits, driverManifest } from '../harness/driver-manifest.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { redisUsers, urlOf } from '../harness/redis-users.ts';
import { type Ended, runSutler } from '../harness/run-sutler.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { aClaim } from '../volumes/builders.ts';

type Fields = Readonly<Record<string, unknown>>;

function manifest(traits: DriverTraits = {}): string {
  return stringify(driverManifest({ namespace: 'storage', ...traits }));
}

describe('sutler migrate', () => {
  let folder: string;
  let runs = 0;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sutler-migrate-'));
  });
  after(() => rm(folder, { recursive: true }));

  const run = async (text: string, ...flags: readonly string[]) => {
    runs += 1;
    const file = join(folder, `${runs}.yaml`);
    const out = join(folder, `out-${runs}`);
    await writeFile(file, text);
    const ended = await runSutler(
      ['migrate', file, '--driver-name=shop.example', `--out=${out}`, ...flags],
      {},
    );
    return { ...ended, out_: out };
  };
  const read = (out: string, path: string): readonly unknown[] =>
    parseAllDocuments(readFileSync(join(out, path), 'utf8')).map((each) => each.toJS() as unknown);

  /** The pod and its gateway after a migration. */
  const migrated = async (traits: DriverTraits = {}) => {
    const ended = await run(manifest(traits));
    assert.equal(ended.code, 0, ended.err);
    const [workload] = read(ended.out_, 'workload.yaml') as [Workload];
    const pod: PodSpec = workload.spec.template.spec;
    const gateway = pod.containers.find(({ name }) => name === 'csi-gateway');
    assert.ok(gateway);
    return { ...ended, workload, pod, gateway };
  };

  it('takes external-provisioner out and puts the gateway in', async () => {
    const { pod } = await migrated();
    assert.deepEqual(
      pod.containers.map(({ name }) => name),
      ['shop-driver', 'csi-gateway'],
    );
  });

  it('gives the gateway the socket and its volume', async () => {
    const { gateway } = await migrated();
    assert.ok(gateway.args?.includes('--csi-address=unix:///plugin/csi.sock'));
    assert.deepEqual(gateway.volumeMounts?.[0], { name: 'sockets', mountPath: '/plugin' });
  });

  it('gives the gateway the user that the pod names', async () => {
    const { gateway } = await migrated({ pod: { securityContext: { runAsUser: 1000 } } });
    assert.equal(gateway.securityContext?.['runAsUser'], 1000);
    assert.equal(gateway.securityContext?.['runAsNonRoot'], true);
  });

  it('runs the gateway as root where nothing names a user, as external-provisioner did', async () => {
    const { gateway } = await migrated();
    assert.equal(gateway.securityContext?.['runAsUser'], 0);
    assert.equal(gateway.securityContext?.['runAsNonRoot'], false);
  });

  it('chooses ports that no container of the pod has', async () => {
    const others = [{ name: 'other', image: 'x', ports: [{ containerPort: 23809 }] }];
    const { gateway, out_ } = await migrated({ others, pod: { hostNetwork: true } });
    assert.ok(gateway.args?.includes('--listen=dns:///[::]:23810'), String(gateway.args));
    const [service] = read(out_, 'beside/objects.yaml') as [{ spec: { ports: Fields[] } }];
    assert.deepEqual(
      service.spec.ports.map(({ port }) => port),
      [23810, 23811],
    );
  });

  it('names the Service as Services may be named, whatever the name of the workload', async () => {
    const { out_ } = await migrated({ name: `shop.v1-${'x'.repeat(39)}-controller` });
    const [{ metadata }] = read(out_, 'beside/objects.yaml') as [{ metadata: Fields }];
    assert.equal(metadata['name'], `sutler-gateway-shop-v1-${'x'.repeat(39)}`);
  });

  it('leaves the pod’s other probes, labels and volumes alone', async () => {
    const { pod, workload } = await migrated();
    assert.equal(pod.volumes?.[0]?.name, 'sockets');
    assert.deepEqual(workload.metadata['labels'], { app: 'shop' });
    assert.deepEqual(workload.spec['selector'], { matchLabels: { app: 'shop' } });
  });

  it('finds external-provisioner by its program in an image with several', async () => {
    const image = 'example.com/shop-with-sidecars:v1';
    const { pod } = await migrated({ container: { image, command: ['/csi-provisioner'] } });
    assert.equal(pod.containers.length, 2);
  });

  it('serves a StatefulSet without leader election', async () => {
    const { workload } = await migrated({
      kind: 'StatefulSet',
      args: ['--csi-address=/plugin/csi.sock'],
    });
    assert.equal(workload.kind, 'StatefulSet');
  });

  it('serves a DaemonSet whose driver runs on each node', async () => {
    const args = ['--csi-address=/plugin/csi.sock', '--node-deployment=true'];
    const { gateway, out_ } = await migrated({ kind: 'DaemonSet', args });
    assert.ok(gateway.args?.includes('--node-name=$(NODE_NAME)'));
    assert.match(readFileSync(join(out_, 'drivers.yaml'), 'utf8'), /node-deployment: "?true/);
  });

  it('carries arguments over to a section that --driver-config accepts', async () => {
    const args = ['--csi-address=$(ADDRESS)', '--timeout=60s', '--extra-create-metadata', '-v=2'];
    const { out_ } = await migrated({ args: [...args, '--worker-threads', '50'] });
    const text = readFileSync(join(out_, 'drivers.yaml'), 'utf8');
    const known = flagsOf(processes);
    const config = await readDriverConfig(text, { known, defaults: {}, check: () => undefined });
    assert.ok(isConfig(config), JSON.stringify(config));
    const { values } = config.get('shop.example') ?? {};
    assert.equal(values?.['timeoutMs'], 60_000);
    assert.equal(values?.['workerThreads'], 50);
    assert.equal(values?.['gatewayService'], 'storage/sutler-gateway-shop-controller');
    assert.equal(values?.['leaderElectionNamespace'], 'storage');
  });

  it('says of each argument what becomes of it', async () => {
    const args = [
      '--csi-address=$(ADDRESS)',
      '--timeout=60s',
      '--kube-api-qps=20',
      '--logtostderr',
    ];
    const { out } = await migrated({ args: [...args, '--http-endpoint=$(POD_IP):8080'] });
    assert.match(out, /\n {2}timeout: 60s\n/);
    assert.match(out, /ingest and jobs:\n {2}--kube-api-qps=20\n/);
    assert.match(out, /\n {2}--logtostderr is the log goes|\n {2}--logtostderr .*remove the flag/);
    assert.match(out, /\n {2}--http-endpoint=\$\(POD_IP\):8080: each process has its own\n/);
  });

  it('binds ingest and jobs to the Lease and the gateways in the driver’s namespace', async () => {
    const { out_ } = await migrated();
    const objects = read(out_, 'beside/objects.yaml') as { kind: string; metadata: Fields }[];
    assert.deepEqual(
      objects.map(({ kind }) => kind),
      [
        'Service',
        'NetworkPolicy',
        'Role',
        'RoleBinding',
        'Role',
        'RoleBinding',
        'Role',
        'RoleBinding',
      ],
    );
    for (const { metadata } of objects) assert.equal(metadata['namespace'], 'storage');
  });

  it('keeps the Lease, and the rights to it, in the namespace that the arguments name', async () => {
    const args = ['--csi-address=/plugin/csi.sock', '--leader-election'];
    const { out_ } = await migrated({ args: [...args, '--leader-election-namespace=leases'] });
    assert.match(readFileSync(join(out_, 'drivers.yaml'), 'utf8'), /election-namespace: leases/);
    const objects = read(out_, 'beside/objects.yaml') as { metadata: Fields }[];
    assert.deepEqual(
      objects.map(({ metadata }) => metadata['namespace']),
      [...Array<string>(4).fill('storage'), ...Array<string>(4).fill('leases')],
    );
    const { out } = await runSutler(['migrate', '--back', out_], {});
    assert.match(out, /kubectl -n leases get lease shop-example/);
  });

  it('keeps the workload as it was, for the way back', async () => {
    const { out_ } = await migrated();
    const [original] = read(out_, 'back/workload.yaml') as [Workload];
    assert.deepEqual(original, parseAllDocuments(manifest())[0]?.toJS());
  });

  it('takes the name of the only CSIDriver beside the workload', async () => {
    const csiDriver = stringify({ kind: 'CSIDriver', metadata: { name: 'named.example' } });
    const { out } = await run(`${manifest()}---\n${csiDriver}`, '--driver-name=');
    assert.match(out, /in the section of named\.example/);
  });

  it('takes the namespace of -n for manifests that name none', async () => {
    const text = manifest().replace(/^ {2}namespace: storage\n/m, '');
    const { out } = await run(text, '-n', 'shops');
    assert.match(out, /Deployment shops\/shop-controller/);
  });

  const VARIABLE = {
    env: [{ name: 'ADDRESS', valueFrom: { configMapKeyRef: { name: 'c', key: 'k' } } }],
  };
  const REFUSED: Readonly<Record<string, readonly [string, RegExp]>> = {
    'what is no YAML': ['a: [', /is no YAML/],
    'manifests without a workload': ['kind: ConfigMap', /there is no Deployment, StatefulSet or/],
    'a workload without external-provisioner': [
      manifest({ container: { name: 'other', image: 'example.com/other:v1' } }),
      /Deployment\/shop-controller has no container of external-provisioner/,
    ],
    'two containers of external-provisioner': [
      manifest({ others: [{ name: 'second', image: 'example.com/csi-provisioner:v5.0.0' }] }),
      /there are 2 containers of external-provisioner/,
    ],
    'an image that is not known': [
      manifest({ container: { image: 'example.com/shop-maker:v1' } }),
      /has the image example\.com\/shop-maker:v1, which is not known/,
    ],
    'a value from a ConfigMap': [
      manifest({ container: VARIABLE }),
      /the variable ADDRESS of the container csi-provisioner has no value in the manifest/,
    ],
    'a driver that sutler serves': [
      manifest({
        others: [{ name: 'csi-gateway', image: 'example.com/sutler:0.1.0', args: ['csi-gateway'] }],
      }),
      /has sutler already, in the container csi-gateway/,
    ],
    'a flag that external-provisioner never had': [
      manifest({ args: ['--csi-address=/plugin/csi.sock', '--shop=7'] }),
      /--shop/,
    ],
    'a socket that no volume contains': [
      manifest({ mountPath: '/elsewhere' }),
      /no volume of the container csi-provisioner contains its socket/,
    ],
  };
  for (const [what, [text, message]] of Object.entries(REFUSED))
    it(`refuses ${what} in one sentence, and writes nothing`, async () => {
      const ended = await run(text);
      assert.equal(ended.code, 2);
      assert.match(ended.err, message);
      assert.equal(ended.err.trim().split('\n').length, 1);
      assert.equal(existsSync(ended.out_), false);
    });

  it('takes out sutler itself where it is in the place of external-provisioner', async () => {
    const { pod, out_ } = await migrated({ container: { image: 'example.com/sutler:0.1.0' } });
    assert.equal(pod.containers.filter(({ name }) => name === 'csi-provisioner').length, 0);
    const { code, out } = await runSutler(['migrate', '--back', out_], {});
    assert.equal(code, 0);
    assert.match(
      out,
      /^3\. if they .*: sutler uninstall --yes\n4\. kubectl replace -.*\/back\/workload\.yaml/m,
    );
  });

  it('says the steps back by the folder that it wrote', async () => {
    const { out_ } = await migrated();
    const { code, out, err } = await runSutler(['migrate', '--back', out_], {});
    assert.equal(code, 0, err);
    assert.match(out, /nothing was changed\. whether claims are in the journal was not checked/);
    assert.match(out, /^1\. sutler drain --wait --driver-name=shop\.example$/m);
    assert.match(out, /^2\. .*out of the drivers\.yaml of your kustomization .*kubectl apply -k/m);
    assert.match(
      out,
      /^3\. kubectl replace --save-config -f \S+\/back\/workload\.yaml; kubectl -n storage /m,
    );
    assert.match(
      out,
      /^5\. kubectl delete -k \S+\/beside; .* sutler-gateway-shop-controller-tls$/m,
    );
  });

  it('refuses --back for a folder that it did not write', async () => {
    const { code, err } = await runSutler(['migrate', '--back', folder], {});
    assert.equal(code, 2);
    assert.match(err, /is no folder that sutler migrate wrote .*: name its --out$/m);
  });

  it('writes nothing with --check', async () => {
    const { code, out, out_ } = await run(manifest(), '--check');
    assert.equal(code, 0);
    assert.match(out, /nothing stands in the way of the migration\n(.*\n)*next: kubectl apply -k/);
    assert.match(out, /not checked: the cluster; give --kubeconfig/);
    assert.equal(existsSync(out_), false);
  });

  it('says with --check that a Deployment has no leader election', async () => {
    const { code, out } = await run(manifest({ args: ['--csi-address=$(ADDRESS)'] }), '--check');
    assert.equal(code, 1);
    assert.match(out, /kubectl -n storage scale deployment\/shop-controller --replicas=0/);
  });

  it('looks with --check at a workload that is migrated, by what the folder keeps of it', async () => {
    const args = ['--csi-address=$(ADDRESS)', '--leader-election-namespace=leases'];
    const { out_ } = await migrated({ args });
    const served = readFileSync(join(out_, 'workload.yaml'), 'utf8');
    const again = await run(served, '--check', `--out=${out_}`);
    assert.equal(again.code, 0, again.err);
    assert.match(again.out, /nothing is amiss after the migration\n/);
    assert.doesNotMatch(again.out, /has no --leader-election|not checked: what external-/);
    const elsewhere = await run(served, '--check');
    assert.equal(elsewhere.code, 0, elsewhere.err);
    assert.match(elsewhere.out, /\nnot checked: what external-provisioner’s arguments asked for; /);
  });

  it('takes the last of an argument that is given twice', async () => {
    const args = ['--csi-address=$(ADDRESS)', '--leader-election', '--leader-election=false'];
    const { code, out } = await run(manifest({ args }), '--check');
    assert.equal(code, 1);
    assert.match(out, /has no --leader-election/);
  });

  it('overwrites nothing', async () => {
    const { out_ } = await migrated();
    const file = join(folder, 'again.yaml');
    await writeFile(file, manifest());
    const again: Ended = await runSutler(
      ['migrate', file, '--driver-name=shop.example', `--out=${out_}`],
      {},
    );
    assert.equal(again.code, 2);
    assert.match(again.err, /name a new folder/);
  });
});

describe('sutler migrate --check of Redis', () => {
  let server: TestRedis;
  let folder: string;
  before(async () => {
    server = await startTestRedis({ settings: redisUsers() });
    folder = await mkdtemp(join(tmpdir(), 'sutler-migrate-'));
    await writeFile(join(folder, 'shop.yaml'), manifest());
  });
  after(async () => {
    await server.close();
    await rm(folder, { recursive: true });
  });
  const check = (url: string): Promise<Ended> =>
    runSutler(['migrate', '--check', join(folder, 'shop.yaml'), '--driver-name=shop.example'], {
      REDIS_URL: url,
    });

  it('names a setting that is wrong', async () => {
    await server.redis.config('SET', 'maxmemory-policy', 'allkeys-lru');
    const { code, out } = await check(server.url);
    await server.redis.config('SET', 'maxmemory-policy', 'noeviction');
    assert.equal(code, 1, out);
    assert.match(out, /\n {2}Redis may evict jobs .*: set maxmemory-policy noeviction\n/);
  });

  it('finds nothing to mend in the rights of the users as they are shipped', async () => {
    const { out, err } = await check(server.url);
    assert.doesNotMatch(out, /lacks|not checked: (the )?rights/, err);
  });

  it('names a command and a key that a user may not use', async () => {
    await server.redis.call('ACL', 'SETUSER', 'sutler-jobs', '-hset');
    await server.redis.call('ACL', 'SETUSER', 'sutler-ingest', 'resetkeys', '~{csi}:marker');
    const { out } = await check(server.url);
    assert.match(out, /\n {2}the user sutler-jobs of Redis lacks \+hset \(/);
    assert.match(
      out,
      /\n {2}the user sutler-ingest of Redis lacks %R~\{csi\}:heartbeat:\* \(.*, and \d+ more/,
    );
  });

  it('says that the rights were not checked by a user who may not ask for them', async () => {
    const { out } = await check(urlOf('operator', server.url));
    assert.match(out, /\nnot checked: the rights of sutler-jobs in Redis \(NOPERM/);
  });

  it('says with --back how many claims are in the journal', async (t) => {
    const cluster = await openSandboxCluster();
    t.after(() => cluster.close());
    const out = join(folder, 'out');
    const flags = ['--driver-name=shop.example', `--out=${out}`];
    await runSutler(['migrate', join(folder, 'shop.yaml'), ...flags], {});
    const back = () =>
      runSutler(['migrate', '--back', out, `--kubeconfig=${cluster.kubeconfig}`], {});
    assert.match((await back()).out, /\. no claim is in the journal\n/);
    const namespace = 'storage';
    const client = await cluster.client();
    await client.create(namespaces, undefined, { metadata: { name: namespace } });
    const journal = new Journal({
      client,
      namespace,
      lease: 'shop-example',
      driver: 'shop.example',
      holder: 'test',
      onGone: () => undefined,
      log: silentLog,
    });
    t.after(() => journal.stop());
    await journal.begin(1, () => true);
    await journal.add([{ claim: aClaim(), cls: undefined }]);
    assert.match((await back()).out, /1 claims are in the journal: step 1 ends/);
  });
});
