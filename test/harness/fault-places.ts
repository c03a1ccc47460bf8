import assert from 'node:assert/strict';
import type { KubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { classes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { childrenOf } from '../../bench/proc.ts';
import {
  type SampleDriver,
  type SampleDriverOptions,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import type { Connection } from '../conformance/connection.ts';
import { makeFolder } from './csi-folder.ts';
import { PASSWORD, RIGHT, startTestDashboard } from './dashboard-server.ts';
import { startDropIn } from './drop-in-bed.ts';
import { freePort } from './free-port.ts';
import { grantShipped, HOME } from './least-privilege/shipped-rights.ts';
import { DRIVER, ProcessBed } from './process-bed.ts';
import type { RealControlPlane } from './real-control-plane.ts';
import { urlOf } from './redis-users.ts';
import { runSutler } from './run-sutler.ts';
import { clientsOf, type SandboxCluster } from './sandbox-cluster.ts';
import { ACCOUNT, grantUpstreamRules } from './upstream-rights.ts';

/** A fault that a place has: how it comes, and how it goes. */
export interface PlaceFault {
  begin(): Promise<void>;
  end(): Promise<void>;
}

/** sutler in one of its forms on a real control plane, with a dashboard and the class `sample`. */
export interface FaultPlace {
  /** Of the administrator. */
  readonly kube: KubeClient;
  /** Of the claims. */
  readonly namespace: string;
  /** The account that reads secrets. */
  readonly reader: { readonly namespace: string; readonly name: string };
  readonly driver: SampleDriver;
  readonly dashboard: string;
  /** What fails in its processes, by name. */
  readonly faults: Readonly<Record<string, PlaceFault>>;
  /** What the process says that leads. */
  metrics(): Promise<string>;
  /** Runs a command of `sutler` as an operator of this form does.
   * @returns what it prints */
  operate(command: string, ...args: readonly string[]): Promise<string>;
  /** Ends everything. */
  close(): Promise<void>;
}

interface PlaceOptions {
  readonly plane: RealControlPlane;
  readonly api: Connection;
  /** The namespace whose secrets sutler may read. */
  readonly readable: string;
  readonly onCall: NonNullable<SampleDriverOptions['onCall']>;
  /** Of the process with the workers. */
  readonly flags: readonly string[];
}

/** Shows a page of a place's dashboard. */
export async function showPage({ dashboard }: FaultPlace, path: string): Promise<string> {
  const authorization = `Basic ${Buffer.from(RIGHT.join(':')).toString('base64')}`;
  return (await fetch(`${dashboard}${path}`, { headers: { authorization } })).text();
}

/** ingest, jobs and dashboard apart, with the rights of k8s/. */
export async function openApart(o: PlaceOptions): Promise<FaultPlace> {
  const { plane, api, readable, onCall, flags } = o;
  const bed = await ProcessBed.open({ onCall, openCluster: () => asBedCluster(plane) });
  const { kubeconfigs } = await grantShipped(api, plane, {
    base: HOME,
    'secrets-by-namespace': readable,
  });
  const home = `--leader-election-namespace=${HOME}`;
  const ingest = await bed.startIngest(`--kubeconfig=${kubeconfigs.ingest}`, home);
  const startJobs = () => bed.startJobs(`--kubeconfig=${kubeconfigs.jobs}`, home, ...flags);
  let jobs = await startJobs();
  const dashboard = await startTestDashboard(urlOf('dashboard', bed.redis.url));
  return {
    kube: bed.kube,
    namespace: 'default',
    reader: { namespace: HOME, name: 'sutler-jobs' },
    driver: bed.driver,
    dashboard: dashboard.origin,
    faults: {
      'no worker': {
        begin: () => jobs.stop(),
        end: async () => {
          jobs = await startJobs();
        },
      },
      'gateway away': { begin: () => bed.stopGateway(), end: () => bed.startGateway() },
      'Redis away': { begin: () => bed.redis.kill(), end: () => bed.redis.start() },
    },
    metrics: async () => (await fetch(`${ingest.url}/metrics`)).text(),
    operate: (command, ...args) => bed.operate(command, ...args),
    async close() {
      await dashboard.close();
      await bed.close();
    },
  };
}

/** `sutler all` in the place of external-provisioner, with exactly its rights, and that on the
 * secrets of one namespace. */
export async function openDropIn(o: PlaceOptions): Promise<FaultPlace> {
  const { plane, api, readable, onCall, flags } = o;
  const closers = new Closers();
  const folder = await makeFolder();
  closers.add('folder', () => folder.remove());
  const cluster = await asBedCluster(plane);
  closers.add('cluster', () => cluster.close());
  const kube = await cluster.client();
  const socket = folder.file('csi.sock');
  const driver = await startSampleDriver({ socket, dataDir: folder.file('volumes'), onCall });
  closers.add('driver', () => driver.close());
  await kube.create(classes, undefined, {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: 'sample' },
    provisioner: DRIVER,
  });
  const namespace = await api.namespace();
  const kubeconfig = await grantUpstreamRules(api, plane, namespace);
  const reader = { namespace, name: ACCOUNT };
  await api.create('/api/v1/namespaces', { metadata: { name: readable } });
  await grantSecrets(api, readable, reader);
  const port = await freePort();
  const start = () =>
    startDropIn({
      args: [
        `--kubeconfig=${kubeconfig}`,
        '--leader-election',
        '--leader-election-lease-duration=4s',
        '--leader-election-renew-deadline=3s',
        '--leader-election-retry-period=1s',
        '--timeout=1s',
        `--dashboard-address=127.0.0.1:${port}`,
        ...flags,
      ],
      socket,
      namespace,
      env: { TMPDIR: folder.path, SUTLER_DASHBOARD_PASSWORD: PASSWORD },
    });
  let container = await start();
  closers.add('sutler', () => container.stop());
  return {
    kube,
    namespace,
    reader,
    driver,
    dashboard: `http://127.0.0.1:${port}`,
    faults: {
      // Its parent starts it again.
      'Redis killed': {
        async begin() {
          const children = [...(await childrenOf(container.pid))];
          const redis = children.find(([name]) => /^(redis|valkey)-server/.test(name));
          assert.ok(redis);
          process.kill(redis[1], 'SIGKILL');
        },
        end: () => Promise.resolve(),
      },
      'process killed': {
        begin: () => container.kill(),
        end: async () => {
          container = await start();
        },
      },
    },
    metrics: async () => (await fetch(`${container.url}/metrics`)).text(),
    async operate(...args) {
      const { out, err } = await runSutler(args, { TMPDIR: folder.path });
      return out + err;
    },
    close: async () => assert.deepEqual(await closers.close(), []),
  };
}

/** Lets an account read the secrets of a namespace. */
export async function grantSecrets(
  api: Connection,
  namespace: string,
  account: FaultPlace['reader'],
): Promise<void> {
  const roles = `/apis/rbac.authorization.k8s.io/v1/namespaces/${namespace}`;
  const metadata = { name: 'secrets' };
  const rules = [{ apiGroups: [''], resources: ['secrets'], verbs: ['get'] }];
  await api.create(`${roles}/roles`, { metadata, rules });
  await api.create(`${roles}/rolebindings`, {
    metadata,
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: metadata.name },
    subjects: [{ kind: 'ServiceAccount', ...account }],
  });
}

/** The control plane as the cluster of a bed. */
async function asBedCluster(plane: RealControlPlane): Promise<SandboxCluster> {
  const { kubeconfig } = plane;
  const access = await loadClusterAccess({ kubeconfig, env: {} });
  const { client, closeClients } = clientsOf(access);
  return {
    kubeconfig,
    access,
    get api(): never {
      throw new Error('the API server is not the sandbox’s');
    },
    client,
    async close() {
      await closeClients();
      await plane.close();
    },
  };
}
