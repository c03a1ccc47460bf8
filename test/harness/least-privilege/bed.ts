import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { fileURLToPath } from 'node:url';
import type { Redis } from 'ioredis';
import { stringify } from 'yaml';
import { CsiClient } from '#src/gateway-client/client.ts';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { endpointSlices } from '#src/kube/resources.ts';
import { processes } from '#src/processes.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import {
  type SampleDriver,
  type SampleDriverOptions,
  startSampleDriver,
} from '../../../sandbox/driver/server.ts';
import { Connection } from '../../conformance/connection.ts';
import { startSutlerProcess } from '../change-over/bed.ts';
import type { Startable } from '../change-over/scenario.ts';
import { makeFolder } from '../csi-folder.ts';
import { freePort } from '../free-port.ts';
import type { RealControlPlane } from '../real-control-plane.ts';
import { type RedisUser, redisUsers, urlOf } from '../redis-users.ts';
import { runSutler } from '../run-sutler.ts';
import { startTestRedis, type TestRedis } from '../redis.ts';
import { type Audited, grantedRights, readAuditLog } from './audited-rights.ts';
import { RedisGrants } from './redis-grants.ts';
import { grantShipped, HOME } from './shipped-rights.ts';

const CLI = fileURLToPath(import.meta.resolve('#src/cli.ts'));

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

/** ingest, jobs and gateways with exactly what k8s/ gives them: the tokens of their accounts and
 * the users of Redis. */
export class LeastPrivilegeBed {
  readonly plane: RealControlPlane;
  readonly api: Connection;
  /** Of the administrator. */
  readonly kube: KubeClient;
  readonly redis: TestRedis;
  /** With all rights, on the database of sutler. */
  readonly data: Redis;
  readonly grants: RedisGrants;
  readonly webhooks: string;
  readonly drivers = new Map<string, SampleDriver>();
  readonly #closers: Closers;
  readonly #folder: Awaited<ReturnType<typeof makeFolder>>;
  readonly #rights: ReadonlySet<string>;
  readonly #kubeconfigs: Readonly<Record<string, string>>;
  #started = 0;

  private constructor(
    parts: Pick<
      LeastPrivilegeBed,
      'plane' | 'api' | 'kube' | 'redis' | 'data' | 'grants' | 'webhooks'
    >,
    own: {
      closers: Closers;
      folder: Awaited<ReturnType<typeof makeFolder>>;
      rights: ReadonlySet<string>;
      kubeconfigs: Readonly<Record<string, string>>;
    },
  ) {
    this.plane = parts.plane;
    this.api = parts.api;
    this.kube = parts.kube;
    this.redis = parts.redis;
    this.data = parts.data;
    this.grants = parts.grants;
    this.webhooks = parts.webhooks;
    this.#closers = own.closers;
    this.#folder = own.folder;
    this.#rights = own.rights;
    this.#kubeconfigs = own.kubeconfigs;
  }

  static async open(openPlane: () => Promise<RealControlPlane>): Promise<LeastPrivilegeBed> {
    const closers = new Closers();
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    const plane = await openPlane();
    closers.add('cluster', () => plane.close());
    const api = new Connection(plane);
    closers.add('connection', () => api.close());
    const { kubeconfig } = plane;
    const access = await loadClusterAccess({ kubeconfig, env: {} });
    const kube = createKubeClient({ access, userAgent: 'test', log: silentLog });
    closers.add('client', () => kube.close());
    const { objects, kubeconfigs } = await grantShipped(api, plane, FOLDERS);
    const redis = await startTestRedis({ settings: redisUsers() });
    closers.add('Redis', () => redis.close());
    const data = redis.redis.duplicate({ db: DATABASE });
    closers.add('connection to Redis', () => data.disconnect());
    const grants = new RedisGrants(redis.redis);
    await grants.open();
    closers.add('monitor', () => grants.close());
    const webhooks = `127.0.0.1:${await freePort()}`;
    const common = { 'gateway-insecure': true, timeout: '5s', 'settle-time': '100ms' };
    const sections = {
      [CENTRAL]: {
        'gateway-service': `${HOME}/${CENTRAL}`,
        'max-jobs-in-flight': 50,
        'max-jobs-per-second': 100,
        'volume-name-uuid-length': 16,
      },
      [LOCAL]: {
        'gateway-service': `${HOME}/${LOCAL}`,
        'leader-election-namespace': LOCAL_HOME,
        'enable-capacity': true,
        'strict-topology': true,
      },
    };
    const drivers = Object.entries(sections).map(([name, own]) => [name, { ...common, ...own }]);
    await writeFile(
      folder.file('drivers.yaml'),
      stringify({ drivers: Object.fromEntries(drivers) as object }),
    );
    const parts = { plane, api, kube, redis, data, grants, webhooks };
    const rights = grantedRights(objects);
    return new LeastPrivilegeBed(parts, { closers, folder, rights, kubeconfigs });
  }

