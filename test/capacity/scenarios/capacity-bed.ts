import { create } from '@bufbuild/protobuf';
import { CapacityController } from '#src/capacity/controller.ts';
import { labelsOf, managedBy } from '#src/capacity/objects.ts';
import { GetCapacityResponseSchema } from '#src/csi/generated/csi_pb.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Class, OwnerReference, StorageCapacity } from '#src/kube/objects.ts';
import { startReflector } from '#src/kube/reflector.ts';
import { classes, csiNodes, nodes, storageCapacities } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { openSandboxCluster, type SandboxCluster } from '../../harness/sandbox-cluster.ts';
import { until } from '../../harness/until.ts';

export const GI = 1n << 30n;
export const DRIVER = 'd.example';
export const NAMESPACE = 'default';
export const OWNER: OwnerReference = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  name: 'sutler-ingest',
  uid: 'owner-uid',
  controller: true,
};

type Labels = Readonly<Record<string, string>>;
interface Request {
  readonly parameters?: Labels;
  readonly accessibleTopology?: { readonly segments?: Labels };
}
interface Answer {
  readonly availableCapacity: bigint;
  readonly maximumVolumeSize?: bigint;
}

/** 1Gi in a segment with `layer0: foo`, 2Gi with `bar`, times the class parameter `multiplier`. */
function reportedIn({ accessibleTopology, parameters }: Request): Answer {
  const size = accessibleTopology?.segments?.['layer0'] === 'bar' ? 2n : 1n;
  return { availableCapacity: size * GI * BigInt(parameters?.['multiplier'] ?? 1) };
}

interface GivenObject {
  readonly className: string;
  readonly segment: Labels;
  readonly capacity?: string;
  readonly labels?: Labels;
  readonly owner?: OwnerReference;
}

interface StartOptions {
  readonly includesImmediate?: boolean;
  readonly owner?: OwnerReference | undefined;
  readonly pollMs?: number;
  /** Neither asks the driver nor writes. */
  readonly isIdle?: boolean;
}

/** A cluster, and the part of ingest that publishes storage capacity there, for one test. */
export class CapacityBed {
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  readonly metrics = new Registry();
  readonly manager = { driver: DRIVER, managedBy: managedBy() };
  /** What the driver answers. */
  answer: (request: Request) => Answer = reportedIn;
  /** What the driver was asked. */
  readonly calls: Request[] = [];
  /** What runs of claims and volumes have told. */
  readonly hints = new Set<string>();
  #controller: CapacityController | undefined;
  #stop = (): Promise<void> => Promise.resolve();
  /** How often ingest has asked whether it leads. */
  #looks = 0;
  /** Calls of the driver, and writes, that were begun. */
  #begun = 0;
  #underWay = 0;

  private constructor(cluster: SandboxCluster, kube: KubeClient) {
    [this.cluster, this.kube] = [cluster, kube];
  }

  static async open(): Promise<CapacityBed> {
    const cluster = await openSandboxCluster();
    const bed = new CapacityBed(cluster, await cluster.client());
    await bed.kube.create(classes, undefined, {
      metadata: { name: 'of-another-driver' },
      provisioner: 'other.example',
      volumeBindingMode: 'WaitForFirstConsumer',
    });
    return bed;
  }

  async close(): Promise<void> {
    await this.stop();
    await this.cluster.close();
  }

  /** A node with labels, on which the driver is registered with the keys of those labels. */
  async addNode(name: string, labels: Labels, keys = Object.keys(labels)): Promise<void> {
    await this.kube.create(nodes, undefined, { metadata: { name, labels } });
    await this.addCsiNode(name, keys);
  }

  /** @param keys  undefined: the driver is not registered */
  async addCsiNode(name: string, keys: readonly string[] | undefined): Promise<void> {
    const drivers =
      keys === undefined ? [] : [{ name: DRIVER, nodeID: name, topologyKeys: [...keys] }];
    await this.kube.create(csiNodes, undefined, { metadata: { name }, spec: { drivers } });
  }

