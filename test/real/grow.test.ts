import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { parse } from 'yaml';
import { endpointSlices } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import type { Connection } from '../conformance/connection.ts';
import { makeCertificates } from '../harness/csi-certificates.ts';
import { type DropInBed, openDropInBed } from '../harness/drop-in-bed.ts';
import { freePort } from '../harness/free-port.ts';
import { hostAddress } from '../harness/least-privilege/bed.ts';
import { grantShipped, HOME } from '../harness/least-privilege/shipped-rights.ts';
import { type SutlerProcess, startSutlerProcess } from '../harness/program.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import { startTestRedis } from '../harness/redis.ts';
import { assertNothingDenied, redisUsers, urlOf } from '../harness/redis-users.ts';
import { runSutler } from '../harness/run-sutler.ts';
import { until } from '../harness/until.ts';
import { ACCOUNT, grantUpstreamRules, RBAC } from '../harness/upstream-rights.ts';

const PAGE = readFileSync(new URL('../../../docs/grow.md', import.meta.url), 'utf8');
/** Of the driver. */
const NAMESPACE = 'storage';
const POD = { kind: 'Pod', name: 'driver-0', uid: '7c0f5a52-0c7e-4a52-9a68-0d1c6c0a7c11' };

/** A block of YAML of docs/grow.md, by the comment that is its first line. */
function blockOf(name: string): string {
  const [, block] = new RegExp(`^ *# ${name}\n([^]*?)^ *\`\`\`$`, 'm').exec(PAGE) ?? [];
  assert.ok(block !== undefined, name);
  return block.replaceAll('NAMESPACE', NAMESPACE);
}

interface Variable {
  readonly name: string;
  readonly value?: string;
  readonly valueFrom?: {
    readonly secretKeyRef?: object;
    readonly fieldRef?: { readonly fieldPath: string };
  };
}
interface Workload {
  readonly spec: {
    readonly template: {
      readonly spec: {
        readonly containers: readonly { readonly args: string[]; readonly env: Variable[] }[];
      };
    };
  };
}

const DEPLOYMENTS = `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`;
const ARGS = ['--timeout=5s', '--settle-time=1s', '--retry-interval-start=200ms'];

// The roles of k8s/ are granted in a cluster of the test's own.
const skip = (process.env['KUBEBUILDER_ASSETS'] ?? '') === '' && 'no kube-apiserver to start';
const openPlane = realControlPlane(process.env, { binder: true });

