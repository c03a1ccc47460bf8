import { LeaderOnlyQueue } from '#src/ingest/leader-only-queue.ts';
import type { WebhookSource } from '#src/ingest/notices/webhook-source.ts';
import { EventHandler } from '#src/ingest/objects/event-handler.ts';
import type { Informers } from '#src/ingest/objects/informers.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, KubeObject, Volume } from '#src/kube/objects.ts';
import { claims, classes, volumes } from '#src/kube/resources.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { openSandboxCluster, type SandboxCluster } from '../../harness/sandbox-cluster.ts';

const DRIVER = 'd.example';
const CAPABILITIES = new Set(['CLONE_VOLUME']);

/** A cluster with a class "c", and a source of claims and volumes that serves a driver. */
export class SourceBed<S extends Informers | WebhookSource> {
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  readonly source: S;
  readonly queue: LeaderOnlyQueue;
  readonly handler: EventHandler;
  /** "how name" of each call of the queue. */
  readonly calls: string[] = [];
  readonly keys: JobKey[] = [];
  classChanges = 0;

  private constructor(cluster: SandboxCluster, kube: KubeClient, source: S) {
    [this.cluster, this.kube, this.source] = [cluster, kube, source];
    const note = (how: string) => (key: JobKey) => {
      this.calls.push(`${how} ${key.name}`);
      this.keys.push(key);
    };
    const how = { ensureQueued: note('ensure'), enqueueNow: note('now'), promote: note('promote') };
    this.queue = new LeaderOnlyQueue(how, 0);
    this.queue.allow(() => true);
    const driver = { name: DRIVER, controllerCapabilities: CAPABILITIES };
    this.handler = new EventHandler(driver, this.queue, source, silentLog);
  }

  /** @param clientOf  the client of the source */
  static async open<S extends Informers | WebhookSource>(
    Source: new (o: ConstructorParameters<typeof Informers>[0]) => S,
    clientOf = (kube: KubeClient): KubeClient => kube,
  ): Promise<SourceBed<S>> {
    const cluster = await openSandboxCluster();
    const kube = await cluster.client();
    const options = { client: clientOf(kube), log: silentLog, metrics: new Registry() };
    const bed = new SourceBed(cluster, kube, new Source(options));
    await bed.newClass('c');
    await bed.newClaim('before-start');
    const served = bed.source.serve(bed.handler, () => void (bed.classChanges += 1));
    await served.waitForSync(AbortSignal.timeout(50_000));
    return bed;
  }

  async close(): Promise<void> {
    await this.source.stop();
    await this.cluster.close();
  }

  newClass(name: string): Promise<unknown> {
    return this.kube.create(classes, undefined, { metadata: { name }, provisioner: DRIVER });
  }

  newClaim(name: string, storageClassName = 'c'): Promise<Claim> {
    const annotations = { 'volume.kubernetes.io/storage-provisioner': DRIVER };
    return this.kube.create<Claim>(claims, 'default', {
      metadata: { name, namespace: 'default', annotations },
      spec: {
        storageClassName,
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
      },
    });
  }

  editClaim(name: string, body: object): Promise<unknown> {
    return this.kube.patch(claims, { namespace: 'default', name }, { type: 'merge', body });
  }

  async newVolume(name: string, phase?: string, spec: Partial<Volume['spec']> = {}) {
    const finalizers = ['external-provisioner.volume.kubernetes.io/finalizer'];
    await this.kube.create<Volume>(volumes, undefined, {
      metadata: { name, finalizers },
      spec: {
        capacity: { storage: '1Mi' },
        accessModes: ['ReadWriteOnce'],
        persistentVolumeReclaimPolicy: 'Delete',
        csi: { driver: DRIVER, volumeHandle: name },
        ...spec,
      },
    });
    if (phase !== undefined) await this.setPhase(name, phase);
  }

  setPhase(name: string, phase: string): Promise<unknown> {
    const body = { status: { phase } };
    return this.kube.patch(volumes, { name }, { type: 'merge', subresource: 'status', body });
  }

  /** Deletes a volume at once, without waiting for its finalizers. */
  async deleteVolume(name: string): Promise<void> {
    const body = { metadata: { finalizers: [] } };
    await this.kube.patch(volumes, { name }, { type: 'merge', body });
    await this.kube.delete(volumes, { name });
  }

  /** Does what follows from a notice. */
  async look(resource: 'persistentvolumeclaims' | 'persistentvolumes', name: string) {
    const isClaim = resource === claims.plural;
    const namespace = isClaim ? 'default' : '';
    const ref = isClaim ? { namespace, name } : { name };
    const object = await this.kube.get<KubeObject>(isClaim ? claims : volumes, ref);
    this.source.looked({ target: { resource, namespace, name }, object });
  }

  async outstanding(): Promise<string[]> {
    const found: string[] = [];
    for await (const { name } of this.handler.outstanding()) found.push(name);
    return found.sort();
  }

  pending(): string {
    return [...this.handler.pending()]
      .map(({ key }) => key.name)
      .toSorted()
      .join();
  }
}
