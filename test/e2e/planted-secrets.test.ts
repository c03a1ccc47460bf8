import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Code } from '#src/csi/status.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, classes, secrets } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type Child, startChild } from '../../sandbox/children.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { DRIVER } from '../harness/process-bed.ts';
import { serverTls, startTlsRedis, type TlsRedis } from '../harness/redis-tls.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { startSentinel } from '../harness/sentinel.ts';
import { openTlsFront } from '../harness/tls-front.ts';
import { until } from '../harness/until.ts';

const CLI = fileURLToPath(new URL('../../../dist/cli.js', import.meta.url));

const DASHBOARD_PASSWORD = 'planted/dashboard:passwörd';
const WRONG_DASHBOARD_PASSWORD = 'planted-wrong-dashboard';
const REFUSED_REDIS_PASSWORD = 'planted+refused/redis';
const SENTINEL_PASSWORD = 'planted-sentinel-password';
const CSI_SECRET = 'planted-csi-secret/ü';

/** Each form in which a value might be written. */
function formsOf(value: string): readonly string[] {
  const bytes = Buffer.from(value);
  const texts = [value, encodeURIComponent(value), JSON.stringify(value).slice(1, -1)];
  return [...texts, bytes.toString('base64').replace(/=+$/, ''), bytes.toString('base64url')];
}

