import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import type { Redis } from 'ioredis';
import { stringify } from 'yaml';
import { CsiClient } from '#src/gateway-client/client.ts';
import { processes } from '#src/processes.ts';
import { Closers } from '#src/runtime/closers.ts';
import { type SampleDriverOptions, startSampleDriver } from '../../../sandbox/driver/server.ts';
import type { Connection } from '../../conformance/connection.ts';
import { makeFolder } from '../csi-folder.ts';
import { freePort } from '../free-port.ts';
import { startSutlerProcess, type SutlerProcess } from '../program.ts';
import type { RealControlPlane } from '../real-control-plane.ts';
import { type RedisUser, redisUsers, urlOf } from '../redis-users.ts';
import { runSutler } from '../run-sutler.ts';
import { startTestRedis, type TestRedis } from '../redis.ts';
import { type Audited, grantedRights, readAuditLog } from './audited-rights.ts';
import { grantShipped, HOME } from './shipped-rights.ts';

/** Where the Lease of the driver with topology is. */
const LOCAL_HOME = 'local-storage';
/** The pod of ingest. */
const POD = 'sutler-ingest-pod';
/** A driver without topology, and one with a pool on each node. */
export const CENTRAL = 'central.csi.example';
export const LOCAL = 'local.csi.example';
export const NODE_KEY = 'topology.example/node';

/** The database of Redis, which is not its first, so that SELECT is used. */
const DATABASE = 1;

/** The folders of k8s/ whose rights ingest and jobs get, and where an administrator puts those that
 * name no namespace of their own. */
const FOLDERS: Readonly<Record<string, string>> = {
  base: HOME,
  capacity: HOME,
  topology: HOME,
  webhooks: HOME,
  gateway: HOME,
  'driver-lease': LOCAL_HOME,
  'secrets-by-name': 'storage-secrets',
  'secrets-by-namespace': 'more-secrets',
};

const COMMON = { 'gateway-insecure': true, timeout: '5s', 'settle-time': '100ms' };
const DRIVERS = {
  [CENTRAL]: {
    ...COMMON,
    'gateway-service': `${HOME}/${CENTRAL}`,
    'max-jobs-in-flight': 50,
    'max-jobs-per-second': 100,
    'volume-name-uuid-length': 16,
  },
  [LOCAL]: {
    ...COMMON,
    'gateway-service': `${HOME}/${LOCAL}`,
    'leader-election-namespace': LOCAL_HOME,
    'enable-capacity': true,
    'strict-topology': true,
  },
};

/** ingest, jobs and gateways with exactly what k8s/ gives them: the tokens of their accounts and
 * the users of Redis. */
export interface LeastPrivilegeBed {
  readonly api: Connection;
  /** Of the administrator. */
  readonly kubeconfig: string;
  readonly redis: TestRedis;
  /** With all rights, on the database of sutler. */
  readonly data: Redis;
  /** Where an ingest may hear of notices. */
  readonly webhooks: string;
  /** The rights that were granted. */
  readonly rights: ReadonlySet<string>;
  /** What the API server has answered. */
  audited(): Promise<Audited>;
  /** Starts a driver with a gateway, which the EndpointSlices of its Service name. */
  startDriver(options: Partial<SampleDriverOptions> & { readonly name: string }): Promise<void>;
  /** A client of a driver. */
  clientOf(driver: string): CsiClient;
  startIngest(...flags: readonly string[]): Promise<SutlerProcess>;
  startJobs(): Promise<SutlerProcess>;
  /** Runs a command in a container of ingest, or as the operator's user of Redis with the
   * administrator's kubeconfig.
   * @returns what it prints */
  operate(as: 'ingest' | 'operator', command: string, ...args: readonly string[]): Promise<string>;
  close(): Promise<void>;
}

