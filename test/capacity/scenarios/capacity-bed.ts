import type { GetCapacityRequest } from '#src/csi/generated/csi_pb.ts';
import { CapacityController } from '#src/capacity/controller.ts';
import { takeHints } from '#src/capacity/hints.ts';
import type { CsiClient } from '#src/gateway-client/client.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Class, OwnerReference, StorageCapacity } from '#src/kube/objects.ts';
import { startReflector } from '#src/kube/reflector.ts';
import { classes, csiNodes, nodes, storageCapacities } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { labelsOf, managedBy } from '#src/capacity/objects.ts';
import { type SampleDriver, startSampleDriver } from '../../../sandbox/driver/server.ts';
import { makeFolder } from '../../harness/csi-folder.ts';
import { startTestGateway } from '../../harness/csi-gateway.ts';
import { startTestRedis, type TestRedis } from '../../harness/redis.ts';
import { openSandboxCluster, type SandboxCluster } from '../../harness/sandbox-cluster.ts';
import { until } from '../../harness/until.ts';

export const GI = 1n << 30n;
export const OWNER: OwnerReference = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  name: 'sutler-ingest',
  uid: 'owner-uid',
  controller: true,
};

/** What the driver answers: 1Gi in a segment with `layer0: foo`, 2Gi with `bar`, times the class
 * parameter `multiplier`. */
function reportedIn({ accessibleTopology, parameters }: GetCapacityRequest) {
  const size = accessibleTopology?.segments['layer0'] === 'bar' ? 2n : 1n;
  return { availableCapacity: size * GI * BigInt(parameters['multiplier'] ?? 1) };
}

/** A Redis, a cluster, a sample driver and its gateway, for all tests of a file. Each test has a
 * driver name and a namespace of its own. */
export class CapacityBed {
  readonly redis: TestRedis;
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  readonly driver: SampleDriver;
  /** Answers GetCapacity; undefined: see reportedIn. */
  answer: ((request: GetCapacityRequest) => unknown) | undefined;
  readonly #closers: Closers;
  readonly #csi: CsiClient;
  #serial = 0;

  private constructor(
    parts: Pick<CapacityBed, 'redis' | 'cluster' | 'kube' | 'driver'>,
    closers: Closers,
    csi: CsiClient,
  ) {
    ({ redis: this.redis, cluster: this.cluster, kube: this.kube, driver: this.driver } = parts);
    this.#closers = closers;
    this.#csi = csi;
  }

  static async open(): Promise<CapacityBed> {
    const closers = new Closers();
    const folder = await makeFolder();
    closers.add('folder', () => folder.remove());
    const redis = await startTestRedis();
    closers.add('Redis', () => redis.close());
    const cluster = await openSandboxCluster();
    closers.add('cluster', () => cluster.close());
    let bed: CapacityBed | undefined;
    const driver = await startSampleDriver({
      socket: folder.file('csi.sock'),
      dataDir: folder.file('volumes'),
      record: true,
      onCall: ({ method, request }) =>
        method === 'GetCapacity'
          ? (bed?.answer ?? reportedIn)(request as GetCapacityRequest)
          : undefined,
    });
    closers.add('driver', () => driver.close());
    const { client: csi, close } = await startTestGateway(folder);
    closers.add('gateway', close);
    const kube = await cluster.client();
    return (bed = new CapacityBed({ redis, cluster, kube, driver }, closers, csi));
  }