describe('what the processes print', () => {
  const closers = new Closers();
  let redis: TlsRedis;
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let kubeconfig: string;
  let socket: string;
  let sentinelUrl: string;
  /** By what it is. */
  const planted = new Map<string, string>([
    ['dashboard password', DASHBOARD_PASSWORD],
    ['wrong dashboard password', WRONG_DASHBOARD_PASSWORD],
    ['basic auth header', `admin:${DASHBOARD_PASSWORD}`],
    ['refused Redis password', REFUSED_REDIS_PASSWORD],
    ['Sentinel password', SENTINEL_PASSWORD],
    ['CSI secret', CSI_SECRET],
  ]);
  let serial = 0;

  before(async () => {
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    redis = await startTlsRedis({ asksForCertificate: true });
    closers.add('Redis', () => redis.close());
    planted.set('Redis password', redis.password);
    const [, key = ''] = (await readFile(redis.server.keyFile, 'utf8')).split('\n');
    planted.set('TLS key', key);
    const port = await startSentinel({
      dir: redis.folder,
      masterPort: redis.tlsPort,
      masterPassword: redis.password,
      closers: redis.closers,
      settings: (tlsPort) => [
        'port 0',
        `tls-port ${tlsPort}`,
        ...serverTls(redis.authority, redis.server),
        'tls-replication yes',
        'requirepass another',
      ],
    });
    sentinelUrl = `rediss-sentinel://:${redis.password}@127.0.0.1:${port}/main`;
    cluster = await openSandboxCluster({ binder: true });
    closers.add('cluster', () => cluster.close());
    const front = await openTlsFront(cluster, folder.path);
    closers.add('TLS', () => front.close());
    kubeconfig = folder.file('kubeconfig');
    await writeFile(kubeconfig, front.kubeconfig());
    planted.set('bearer token', front.token);
    socket = folder.file('csi.sock');
    const driver = await startSampleDriver({
      socket,
      dataDir: folder.file('volumes'),
      onCall: ({ method, request }) => {
        const { secrets: given } = request as {
          readonly secrets?: Readonly<Record<string, string>>;
        };
        // The first call of each claim fails with what it was given.
        if (method === 'CreateVolume' && (calls += 1) % 2 === 1)
          throw new DriverStatus(Code.Internal, `can't log in with ${given?.['password']}`);
        return undefined;
      },
    });
    closers.add('driver', () => driver.close());
    kube = await cluster.client();
    await kube.create(secrets, 'default', {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'login', namespace: 'default' },
      data: { password: Buffer.from(CSI_SECRET).toString('base64') },
    });
    await kube.create(classes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name: 'sample' },
      provisioner: DRIVER,
      parameters: {
        'csi.storage.k8s.io/provisioner-secret-name': 'login',
        'csi.storage.k8s.io/provisioner-secret-namespace': 'default',
      },
    });
  });
  after(async () => assert.deepEqual(await closers.close(), []));
  let calls = 0;

  const start = (
    [name = '', ...argv]: readonly string[],
    env: Readonly<Record<string, string>>,
    print: (text: string) => void,
  ): Child =>
    startChild(
      {
        name,
        command: [process.execPath, CLI, name, ...argv],
        env: { PATH: process.env['PATH'], KUBECONFIG: '', ...env },
        output: print,
      },
      { log: silentLog, onUsageError: (_, line) => print(line) },
    );

  const provision = async (): Promise<void> => {
    const name = `claim-${(serial += 1)}`;
    await kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name, namespace: 'default' },
      spec: {
        storageClassName: 'sample',
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
      },
    });
    await until(async () => {
      const claim = await kube.get<Claim>(claims, { namespace: 'default', name });
      return claim?.status?.phase === 'Bound';
    }, 'the claim is bound');
  };

  /** @returns what proves that a browser was let in */
  const useDashboard = async (origin: string): Promise<string> => {
    const send = (method: string, path: string, password: string): Promise<Response> => {
      const authorization = `Basic ${Buffer.from(`admin:${password}`).toString('base64')}`;
      return fetch(`${origin}${path}`, { method, headers: { authorization } });
    };
    await send('GET', '/', WRONG_DASHBOARD_PASSWORD);
    await send('PUT', '/queues/api/queues/none/promote', DASHBOARD_PASSWORD);
    const { headers } = await send('GET', '/queues/api/queues', DASHBOARD_PASSWORD);
    return /^sutler_known=([^;]+)/.exec(headers.get('set-cookie') ?? '')?.[1] ?? '';
  };

  /** Takes the password away from all processes, so that each is refused. */
  const refuseLogins = async (isRefused: () => boolean): Promise<void> => {
    await redis.redis.redis.config('SET', 'requirepass', 'another');
    await redis.redis.redis.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await until(isRefused, 'the login is refused');
    await redis.redis.redis.config('SET', 'requirepass', redis.password);
  };

  /* -v=9 prints everything that the levels below it do, and the CSI messages. */
  it('contains no planted secret, at -v=9 in JSON', async () => {
    let output = '';
    const print = (text: string): void => void (output += text);
    const common = ['-v=9', '--logging-format=json'];
    const tls = [
      `--redis-tls-ca=${redis.authority.caFile}`,
      `--redis-tls-cert=${redis.server.certFile}`,
      `--redis-tls-key=${redis.server.keyFile}`,
    ];
    const login = { SUTLER_DASHBOARD_PASSWORD: DASHBOARD_PASSWORD };
    const all = start(
      [
        'all',
        ...common,
        ...tls,
        `--kubeconfig=${kubeconfig}`,
        `--csi-address=unix://${socket}`,
        '--dashboard-address=127.0.0.1:0',
        '--leader-election-namespace=default',
        '--retry-interval-start=50ms',
      ],
      { ...login, REDIS_URL: redis.url() },
      print,
    );
    const sentinel = start(
      ['dashboard', ...common, ...tls, '--dashboard-address=127.0.0.1:0'],
      { ...login, REDIS_URL: sentinelUrl, REDIS_SENTINEL_PASSWORD: SENTINEL_PASSWORD },
      print,
    );
    const refused = new URL(redis.url());
    refused.password = encodeURIComponent(REFUSED_REDIS_PASSWORD);
    const audit = start(
      ['audit', ...common, ...tls, `--kubeconfig=${kubeconfig}`, `--gateway=unix://${socket}`],
      { REDIS_URL: refused.href },
      print,
    );
    const refusals = (): number => output.split('WRONGPASS').length;
    try {
      const facts = await all.announced;
      await provision();
      const cookie = await useDashboard(new URL(facts['dashboard'] ?? '').origin);
      await until(() => refusals() > 1, 'the login of audit is refused');
      await until(() => output.includes('--redis-sentinel-password'), 'that at the Sentinel too');
      const before = refusals();
      await refuseLogins(() => refusals() >= before + 3);
      await provision();
      for (const [what, value] of [...planted, ['cookie', cookie]] as const)
        for (const written of formsOf(value)) {
          assert.ok(written.length > 5, what);
          const line = output.split('\n').find((text) => text.includes(written));
          assert.equal(line, undefined, `${what}: ${line}`);
        }
      assert.doesNotMatch(output, /[^\P{Cc}\n]/u, 'a raw control character');
    } finally {
      await Promise.all([all, sentinel, audit].map((child) => child.stop(10_000)));
    }
  });
});