export async function openLeastPrivilegeBed(
  openPlane: () => Promise<RealControlPlane>,
): Promise<LeastPrivilegeBed> {
  const closers = new Closers();
  const folder = await makeFolder();
  closers.add('folder', () => folder.remove());
  const plane = await openPlane();
  closers.add('cluster', () => plane.close());
  const { api } = plane;
  const { objects, kubeconfigs } = await grantShipped(plane, FOLDERS);
  await createPod(api);
  const redis = await startTestRedis({ settings: redisUsers() });
  closers.add('Redis', () => redis.close());
  const data = redis.redis.duplicate({ db: DATABASE });
  closers.add('connection to Redis', () => data.disconnect());
  const redisUrlOf = (user: RedisUser): string => urlOf(user, `${redis.url}/${DATABASE}`);
  const webhooks = `127.0.0.1:${await freePort()}`;
  const config = folder.file('drivers.yaml');
  await writeFile(config, stringify({ drivers: DRIVERS }));
  const place = [`--driver-config=${config}`, `--leader-election-namespace=${HOME}`];
  let count = 0;
  const start = async (name: string, flags: readonly string[]): Promise<SutlerProcess> => {
    count += 1;
    const user = name === 'ingest' || name === 'jobs' ? name : undefined;
    const started = await startSutlerProcess([name, ...flags], {
      env: {
        ...(user === undefined ? {} : { REDIS_URL: redisUrlOf(user) }),
        HOME: folder.path,
        HOSTNAME: `${name}-${count}`,
        NAMESPACE: HOME,
        POD_NAME: POD,
      },
    });
    closers.add(name, () => started.stop());
    return started;
  };
  return {
    api,
    kubeconfig: plane.kubeconfig,
    redis,
    data,
    webhooks,
    rights: grantedRights(objects),
    audited: async () => readAuditLog(await readFile(plane.auditLog ?? '', 'utf8')),
    async startDriver(options) {
      const { name } = options;
      const driver = await startSampleDriver({
        socket: folder.file(`${name}.sock`),
        dataDir: folder.file(name),
        ...options,
      });
      closers.add(`driver ${name}`, () => driver.close());
      const [host, port] = [hostAddress(), await freePort()];
      const listen = `--listen=dns:///${host}:${port}`;
      await start('csi-gateway', [`--csi-address=${driver.socket}`, listen, '--insecure']);
      await api.create(`/apis/discovery.k8s.io/v1/namespaces/${HOME}/endpointslices`, {
        apiVersion: 'discovery.k8s.io/v1',
        kind: 'EndpointSlice',
        metadata: { name, labels: { 'kubernetes.io/service-name': name } },
        addressType: 'IPv4',
        endpoints: [{ addresses: [host], conditions: { ready: true } }],
        ports: [{ name: 'gateway', port, protocol: 'TCP' }],
      });
    },
    clientOf(driver) {
      const path = folder.file(`${driver}.sock`);
      const client = new CsiClient({ address: { kind: 'unix', path } });
      closers.add('client of the driver', () => client.close());
      return client;
    },
    startIngest: (...flags) =>
      start('ingest', [
        `--kubeconfig=${kubeconfigs.ingest}`,
        ...place,
        '--event-source=both',
        '--snapshot-orphan-sweep-interval=1s',
        '--audit-interval=1s',
        '--audit-min-age=1s',
        '--capacity-poll-interval=1s',
        '--capacity-ownerref-level=2',
        '--leader-election-lease-duration=4s',
        '--leader-election-renew-deadline=3s',
        '--leader-election-retry-period=1s',
        ...flags,
      ]),
    startJobs: () =>
      start('jobs', [
        `--kubeconfig=${kubeconfigs.jobs}`,
        ...place,
        '--feature-gates=CrossNamespaceVolumeDataSource=true',
        '--retry-interval-start=200ms',
        '--retry-interval-max=2s',
        '--lock-duration=5s',
      ]),
    async operate(as, command, ...args) {
      const { flags = {} } = processes[command] ?? {};
      const kubeconfig = as === 'ingest' ? kubeconfigs.ingest : plane.kubeconfig;
      const all = [`--kubeconfig=${kubeconfig}`, ...place, `--driver-name=${CENTRAL}`];
      const common = all.filter((flag) => (/^--([^=]+)/.exec(flag)?.[1] ?? '') in flags);
      const { out, err } = await runSutler([command, ...args, ...common], {
        REDIS_URL: redisUrlOf(as),
      });
      return out + err;
    },
    close: async () => assert.deepEqual(await closers.close(), []),
  };
}

/** Creates the pod of ingest with its owners, which own what ingest publishes. */
async function createPod(api: Connection): Promise<void> {
  const labels = { app: 'ingest' };
  const template = {
    metadata: { labels },
    spec: { containers: [{ name: 'ingest', image: 'none' }] },
  };
  const spec = { replicas: 0, selector: { matchLabels: labels }, template };
  const apps = `/apis/apps/v1/namespaces/${HOME}`;
  const deployment = await api.create(`${apps}/deployments`, {
    metadata: { name: 'sutler-ingest' },
    spec,
  });
  const replicaSet = await api.create(`${apps}/replicasets`, {
    metadata: { name: 'sutler-ingest-1', ownerReferences: [ownerOf('Deployment', deployment)] },
    spec,
  });
  // Pods are refused until a controller has created this account.
  const account = `/api/v1/namespaces/${HOME}/serviceaccounts/default`;
  await api.until(account, ({ status }) => status === 200);
  await api.create(`/api/v1/namespaces/${HOME}/pods`, {
    metadata: { name: POD, labels, ownerReferences: [ownerOf('ReplicaSet', replicaSet)] },
    spec: template.spec,
  });
}

function ownerOf(kind: string, owner: unknown): object {
  const { metadata } = owner as { metadata: { name: string; uid: string } };
  const { name, uid } = metadata;
  return { apiVersion: 'apps/v1', kind, name, uid, controller: true };
}

/** An address of this machine that an EndpointSlice may have, which loopback is not. */
export function hostAddress(): string {
  const found = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .find(({ family, internal }) => family === 'IPv4' && !internal);
  if (found === undefined)
    throw new Error('this machine has no IPv4 address but loopback, and EndpointSlices need one');
  return found.address;
}
