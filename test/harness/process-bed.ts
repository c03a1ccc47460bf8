import assert from 'node:assert/strict';
import { rename, writeFile } from 'node:fs/promises';
import { main as ingestMain } from '#src/ingest/main.ts';
import { main as jobsMain } from '#src/jobs/main.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, ClaimSpec } from '#src/kube/objects.ts';
import { classes } from '#src/kube/resources.ts';
import { processes } from '#src/processes.ts';
import { Closers } from '#src/runtime/closers.ts';
import type { Host } from '#src/runtime/process.ts';
import { type SampleDriverOptions, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from './csi-folder.ts';
import { startTestGateway } from './csi-gateway.ts';
import { assertNothingDenied, type RedisUser, redisUsers, urlOf } from './redis-users.ts';
import { startTestRedis, type TestRedis } from './redis.ts';
import { runMain, type Running } from './run-main.ts';
import { runSutler } from './run-sutler.ts';
import { openSandboxCluster, type SandboxCluster } from './sandbox-cluster.ts';
import { createSmallClaim, isClaimBound } from './small-claim.ts';

/** A driver of a bed with its gateway, in a folder of their own. */
export type BedDriver = Awaited<ReturnType<typeof startDriver>>;

async function startDriver(name: string, options: Partial<SampleDriverOptions>) {
  const folder = await makeFolder();
  const driver = await startSampleDriver({
    socket: folder.file('csi.sock'),
    dataDir: folder.file('volumes'),
    ...options,
  });
  const listen = { kind: 'unix', path: folder.file('gateway.sock') } as const;
  const startGateway = () => startTestGateway(folder, { listen, probeTimeoutMs: 5000 });
  let gateway: { close(): Promise<void> } | undefined = await startGateway();
  let closing: Promise<void> | undefined;
  const stopGateway = async (): Promise<void> => {
    await gateway?.close();
    gateway = undefined;
  };
  const end = async (): Promise<void> => {
    await stopGateway();
    await driver.close();
    await folder.remove();
  };
  return {
    name,
    driver,
    /** For the key `gateway`. */
    gateway: `unix://${listen.path}`,
    startGateway: async () => void (gateway = await startGateway()),
    stopGateway,
    /** Ends driver and gateway. */
    close: (): Promise<void> => (closing ??= end()),
  };
}

interface ClusterOptions {
  /** Of both processes; of two values of a flag the last one counts. */
  readonly flags: readonly string[];
  readonly env?: Host['env'];
}

/** A Redis with the users of k8s/redis, a cluster with a volume binder, and the flags with which a
 * test starts ingest and jobs, each as its user. */
class ClusterBed {
  readonly redis: TestRedis;
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  protected readonly closers: Closers;
  /** Of both processes. */
  protected readonly argv: readonly string[];
  protected readonly env: Host['env'];
  #serial = 0;

  constructor(parts: Awaited<ReturnType<typeof openParts>>, { flags, env = {} }: ClusterOptions) {
    ({ redis: this.redis, cluster: this.cluster, kube: this.kube, closers: this.closers } = parts);
    const kubeconfig = `--kubeconfig=${this.cluster.kubeconfig}`;
    this.argv = [kubeconfig, '--http-endpoint=127.0.0.1:0', '--timeout=1s', ...flags];
    this.env = env;
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
  isBound(of: Claim | string): Promise<boolean> {
    const name = typeof of === 'string' ? of : of.metadata.name;
    return isClaimBound(this.kube, { namespace: 'default', name });
  }

  /** Ends everything. */
  async close(): Promise<void> {
    assert.deepEqual(await this.closers.close(), []);
  }

  protected createClaim(spec: Partial<ClaimSpec>): Promise<Claim> {
    const name = `claim-${(this.#serial += 1)}`;
    return createSmallClaim(this.kube, { namespace: 'default', name }, spec);
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

async function openParts(
  openCluster: () => Promise<SandboxCluster> = () => openSandboxCluster({ binder: true }),
) {
  const closers = new Closers();
  const redis = await startTestRedis({ settings: redisUsers() });
  closers.add('Redis', () => redis.close());
  closers.add('least rights', () => assertNothingDenied(redis.redis));
  const cluster = await openCluster();
  closers.add('cluster', () => cluster.close());
  return { redis, cluster, kube: await cluster.client(), closers };
}

/** Name of the sample driver. */
export const DRIVER = 'sample.csi.sutler.dev';

interface BedOptions
  extends Partial<ClusterOptions>, Pick<SampleDriverOptions, 'onCall' | 'pools'> {
  /** How both reach the driver; absent: by the gateway of the bed's own driver. */
  readonly gatewayFlags?: readonly string[];
  /** Absent: the sandbox's. */
  readonly openCluster?: () => Promise<SandboxCluster>;
}

/** A bed with a class, a sample driver and its gateway. */
export class ProcessBed extends ClusterBed {
  readonly #driver: BedDriver;

  private constructor(driver: BedDriver, ...args: ConstructorParameters<typeof ClusterBed>) {
    super(...args);
    this.#driver = driver;
    this.closers.add('driver', () => driver.close());
  }

  static async open(options: BedOptions = {}): Promise<ProcessBed> {
    const { flags = [], gatewayFlags, env = {}, openCluster, ...ofDriver } = options;
    const parts = await openParts(openCluster);
    const driver = await startDriver(DRIVER, ofDriver);
    const reach = gatewayFlags ?? [`--gateway=${driver.gateway}`];
    const bed = new ProcessBed(driver, parts, { flags: [...reach, ...flags], env });
    await bed.createClass('sample', { provisioner: DRIVER });
    return bed;
  }

  get driver(): BedDriver['driver'] {
    return this.#driver.driver;
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

  startGateway(): Promise<void> {
    return this.#driver.startGateway();
  }

  stopGateway(): Promise<void> {
    return this.#driver.stopGateway();
  }

  newClaim(storage = '1Mi', spec: Partial<ClaimSpec> = {}): Promise<Claim> {
    const resources = { requests: { storage } };
    return this.createClaim({ storageClassName: 'sample', resources, ...spec });
  }
}

/** A bed with any number of sample drivers, and one ingest and one jobs for all of them, which read
 * one --driver-config. */
export class DriverBed extends ClusterBed {
  readonly file: string;

  private constructor(file: string, parts: Awaited<ReturnType<typeof openParts>>) {
    super(parts, { flags: [`--driver-config=${file}`, '--settle-time=100ms'] });
    this.file = file;
  }

  static async open(): Promise<DriverBed> {
    const parts = await openParts();
    const folder = await makeFolder();
    parts.closers.add('folder', () => folder.remove());
    return new DriverBed(folder.file('drivers.yaml'), parts);
  }

  /** Starts a driver and its gateway, and creates its class. */
  async addDriver(name: string): Promise<BedDriver> {
    const driver = await startDriver(name, { name });
    this.closers.add(name, () => driver.close());
    const known = await this.kube.get(classes, { name });
    if (known === undefined) await this.createClass(name, { provisioner: name });
    return driver;
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
    return this.createClaim({ storageClassName: driver });
  }
}
