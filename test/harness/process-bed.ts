import assert from 'node:assert/strict';
import { rename, writeFile } from 'node:fs/promises';
import { main as ingestMain } from '#src/ingest/main.ts';
import { main as jobsMain } from '#src/jobs/main.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, ClaimSpec } from '#src/kube/objects.ts';
import { claims, classes } from '#src/kube/resources.ts';
import { processes } from '#src/processes.ts';
import { Closers } from '#src/runtime/closers.ts';
import type { Host } from '#src/runtime/process.ts';
import {
  type SampleDriver,
  type SampleDriverOptions,
  startSampleDriver,
} from '../../sandbox/driver/server.ts';
import { makeFolder } from './csi-folder.ts';
import { startTestGateway } from './csi-gateway.ts';
import { assertNothingDenied, type RedisUser, redisUsers, urlOf } from './redis-users.ts';
import { startTestRedis, type TestRedis } from './redis.ts';
import { runMain, type Running } from './run-main.ts';
import { runSutler } from './run-sutler.ts';
import { openSandboxCluster, type SandboxCluster } from './sandbox-cluster.ts';

/** What each bed has. */
interface BedParts {
  readonly redis: TestRedis;
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  readonly folder: Awaited<ReturnType<typeof makeFolder>>;
  readonly closers: Closers;
}

/** Starts a Redis with the users of k8s/redis, and a cluster with a volume binder.
 * @param openCluster  absent: starts the sandbox's */
async function openParts(
  openCluster: () => Promise<SandboxCluster> = () => openSandboxCluster({ binder: true }),
): Promise<BedParts> {
  const closers = new Closers();
  const folder = await makeFolder();
  closers.add('folder', () => folder.remove());
  const redis = await startTestRedis({ settings: redisUsers() });
  closers.add('Redis', () => redis.close());
  closers.add('least rights', () => assertNothingDenied(redis.redis));
  const cluster = await openCluster();
  closers.add('cluster', () => cluster.close());
  return { redis, cluster, kube: await cluster.client(), folder, closers };
}

/** The parts, and the flags with which the test starts ingest and jobs, each as its user. */
class ClusterBed {
  readonly redis: TestRedis;
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  protected readonly folder: BedParts['folder'];
  protected readonly closers: Closers;
  /** Of both processes. */
  protected readonly argv: readonly string[];
  protected readonly env: Host['env'];

  constructor(
    { redis, cluster, kube, folder, closers }: BedParts,
    o: { readonly flags: readonly string[]; readonly env?: Host['env'] },
  ) {
    [this.redis, this.cluster, this.kube] = [redis, cluster, kube];
    [this.folder, this.closers] = [folder, closers];
    const kubeconfig = `--kubeconfig=${cluster.kubeconfig}`;
    this.argv = [kubeconfig, '--http-endpoint=127.0.0.1:0', ...o.flags];
    this.env = o.env ?? {};
  }

  startIngest(...flags: readonly string[]): Promise<Running> {
    return this.#start('ingest', ingestMain, ['--leader-election-namespace=default', ...flags]);
  }

  startJobs(...flags: readonly string[]): Promise<Running> {
    return this.#start('jobs', jobsMain, ['--retry-interval-start=50ms', ...flags]);
  }

  async createClass(name: string, fields: object = {}): Promise<void> {
    await this.kube.create(classes, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'StorageClass',
      metadata: { name },
      ...fields,
    });
  }

  /** @param of  the claim or its name */
  async isBound(of: Claim | string): Promise<boolean> {
    const name = typeof of === 'string' ? of : of.metadata.name;
    const claim = await this.kube.get<Claim>(claims, { namespace: 'default', name });
    return claim?.status?.phase === 'Bound';
  }

  /** Ends everything. */
  async close(): Promise<void> {
    assert.deepEqual(await this.closers.close(), []);
  }

  protected createClaimOf(
    name: string,
    spec: Partial<ClaimSpec>,
    annotations: Readonly<Record<string, string>> = {},
  ): Promise<Claim> {
    return this.kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name, namespace: 'default', annotations },
      spec: {
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
        ...spec,
      },
    });
  }

  async #start(
    name: 'ingest' | 'jobs',
    main: typeof ingestMain,
    flags: readonly string[],
  ): Promise<Running> {
    const redis = `--redis-url=${urlOf(name, this.redis.url)}`;
    const running = await runMain(main, [...this.argv, redis, ...flags], this.env);
    this.closers.add(name, () => running.stop());
    return running;
  }
}

/** Name of the sample driver. */
export const DRIVER = 'sample.csi.sutler.dev';

interface BedOptions {
  /** Of both processes; of two values of a flag the last one counts. */
  readonly flags?: readonly string[];
  /** How both reach the driver; absent: by the gateway of the bed's own driver. */
  readonly gatewayFlags?: readonly string[];
  readonly env?: Host['env'];
  readonly onCall?: NonNullable<SampleDriverOptions['onCall']>;
  /** Of the driver; absent: one without topology. */
  readonly pools?: NonNullable<SampleDriverOptions['pools']>;
  /** Absent: the sandbox's. */
  readonly openCluster?: () => Promise<SandboxCluster>;
}

type Gateway = Pick<Awaited<ReturnType<typeof startTestGateway>>, 'close'>;