  /** A class of the driver with late binding. */
  async addClass(name: string, o: { parameters?: Labels; mode?: string } = {}): Promise<void> {
    await this.kube.create(classes, undefined, {
      metadata: { name },
      provisioner: DRIVER,
      parameters: o.parameters ?? {},
      volumeBindingMode: o.mode ?? 'WaitForFirstConsumer',
    });
  }

  /** An object as another provisioner has left it. */
  addObject(name: string, o: GivenObject): Promise<StorageCapacity> {
    const { className, segment, capacity = '1Gi', labels = labelsOf(this.manager), owner } = o;
    const owners = owner === undefined ? {} : { ownerReferences: [owner] };
    return this.kube.create<StorageCapacity>(storageCapacities, NAMESPACE, {
      metadata: { name, namespace: NAMESPACE, labels, ...owners },
      storageClassName: className,
      nodeTopology: { matchLabels: segment },
      capacity,
    });
  }

  /** Starts it; when it resolves, everything is published. */
  async start(o: StartOptions = {}): Promise<void> {
    const client = await this.cluster.client();
    const classWatch = startReflector<Class>({
      client,
      log: silentLog,
      metrics: this.metrics,
      resource: classes,
      transform: (raw) => raw as Class,
      onChange: () => this.#controller?.changed(),
    });
    await classWatch.waitForSync();
    const { kube } = this;
    const controller = new CapacityController({
      kube: {
        ...client,
        create: (...args) => this.#follow(kube.create(...args)),
        patch: (...args) => this.#follow(kube.patch(...args)),
        delete: (...args) => this.#follow(kube.delete(...args)),
      },
      getCapacity: (sent) => {
        const request = sent as Request;
        this.calls.push(request);
        const answer = create(GetCapacityResponseSchema, this.answer(request));
        return this.#follow(Promise.resolve(answer));
      },
      gateway: () => Promise.resolve(''),
      classes: () => classWatch.list(),
      ownNode: undefined,
      takeHints: () => {
        const taken = [...this.hints];
        this.hints.clear();
        return Promise.resolve(taken);
      },
      findOwner: () => Promise.resolve('owner' in o ? o.owner : OWNER),
      isLeading: () => {
        this.#looks += 1;
        return true;
      },
      manager: this.manager,
      namespace: NAMESPACE,
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
    this.#stop = async () => {
      await controller.stop();
      await classWatch.stop();
    };
    await (o.isIdle === true ? this.looked() : this.settle());
  }

  async stop(): Promise<void> {
    await this.#stop();
    this.#stop = () => Promise.resolve();
  }

  /** Starts it.
   * @returns the counts before it has asked or written anything */
  async startCounted(o: StartOptions = {}): Promise<string> {
    await this.start({ ...o, isIdle: true });
    const counts = await this.counts();
    await this.stop();
    await this.start(o);
    return counts;
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

  async objects(): Promise<readonly StorageCapacity[]> {
    const page = await this.kube.list<StorageCapacity>(storageCapacities, { namespace: NAMESPACE });
    return page.items;
  }

  /** `class {segment} capacity` of each object. */
  async summary(): Promise<string> {
    const textOf = ({ storageClassName, nodeTopology, capacity }: StorageCapacity): string =>
      `${storageClassName} ${Object.values(nodeTopology?.matchLabels ?? {}).join('/')} ${capacity}`;
    return (await this.objects()).map(textOf).toSorted().join(', ');
  }

  async untilSummary(...expected: readonly string[]): Promise<void> {
    const text = expected.toSorted().join(', ');
    const isThere = async (): Promise<boolean> => (await this.summary()) === text;
    await until(isThere, `the objects are ${text}`, 10_000).catch(async (error: unknown) => {
      throw new Error(`${String(error)}; they are ${await this.summary()}`);
    });
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
}