  /** Starts a driver with a gateway, which the EndpointSlices of its Service name. */
  async startDriver(
    options: Partial<SampleDriverOptions> & { readonly name: string },
  ): Promise<void> {
    const key = options.name;
    const driver = await startSampleDriver({
      socket: this.#folder.file(`${key}.sock`),
      dataDir: this.#folder.file(key),
      ...options,
    });
    this.drivers.set(key, driver);
    this.#closers.add(`driver ${key}`, () => driver.close());
    const [host, port] = [hostAddress(), await freePort()];
    await this.#start('csi-gateway', [
      `--csi-address=${driver.socket}`,
      `--listen=dns:///${host}:${port}`,
      '--insecure',
    ]);
    await this.kube.create(endpointSlices, HOME, {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { name: key, labels: { 'kubernetes.io/service-name': key } },
      addressType: 'IPv4',
      endpoints: [{ addresses: [host], conditions: { ready: true } }],
      ports: [{ name: 'gateway', port, protocol: 'TCP' }],
    });
  }

  /** A client of a driver. */
  clientOf(driver: string): CsiClient {
    const path = this.#folder.file(`${driver}.sock`);
    const client = new CsiClient({ address: { kind: 'unix', path } });
    this.#closers.add('client of the driver', () => client.close());
    return client;
  }

  startIngest(...flags: readonly string[]): Promise<Startable> {
    return this.#start('ingest', [
      ...this.#flagsOf('ingest'),
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
    ]);
  }

  startJobs(): Promise<Startable> {
    return this.#start('jobs', [
      ...this.#flagsOf('jobs'),
      '--feature-gates=CrossNamespaceVolumeDataSource=true',
      '--retry-interval-start=200ms',
      '--retry-interval-max=2s',
      '--lock-duration=5s',
    ]);
  }

  #flagsOf(name: string): readonly string[] {
    return [`--kubeconfig=${this.#kubeconfigs[name]}`, ...this.#placeOf()];
  }

  #placeOf(): readonly string[] {
    return [
      `--driver-config=${this.#folder.file('drivers.yaml')}`,
      `--leader-election-namespace=${HOME}`,
    ];
  }

  async #start(name: string, flags: readonly string[]): Promise<Startable> {
    this.#started += 1;
    const user = name === 'ingest' || name === 'jobs' ? name : undefined;
    const started = await startSutlerProcess([CLI, name, ...flags], {
      folder: this.#folder.path,
      env: {
        ...(user === undefined ? {} : { REDIS_URL: this.redisUrlOf(user) }),
        HOSTNAME: `${name}-${this.#started}`,
        NAMESPACE: HOME,
        POD_NAME: POD,
      },
    });
    this.#closers.add(name, () => started.stop());
    return started;
  }

  /** Creates the pod of ingest with its owners, which own what ingest publishes. */
  async createPod(): Promise<void> {
    const labels = { app: 'ingest' };
    const template = {
      metadata: { labels },
      spec: { containers: [{ name: 'ingest', image: 'none' }] },
    };
    const spec = { replicas: 0, selector: { matchLabels: labels }, template };
    const apps = `/apis/apps/v1/namespaces/${HOME}`;
    const deployment = await this.api.create(`${apps}/deployments`, {
      metadata: { name: 'sutler-ingest' },
      spec,
    });
    const replicaSet = await this.api.create(`${apps}/replicasets`, {
      metadata: { name: 'sutler-ingest-1', ownerReferences: [ownerOf('Deployment', deployment)] },
      spec,
    });
    await this.api.create(`/api/v1/namespaces/${HOME}/pods`, {
      metadata: { name: POD, labels, ownerReferences: [ownerOf('ReplicaSet', replicaSet)] },
      spec: template.spec,
    });
  }

  /** Runs a command as the operator's user of Redis, with the administrator's kubeconfig.
   * @returns what it prints */
  operate(command: string, ...args: readonly string[]): Promise<string> {
    const { kubeconfig } = this.plane;
    return this.#run({ user: 'operator', kubeconfig }, command, args);
  }

  /** Runs a command as in a container of ingest.
   * @returns what it prints */
  operateInIngest(command: string, ...args: readonly string[]): Promise<string> {
    const { ingest: kubeconfig = '' } = this.#kubeconfigs;
    return this.#run({ user: 'ingest', kubeconfig }, command, args);
  }

  async #run(
    { user, kubeconfig }: { readonly user: RedisUser; readonly kubeconfig: string },
    command: string,
    args: readonly string[],
  ): Promise<string> {
    const { flags = {} } = processes[command] ?? {};
    const common = [`--kubeconfig=${kubeconfig}`, ...this.#placeOf()].filter(
      (flag) => (/^--([^=]+)/.exec(flag)?.[1] ?? '') in flags,
    );
    const driver = `--driver-name=${CENTRAL}`;
    const REDIS_URL = this.redisUrlOf(user);
    const { out, err } = await runSutler(
      [command, ...args, ...common, ...('driver-name' in flags ? [driver] : [])],
      { REDIS_URL },
    );
    return out + err;
  }

  redisUrlOf(user: RedisUser): string {
    return urlOf(user, `${this.redis.url}/${DATABASE}`);
  }

  /** The rights that were granted. */
  get rights(): ReadonlySet<string> {
    return this.#rights;
  }

  /** What the API server has answered. */
  async audited(): Promise<Audited> {
    return readAuditLog(await readFile(this.plane.auditLog ?? '', 'utf8'));
  }

  async close(): Promise<void> {
    assert.deepEqual(await this.#closers.close(), []);
  }
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