describe('docs/grow.md, on kube-apiserver', { skip }, () => {
  const closers = new Closers();
  let plane: RealControlPlane;
  let api: Connection;
  let bed: DropInBed;
  /** Of the workers elsewhere. */
  let jobs: SutlerProcess;
  let redisUrl: string;
  let folder: string;
  let port: number;
  let kubeconfigs: Readonly<Record<'ingest' | 'jobs', string>>;

  before(async () => {
    plane = await openPlane();
    closers.add('cluster', () => plane.close());
    ({ api } = plane);
    const folders = { base: HOME, gateway: NAMESPACE, 'driver-lease': NAMESPACE };
    ({ kubeconfigs } = await grantShipped(plane, folders));
    const redis = await startTestRedis({ settings: redisUsers() });
    redisUrl = redis.url;
    closers.add('Redis', async () => {
      await assertNothingDenied(redis.redis);
      await redis.close();
    });
    const ownKubeconfig = await grantUpstreamRules(plane, NAMESPACE);
    await api.create(`${RBAC}/namespaces/${NAMESPACE}/rolebindings`, {
      metadata: { name: 'sutler-gateway-own' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'sutler-gateway' },
      subjects: [{ kind: 'ServiceAccount', name: ACCOUNT, namespace: NAMESPACE }],
    });
    const { kubeconfig } = plane;
    const options = { kubeconfig, ownKubeconfig, namespace: NAMESPACE, driverDelayMs: 200 };
    bed = await openDropInBed(options);
    closers.add('driver', async () => assert.deepEqual(await bed.close(), []));
    folder = dirname(bed.driver.socket);
    await makeCertificates(folder, `DNS:sutler-gateway.${NAMESPACE}.svc`);
    for (const end of ['crt', 'key']) {
      copyFileSync(join(folder, `gateway.${end}`), join(folder, `tls.${end}`));
      copyFileSync(join(folder, `jobs.${end}`), join(folder, `client.${end}`));
    }
    port = await freePort();
    writeFileSync(
      join(folder, 'drivers.yaml'),
      blockOf('drivers.yaml').replace('DRIVER', bed.driverName),
    );
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  /** A process of the installation elsewhere. */
  async function start(name: 'ingest' | 'jobs'): Promise<SutlerProcess> {
    const tls = ['ca', 'cert', 'key'].map((part) => {
      const file = part === 'ca' ? 'ca.crt' : `${name}.${part === 'key' ? 'key' : 'crt'}`;
      return `--gateway-tls-${part}=${join(folder, file)}`;
    });
    const own = [
      `--kubeconfig=${kubeconfigs[name]}`,
      `--driver-config=${join(folder, 'drivers.yaml')}`,
    ];
    const started = await startSutlerProcess([name, ...own, ...tls, ...ARGS], {
      env: { HOME: folder, REDIS_URL: urlOf(name, redisUrl) },
    });
    closers.add(name, () => started.stop());
    return started;
  }

  const status = () => runSutler(['status'], { REDIS_URL: urlOf('operator', redisUrl) });
  const says = (what: RegExp) =>
    until(async () => {
      const { out, err } = await status();
      return what.test(out + err);
    }, `sutler status says ${what}`);

  async function bind(prefix: string, count: number): Promise<void> {
    const names = Array.from({ length: count }, (_, i) => `${prefix}-${i}`);
    await Promise.all(names.map((name) => bed.createClaim(name)));
    for (const name of names) await until(() => bed.isBound(name), `${name} is Bound`);
  }

  /** What the container starts with once the page's patch is applied to its Deployment. */
  async function patchedEnvironment(): Promise<Readonly<Record<string, string>>> {
    const labels = { app: 'driver' };
    const container = { name: 'csi-provisioner', image: 'sutler', args: ['--csi-address=/csi'] };
    await api.create(DEPLOYMENTS, {
      metadata: { name: 'driver' },
      spec: {
        replicas: 0,
        selector: { matchLabels: labels },
        template: { metadata: { labels }, spec: { containers: [container] } },
      },
    });
    const reply = await api.patch(
      'strategic',
      `${DEPLOYMENTS}/driver`,
      parse(blockOf('grow.yaml')),
    );
    assert.equal(reply.status, 200, reply.text);
    const [patched] = (reply.body as Workload).spec.template.spec.containers;
    assert.deepEqual(patched?.args, container.args);
    const valueOf = ({ value = '', valueFrom }: Variable): string => {
      if (valueFrom?.secretKeyRef !== undefined) return urlOf('all', redisUrl);
      if (valueFrom?.fieldRef?.fieldPath === 'metadata.uid') return POD.uid;
      return value
        .replace('[::]:23808', `${hostAddress()}:${port}`)
        .replace('/etc/sutler/tls', folder);
    };
    return Object.fromEntries(patched?.env.map((each) => [each.name, valueOf(each)]) ?? []);
  }

  it('has sutler status say that no gateway is found, while the container is as it was', async () => {
    await start('ingest');
    jobs = await start('jobs');
    await says(/no driver is served yet: .*no gateway can be called: see --gateway-service/);
  });

  it('starts the container with what the patch gives it', async () => {
    await bed.start([...ARGS, '--worker-threads=2'], await patchedEnvironment());
    await says(/ingest container-1.*no gateway can be called/);
  });

  it('has workers elsewhere create volumes too, once the Service has the pod', async () => {
    await bed.kube.create(endpointSlices, NAMESPACE, {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: {
        name: 'sutler-gateway-1',
        labels: { 'kubernetes.io/service-name': 'sutler-gateway' },
      },
      addressType: 'IPv4',
      endpoints: [{ addresses: [hostAddress()], targetRef: POD, conditions: { ready: true } }],
      ports: [{ name: 'gateway', port, protocol: 'TCP' }],
    });
    await bind('grown', 40);
    const page = await (await fetch(`${jobs.url}/metrics`)).text();
    assert.match(page, /^workqueue_work_duration_seconds_count\{name="claims"\} [1-9]/m);
    assert.deepEqual(bed.ledger.madeAgain(), []);
  });

  it('then has sutler status name no process', async () => {
    const isFine = async (): Promise<boolean> => {
      const { code, out } = await status();
      return code === 0 && !/^ +(ingest|jobs) /m.test(out);
    };
    await until(isFine, 'sutler status names no process');
  });
});
