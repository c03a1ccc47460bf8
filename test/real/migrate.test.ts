import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { networkInterfaces, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { parseAllDocuments, stringify } from 'yaml';
import { csiDrivers, endpointSlices } from '#src/kube/resources.ts';
import type { Workload } from '#src/operator/migrate/provisioner.ts';
import { Closers } from '#src/runtime/closers.ts';
import { Connection } from '../conformance/connection.ts';
import { accountKubeconfig } from '../harness/account-kubeconfig.ts';
import { type ChangeOverBed, openChangeOverBed } from '../harness/change-over/bed.ts';
import { churn, type Startable } from '../harness/change-over/scenario.ts';
import { makeCertificates } from '../harness/csi-certificates.ts';
import { driverManifest } from '../harness/driver-manifest.ts';
import { freePort } from '../harness/free-port.ts';
import { KUBECTL } from '../harness/kustomize.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import { type ManifestObject, pathOf } from '../harness/real-manifests.ts';
import { runSutler } from '../harness/run-sutler.ts';
import { until } from '../harness/until.ts';

const open = realControlPlane(process.env, { binder: false });

describe('sutler migrate, from a workload in the cluster', () => {
  const closers = new Closers();
  let plane: RealControlPlane;
  let api: Connection;
  let namespace: string;
  let out: string;
  before(async () => {
    plane = await open();
    closers.add('cluster', () => plane.close());
    api = new Connection(plane);
    closers.add('connection', () => api.close());
    namespace = await api.namespace();
    const folder = await mkdtemp(join(tmpdir(), 'sutler-migrate-'));
    closers.add('folder', () => rm(folder, { recursive: true }));
    out = join(folder, 'out');
    await api.create(`/apis/apps/v1/namespaces/${namespace}/deployments`, driverManifest());
    const flags = ['-n', namespace, '--driver-name=shop.example', `--out=${out}`];
    const kubeconfig = `--kubeconfig=${plane.kubeconfig}`;
    const ended = await runSutler(
      ['migrate', 'deployment/shop-controller', kubeconfig, ...flags],
      {},
    );
    assert.equal(ended.code, 0, ended.err);
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  const read = (path: string) =>
    parseAllDocuments(readFileSync(join(out, path), 'utf8')).map(
      (each) => each.toJS() as ManifestObject,
    );
  /** As kubectl apply --server-side --dry-run=server does. */
  const dryRun = async (path: string, object: unknown): Promise<void> => {
    const query = { dryRun: 'All', fieldManager: 'test', force: true };
    const contentType = 'application/apply-patch+yaml';
    const body = JSON.stringify(object);
    const { status, text } = await api.call('PATCH', path, { query, body, contentType });
    assert.ok(status === 200 || status === 201, text);
  };

  it('writes a workload that the API server accepts, and the old one for the way back', async () => {
    const path = `/apis/apps/v1/namespaces/${namespace}/deployments/shop-controller`;
    for (const file of ['workload.yaml', 'back/workload.yaml']) await dryRun(path, read(file)[0]);
  });

  it('writes objects beside it that the API server accepts', async () => {
    for (const object of read('beside/objects.yaml')) await dryRun(pathOf(object), object);
  });

  it('says with --check what is missing in the cluster', async () => {
    const flags = [
      `--kubeconfig=${plane.kubeconfig}`,
      '-n',
      namespace,
      '--driver-name=shop.example',
    ];
    const { code, out: said } = await runSutler(
      ['migrate', '--check', 'deployment/shop-controller', ...flags],
      {},
    );
    assert.equal(code, 1);
    assert.match(said, /\n {2}there is no CSIDriver shop\.example: /);
    assert.match(said, /\n {2}there is no Secret \S+-tls: GATEWAY_NAMES=DNS:sutler-gateway-shop-/);
    for (const account of ['ingest', 'jobs'])
      assert.match(
        said,
        new RegExp(`\\n {2}the service account sutler/sutler-${account} may not `),
      );
    assert.match(said, /\nif the driver has topology \(--gateway asks it\): .* k8s\/topology /);
    assert.match(said, /\nthe Lease \S+ is free\n/);
    assert.match(said, /\nthe API server is v\S+; what is used of it is there since /);
  });

  it('looks with --check at the rights of a user who may not ask for those of others', async () => {
    const accounts = `/api/v1/namespaces/${namespace}/serviceaccounts`;
    await api.create(accounts, { metadata: { name: 'weak' } });
    const kubeconfig = await accountKubeconfig(api, plane, { namespace, name: 'weak' });
    const file = join(out, 'back', 'workload.yaml');
    const flags = [`--kubeconfig=${kubeconfig}`, '--driver-name=shop.example'];
    const { code, out: said } = await runSutler(['migrate', '--check', file, ...flags], {});
    assert.equal(code, 1);
    assert.match(said, /\nnot checked: the rights of ingest and jobs \(/);
    assert.match(said, /\nnot checked: the Lease \(/);
    assert.match(said, /\n {2}you may not update deployments in /);
    assert.match(said, /\n {2}you may not create networkpolicies in /);
  });

  it('changes nothing itself', async () => {
    const services = await api.read(`/api/v1/namespaces/${namespace}/services`);
    assert.deepEqual((services as { items: unknown[] }).items, []);
  });
});

const upstream = process.env['EXTERNAL_PROVISIONER'] ?? '';
const K8S = fileURLToPath(new URL('../../../k8s', import.meta.url));

const reason =
  (upstream === '' && 'set EXTERNAL_PROVISIONER to the path of its binary') ||
  (KUBECTL === undefined && 'no kubectl on PATH') ||
  (ownAddress() === undefined && 'this machine has no address that a Service may have');

describe('sutler migrate, there and back', { skip: reason }, () => {
  const closers = new Closers();
  let plane: RealControlPlane;
  let api: Connection;
  let bed: ChangeOverBed;
  let kubeconfig: string;
  before(async () => {
    plane = await realControlPlane(process.env, { binder: true })();
    closers.add('cluster', () => plane.close());
    api = new Connection(plane);
    closers.add('connection', () => api.close());
    ({ kubeconfig } = plane);
    bed = await openChangeOverBed({ kubeconfig, upstream, workerThreads: 20, driverDelayMs: 100 });
    closers.add('bed', async () => assert.deepEqual(await bed.close(), []));
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  const kubectl = async (...args: readonly string[]): Promise<string> =>
    (await promisify(execFile)(KUBECTL ?? '', [`--kubeconfig=${kubeconfig}`, ...args])).stdout;
  const sutler = async (...args: readonly string[]): Promise<string> => {
    const { code, out, err } = await runSutler(args, { REDIS_URL: bed.redisUrl });
    assert.equal(code, 0, `sutler ${args.join(' ')}: ${out}${err}`);
    return out;
  };
  const containers = (): Promise<string> =>
    kubectl('get', 'deployment/shop', '-o=jsonpath={.spec.template.spec.containers[*].name}');

  /** What an administrator does, by the commands that each step prints. The pods' processes are
   * started here with the arguments that the manifests have. */
  const migrateAndBack = async (): Promise<void> => {
    const out = join(bed.folder, 'out');
    const workload = join(bed.folder, 'shop.yaml');
    const { upstreamArgs: args, socket } = bed;
    const shop = { name: 'shop', namespace: 'default', args, mountPath: dirname(socket) };
    await writeFile(workload, stringify(driverManifest({ ...shop, pod: { hostNetwork: true } })));
    await kubectl('create', '-f', workload);
    const first = await bed.startOther();
    await until(() => bed.ledger.madeBy('other') > 20, 'volumes of external-provisioner', 120_000);

    const source = ['deployment/shop', `--kubeconfig=${kubeconfig}`, `--driver-name=${bed.driver}`];
    const written = JSON.parse(
      await sutler('migrate', ...source, `--out=${out}`, '-o', 'json'),
    ) as Written;
    const tls = join(bed.folder, 'tls');
    await makeCertificates(tls, `DNS:${written.service}.${written.namespace}.svc`);
    await copyFile(join(tls, 'gateway.crt'), join(tls, 'tls.crt'));
    await copyFile(join(tls, 'gateway.key'), join(tls, 'tls.key'));
    await install(tls, written);
    const gateway = `--gateway=unix://${bed.folder}/gateway.sock`;
    assert.match(
      await sutler('migrate', '--check', ...source, gateway),
      /\n\S+ holds the Lease \S+, which is free when that pod was (.*\n)*the gateway answers for /,
    );

    const common = [
      `--driver-config=${join(out, 'drivers.yaml')}`,
      ...written.arguments.ofProcesses,
      `--gateway-tls-ca=${tls}/ca.crt`,
    ];
    const start = async (name: string): Promise<Startable> => {
      const account = { namespace: 'sutler', name: `sutler-${name}` };
      const own = await accountKubeconfig(api, plane, account);
      const files = [
        `--gateway-tls-cert=${tls}/${name}.crt`,
        `--gateway-tls-key=${tls}/${name}.key`,
      ];
      return bed.start([name, `--kubeconfig=${own}`, ...common, ...files]);
    };
    const jobs = await start('jobs');
    const ingest = await start('ingest');
    await kubectl('apply', '-k', join(out, 'beside'));
    await kubectl('replace', '--save-config', '-f', join(out, 'workload.yaml'));
    assert.equal(await containers(), 'shop-driver csi-gateway');
    await first.stop();
    const started = await startGateway(written.workload, tls, written);
    const done = bed.ledger.madeBy('sutler');
    await until(() => bed.ledger.madeBy('sutler') > done + 100, 'volumes of sutler', 120_000);
    assert.match(
      await sutler('migrate', '--check', ...source, gateway, `--out=${out}`),
      /: nothing is amiss after the migration\nsutler holds the Lease (.*\n)*the gateway answers /,
    );

    assert.match(await sutler('migrate', '--back', out), /1\. sutler drain --wait/);
    await sutler('drain', '--wait', `--driver-name=${bed.driver}`);
    for (const each of [ingest, jobs]) await each.stop();
    await kubectl('replace', '--save-config', '-f', join(out, 'back', 'workload.yaml'));
    assert.equal(await containers(), 'shop-driver csi-provisioner');
    await started.stop();
    const before = bed.ledger.madeBy('other');
    await bed.startOther();
    await until(() => bed.ledger.madeBy('other') > before + 20, 'volumes after it', 120_000);
    await kubectl('delete', '-k', join(out, 'beside'));
  };

  /** What of k8s/ does not run: the rights; and the Secret, and the CSIDriver. */
  const install = async (tls: string, { service }: Written): Promise<void> => {
    for (const file of ['namespace', 'service-accounts', 'rbac-ingest', 'rbac-jobs'])
      await kubectl('apply', '-f', join(K8S, 'base', `${file}.yaml`));
    const files = ['ca.crt', 'tls.crt', 'tls.key'].map((file) => `--from-file=${join(tls, file)}`);
    await kubectl('create', 'secret', 'generic', `${service}-tls`, ...files);
    const metadata = { name: bed.driver };
    await bed.kube.create(csiDrivers, undefined, { metadata, spec: { attachRequired: false } });
  };

  /** As the kubelet does, and the EndpointSlice that the control plane makes of it. */
  const startGateway = async (
    { spec }: Workload,
    tls: string,
    { service, namespace, ports }: Written,
  ): Promise<Startable> => {
    const uid = '5f0c9c2e-8d1f-4e57-9f0a-2f1f6c1d9a11';
    const port = await freePort();
    const args = spec.template.spec.containers.at(-1)?.args ?? [];
    const started = await bed.start(
      args.map((arg) =>
        arg
          .replace('/etc/sutler/tls', tls)
          .replace('$(POD_UID)', uid)
          .replace(`:${ports.gateway}`, `:${port}`),
      ),
    );
    await bed.kube.create(endpointSlices, namespace, {
      metadata: { name: service, labels: { 'kubernetes.io/service-name': service } },
      addressType: 'IPv4',
      endpoints: [
        {
          addresses: [ownAddress()],
          conditions: { ready: true },
          targetRef: { kind: 'Pod', namespace, name: 'shop-0', uid },
        },
      ],
      ports: [{ name: 'gateway', port, protocol: 'TCP' }],
    });
    return started;
  };

  it('loses no claim, makes no volume twice, and leaks none, while claims come and go', async () => {
    const plan = { claims: 700, perSecond: 10, bursts: 1, deleteWithinMs: 3_000 };
    const [result] = await Promise.all([churn(bed, plan, () => delay(100)), migrateAndBack()]);
    const { made, lost, left, madeTwice, madeAgain, leaked } = result;
    process.stdout.write(
      `made ${made.sutler} + ${made.other}, leaked ${leaked.other.length} by the other\n`,
    );
    // external-provisioner drops what it is at as it is stopped.
    const log = await readFile(join(bed.folder, 'ingest.log'), 'utf8');
    assert.deepEqual(
      leaked.other.filter((handle) => !log.includes(handle)),
      [],
    );
    assert.deepEqual(
      { lost, left, madeTwice, madeAgain, leaked: leaked.sutler },
      { lost: [], left: [], madeTwice: [], madeAgain: [], leaked: [] },
    );
  });
});

/** What `sutler migrate -o json` prints, as far as it is needed here. */
interface Written {
  readonly namespace: string;
  readonly service: string;
  readonly ports: { readonly gateway: number };
  readonly workload: Workload;
  readonly arguments: { readonly ofProcesses: readonly string[] };
}

/** An address of this machine that an EndpointSlice may name. */
function ownAddress(): string | undefined {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  return all.find(({ family, internal }) => family === 'IPv4' && !internal)?.address;
}