  /** What a test has to itself. */
  async newStage(): Promise<Stage> {
    const name = `stage-${(this.#serial += 1)}`;
    await this.kube.create(
      { group: '', version: 'v1', plural: 'namespaces', kind: 'Namespace', namespaced: false },
      undefined,
      { apiVersion: 'v1', kind: 'Namespace', metadata: { name } },
    );
    return new Stage(this, name, this.#csi);
  }

  async close(): Promise<void> {
    const [error] = await this.#closers.close();
    if (error) throw error;
  }
}

interface StartOptions {
  readonly includesImmediate?: boolean;
  readonly owner?: OwnerReference | undefined;
  readonly pollMs?: number;
  /** Neither asks the driver nor writes. */
  readonly isIdle?: boolean;
}

/** An ingest's part of storage capacity for one driver and namespace. */
export class Stage {
  readonly name: string;
  readonly bed: CapacityBed;
  readonly manager: { readonly driver: string; readonly managedBy: string };
  readonly metrics = new Registry();
  readonly #csi: CsiClient;
  readonly #closers = new Closers();
  #controller: CapacityController | undefined;
  /** How often ingest has asked whether it leads. */
  #looks = 0;
  /** Calls of the driver, and writes, that were begun. */
  #begun = 0;
  #underWay = 0;

  constructor(bed: CapacityBed, name: string, csi: CsiClient) {
    this.bed = bed;
    this.name = name;
    this.manager = { driver: `${name}.example`, managedBy: managedBy() };
    this.#csi = csi;
  }

  /** A node with labels, on which the driver is registered with the keys of those labels. */
  async addNode(
    name: string,
    labels: Readonly<Record<string, string>>,
    keys: readonly string[] = Object.keys(labels),
  ): Promise<void> {
    const nodeName = `${this.name}-${name}`;
    await this.bed.kube.create(nodes, undefined, { metadata: { name: nodeName, labels } });
    const entry = { name: this.manager.driver, nodeID: nodeName, topologyKeys: [...keys] };
    await this.bed.kube.create(csiNodes, undefined, {
      metadata: { name: nodeName },
      spec: { drivers: [entry] },
    });
  }

  async removeNode(name: string): Promise<void> {
    await this.bed.kube.delete(nodes, { name: `${this.name}-${name}` });
  }

  /** A class of the driver with late binding. */
  async addClass(
    name: string,
    o: { parameters?: Record<string, string>; mode?: string } = {},
  ): Promise<void> {
    await this.bed.kube.create(classes, undefined, {
      metadata: { name: this.className(name) },
      provisioner: this.manager.driver,
      parameters: o.parameters ?? {},
      volumeBindingMode: o.mode ?? 'WaitForFirstConsumer',
    });
  }

  /** Classes have no namespace, so that each test has its own names. */
  className(name: string): string {
    return `${this.name}-${name}`;
  }

  /** An object as another provisioner has left it. */
  addObject(
    name: string,
    o: {
      className: string;
      segment: Readonly<Record<string, string>>;
      capacity?: string;
      labels?: Readonly<Record<string, string>>;
      owner?: OwnerReference;
    },
  ): Promise<StorageCapacity> {
    return this.bed.kube.create<StorageCapacity>(storageCapacities, this.name, {
      metadata: {
        name,
        namespace: this.name,
        labels: o.labels ?? labelsOf(this.manager),
        ...(o.owner === undefined ? {} : { ownerReferences: [o.owner] }),
      },
      storageClassName: this.className(o.className),
      nodeTopology: { matchLabels: o.segment },
      capacity: o.capacity ?? '1Gi',
    });
  }

