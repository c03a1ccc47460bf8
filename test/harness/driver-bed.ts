import assert from 'node:assert/strict';
import { rename, writeFile } from 'node:fs/promises';
import { main as ingestMain } from '#src/ingest/main.ts';
import { main as jobsMain } from '#src/jobs/main.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, classes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startBinder } from '../../sandbox/binder/binder.ts';
import { type SampleDriver, startSampleDriver } from '../../sandbox/driver/server.ts';
import { makeFolder } from './csi-folder.ts';
import { startTestGateway } from './csi-gateway.ts';
import { runMain, type Running } from './process-bed.ts';
import { assertNothingDenied, redisUsers, urlOf } from './redis-users.ts';
import { startTestRedis, type TestRedis } from './redis.ts';
import { openSandboxCluster, type SandboxCluster } from './sandbox-cluster.ts';

/** A driver of the bed, with its gateway and a class of its name. */
export interface BedDriver {
  readonly name: string;
  /** For the key `gateway`. */
  readonly gateway: string;
  readonly driver: SampleDriver;
  /** Ends driver and gateway. */
  close(): Promise<void>;
}

/** A Redis with the users of k8s/redis, a cluster with a volume binder, any number of sample
 * drivers, and one ingest and one jobs for all of them, which read one --driver-config. */
export class DriverBed {
  readonly redis: TestRedis;
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  readonly file: string;
  readonly #closers: Closers;
  #serial = 0;

  private constructor(parts: Pick<DriverBed, 'redis' | 'cluster' | 'kube' | 'file'>, c: Closers) {
    this.redis = parts.redis;
    this.cluster = parts.cluster;
    this.kube = parts.kube;
    this.file = parts.file;
    this.#closers = c;
  }

  static async open(): Promise<DriverBed> {
    const closers = new Closers();
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    const redis = await startTestRedis({ settings: redisUsers() });
    closers.add('Redis', () => redis.close());
    closers.add('least rights', () => assertNothingDenied(redis.redis));
    const cluster = await openSandboxCluster();
    closers.add('cluster', () => cluster.close());
    const binder = startBinder({ operations: cluster.api.operations, log: silentLog });
    closers.add('binder', () => binder.close());
    const kube = await cluster.client();
    return new DriverBed({ redis, cluster, kube, file: folder.file('drivers.yaml') }, closers);
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
    this.#closers.add(name, close);
    const known = await this.kube.get(classes, { name });
    if (known === undefined)
      await this.kube.create(classes, undefined, {
        apiVersion: 'storage.k8s.io/v1',
        kind: 'StorageClass',
        metadata: { name },
        provisioner: name,
      });
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

  startIngest(...flags: readonly string[]): Promise<Running> {
    return this.#start('ingest', ingestMain, [
      `--redis-url=${urlOf('ingest', this.redis.url)}`,
      '--leader-election-namespace=default',
      ...flags,
    ]);
  }

  startJobs(...flags: readonly string[]): Promise<Running> {
    return this.#start('jobs', jobsMain, [
      `--redis-url=${urlOf('jobs', this.redis.url)}`,
      '--retry-interval-start=50ms',
      ...flags,
    ]);
  }

  async #start(name: string, main: typeof ingestMain, flags: readonly string[]): Promise<Running> {
    const argv = [
      `--kubeconfig=${this.cluster.kubeconfig}`,
      `--driver-config=${this.file}`,
      '--http-endpoint=127.0.0.1:0',
      '--timeout=1s',
      '--write-allowance=1s',
      ...flags,
    ];
    const running = await runMain(main, argv, {});
    this.#closers.add(name, () => running.stop());
    return running;
  }

  /** Creates a claim of the driver's class. */
  newClaim(driver: string): Promise<Claim> {
    return this.kube.create<Claim>(claims, 'default', {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: `claim-${(this.#serial += 1)}`, namespace: 'default' },
      spec: {
        storageClassName: driver,
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
      },
    });
  }

  async isBound({ metadata: { name } }: Claim): Promise<boolean> {
    const claim = await this.kube.get<Claim>(claims, { namespace: 'default', name });
    return claim?.status?.phase === 'Bound';
  }

  /** Ends everything. */
  async close(): Promise<void> {
    assert.deepEqual(await this.#closers.close(), []);
  }
}