/** A bed with a class, a sample driver and its gateway. */
export class ProcessBed extends ClusterBed {
  readonly driver: SampleDriver;
  readonly #startGateway: () => Promise<Gateway>;
  #gateway: Gateway | undefined;
  #serial = 0;

  private constructor(
    o: {
      readonly driver: SampleDriver;
      readonly startGateway: () => Promise<Gateway>;
    },
    ...args: ConstructorParameters<typeof ClusterBed>
  ) {
    super(...args);
    this.driver = o.driver;
    this.#startGateway = o.startGateway;
  }

  static async open(options: BedOptions = {}): Promise<ProcessBed> {
    const { flags = [], gatewayFlags, env = {}, onCall, pools } = options;
    const parts = await openParts(options.openCluster);
    const { closers, folder } = parts;
    const driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('volumes'),
      ...(onCall === undefined ? {} : { onCall }),
      ...(pools === undefined ? {} : { pools }),
    });
    closers.add('driver', () => driver.close());
    const listen = { kind: 'unix', path: folder.file('gateway.sock') } as const;
    const startGateway = () => startTestGateway(folder, { listen, probeTimeoutMs: 5000 });
    const bed = new ProcessBed({ driver, startGateway }, parts, {
      flags: [...(gatewayFlags ?? [`--gateway=unix://${listen.path}`]), '--timeout=1s', ...flags],
      env,
    });
    closers.add('gateway', () => bed.stopGateway());
    await bed.startGateway();
    await bed.createClass('sample', { provisioner: DRIVER });
    return bed;
  }

  /** Runs a command of `sutler` as the operator's user, with those of the processes' flags that it
   * has.
   * @returns what it prints, also where it is refused */
  operate(command: string, ...args: readonly string[]): Promise<string> {
    return this.operateAs('operator', command, ...args);
  }

  /** The same, as in a container that has the URL of that user of Redis. */
  async operateAs(user: RedisUser, command: string, ...args: readonly string[]): Promise<string> {
    const { flags = {} } = processes[command] ?? {};
    const redis = `--redis-url=${urlOf(user, this.redis.url)}`;
    const own = this.argv.filter((flag) => (/^--([^=]+)/.exec(flag)?.[1] ?? '') in flags);
    const { out, err } = await runSutler([command, ...args, ...own, redis], this.env);
    return out + err;
  }

  async startGateway(): Promise<void> {
    this.#gateway = await this.#startGateway();
  }

  async stopGateway(): Promise<void> {
    await this.#gateway?.close();
    this.#gateway = undefined;
  }

  newClaim(storage = '1Mi', spec: Partial<ClaimSpec> = {}): Promise<Claim> {
    const resources = { requests: { storage } };
    const name = `claim-${(this.#serial += 1)}`;
    return this.createClaimOf(name, { storageClassName: 'sample', resources, ...spec });
  }
}

/** A driver of the bed, with its gateway and a class of its name. */
export interface BedDriver {
  readonly name: string;
  /** For the key `gateway`. */
  readonly gateway: string;
  readonly driver: SampleDriver;
  /** Ends driver and gateway. */
  close(): Promise<void>;
}

/** A bed with any number of sample drivers, and one ingest and one jobs for all of them, which read
 * one --driver-config. */
export class DriverBed extends ClusterBed {
  readonly file = this.folder.file('drivers.yaml');
  #serial = 0;

  static async open(): Promise<DriverBed> {
    const parts = await openParts();
    const config = `--driver-config=${parts.folder.file('drivers.yaml')}`;
    return new DriverBed(parts, { flags: [config, '--timeout=1s', '--settle-time=100ms'] });
  }

  /** Starts a driver and its gateway, and creates its class. */
  async addDriver(name: string, o: { readonly answersAs?: string } = {}): Promise<BedDriver> {
    const folder = await makeFolder();
    const driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('volumes'),
      name: o.answersAs ?? name,
    });
    const listen = { kind: 'unix', path: folder.file('gateway.sock') } as const;
    const gateway = await startTestGateway(folder, { listen, probeTimeoutMs: 5000 });
    let closing: Promise<void> | undefined;
    const end = async (): Promise<void> => {
      await gateway.close();
      await driver.close();
      await folder.remove();
    };
    const close = (): Promise<void> => (closing ??= end());
    this.closers.add(name, close);
    const known = await this.kube.get(classes, { name });
    if (known === undefined) await this.createClass(name, { provisioner: name });
    return { name, gateway: `unix://${listen.path}`, driver, close };
  }

  /** Writes the file as an editor does: another file, which then takes its place. */
  async write(text: string): Promise<void> {
    await writeFile(`${this.file}.new`, text);
    await rename(`${this.file}.new`, this.file);
  }

  /** Writes a section for each of these drivers. */
  async serve(drivers: readonly BedDriver[], keys: readonly string[] = []): Promise<void> {
    const sections = drivers.flatMap(({ name, gateway }) => [
      `  ${name}:`,
      `    gateway: ${gateway}`,
      ...keys.map((key) => `    ${key}`),
    ]);
    await this.write(['drivers:', ...sections, ''].join('\n'));
  }

  /** Creates a claim of the driver's class. */
  newClaim(driver: string): Promise<Claim> {
    return this.createClaimOf(`claim-${(this.#serial += 1)}`, { storageClassName: driver });
  }
}