  /** Starts it; when it resolves, everything is published. */
  async start(o: StartOptions = {}): Promise<void> {
    const place = { redis: this.bed.redis.redis, prefix: 'csi', driver: this.manager.driver };
    const client = await this.bed.cluster.client();
    const classWatch = startReflector<Class>({
      client,
      log: silentLog,
      metrics: this.metrics,
      resource: classes,
      transform: (raw) => raw as Class,
      onChange: () => this.#controller?.changed(),
    });
    await classWatch.waitForSync();
    const { kube } = this.bed;
    const controller = new CapacityController({
      kube: {
        ...client,
        create: (...args) => this.#follow(kube.create(...args)),
        patch: (...args) => this.#follow(kube.patch(...args)),
        delete: (...args) => this.#follow(kube.delete(...args)),
      },
      getCapacity: (...args) => this.#follow(this.#csi.getCapacity(...args)),
      gateway: () => Promise.resolve(''),
      classes: () => classWatch.list(),
      ownNode: undefined,
      takeHints: () => takeHints(place),
      findOwner: () => Promise.resolve('owner' in o ? o.owner : OWNER),
      isLeading: () => {
        this.#looks += 1;
        return true;
      },
      manager: this.manager,
      namespace: this.name,
      includesImmediate: o.includesImmediate ?? false,
      pollMs: o.pollMs ?? 3_600_000,
      threads: o.isIdle === true ? 0 : 2,
      timeoutMs: 5_000,
      backoff: { startMs: 10, maxMs: 500 },
      writes: { perSecond: 0, burst: 1 },
      stepMs: 5,
      metrics: this.metrics,
      clock: systemClock,
      log: silentLog,
    });
    this.#controller = controller;
    this.#closers.add('stage', async () => {
      await controller.stop();
      await classWatch.stop();
    });
    await (o.isIdle === true ? this.looked() : this.settle());
  }

  /** Why nothing is published, as /readyz says it. */
  get trouble(): string | undefined {
    return this.#controller?.trouble;
  }

  #follow<T>(sent: Promise<T>): Promise<T> {
    this.#begun += 1;
    this.#underWay += 1;
    return sent.finally(() => (this.#underWay -= 1));
  }

  /** Leaves a hint as runs of claims and volumes do. */
  async hint(hint: string): Promise<void> {
    await this.bed.redis.redis.sadd(`{csi}:capacity-hints:${this.manager.driver}`, hint);
  }

  /** Resolves when ingest has done everything that follows from what has changed. */
  async settle(): Promise<void> {
    for (let before = -1; before !== this.#begun;) {
      before = this.#begun;
      await this.looked();
      await until(() => this.#underWay === 0, 'nothing is under way');
    }
  }

  /** Resolves when ingest has looked at everything that has changed. */
  async looked(): Promise<void> {
    const before = this.#looks;
    await until(() => this.#looks > before + 4, 'ingest has looked');
  }

  /** Our objects, by class and segment, as they are in the cluster. */
  async objects(): Promise<readonly StorageCapacity[]> {
    const page = await this.bed.kube.list<StorageCapacity>(storageCapacities, {
      namespace: this.name,
    });
    return page.items;
  }

  /** `class {segment} capacity` of each object. */
  async summary(): Promise<readonly string[]> {
    const objects = await this.objects();
    const textOf = ({ storageClassName, nodeTopology, capacity }: StorageCapacity): string => {
      const className = storageClassName.slice(this.name.length + 1);
      return [className, Object.values(nodeTopology?.matchLabels ?? {}).join('/'), capacity].join(
        ' ',
      );
    };
    return objects.map(textOf).toSorted();
  }

  async untilSummary(...expected: readonly string[]): Promise<void> {
    const text = expected.toSorted().join(', ');
    await until(
      async () => (await this.summary()).join(', ') === text,
      `the objects are ${text}`,
      10_000,
    ).catch(async (error: unknown) => {
      throw new Error(`${String(error)}; they are ${(await this.summary()).join(', ')}`);
    });
  }

  /** Calls of GetCapacity for the classes of this test. */
  calls(): readonly GetCapacityRequest[] {
    return this.bed.driver.calls
      .filter(({ method }) => method === 'GetCapacity')
      .map(({ request }) => request as GetCapacityRequest);
  }

  /** goal/current/obsolete, as upstream's metrics have them. */
  async counts(): Promise<string> {
    const names = ['desired_goal', 'desired_current', 'obsolete'];
    const values = names.map(async (name) => {
      const metric = await this.metrics.getSingleMetric(`csistoragecapacities_${name}`)?.get();
      return metric?.values[0]?.value;
    });
    return (await Promise.all(values)).join('/');
  }

  async close(): Promise<void> {
    const [error] = await this.#closers.close();
    if (error) throw error;
  }
}
