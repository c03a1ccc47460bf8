import {
  create,
  type DescMessage,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf';
import { Client, credentials } from '@grpc/grpc-js';
import { Registry } from 'prom-client';
import { Controller } from '#src/csi/generated/csi_pb.ts';
import { methodPath } from '#src/csi/methods.ts';
import { Elector } from '#src/election/elector.ts';
import { KubeLeaseStore } from '#src/election/kube-lease-store.ts';
import { leaseName } from '#src/election/lease.ts';
import { type KubeClient, listAll } from '#src/kube/client.ts';
import { PROVISIONED_BY, STORAGE_PROVISIONER, VOLUME_FINALIZER } from '#src/kube/keys.ts';
import { isAlreadyExists, isConflict, isNotFound } from '#src/kube/kube-error.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { PollLoop } from '#src/runtime/poll-loop.ts';
import type { Startable } from './scenario.ts';

/** How the Lease names the stand-in: as external-provisioner does, by a host name. */
export const STAND_IN = 'csi-provisioner-0';

interface StandInOptions {
  readonly kube: KubeClient;
  /** Path of the driver's socket. */
  readonly socket: string;
  readonly driver: string;
  /** Of the Lease. */
  readonly namespace: string;
}

const TIMES = { leaseDurationMs: 2_000, renewDeadlineMs: 1_500, retryPeriodMs: 300 };
const CALL_TIMEOUT_MS = 10_000;

/** A provisioner in the place of external-provisioner: while it holds the driver's Lease, it
 * creates and deletes volumes under the names and marks that both use. As it is stopped it drops
 * what it is at: a volume that the driver has just made is left without a PV. */
export class StandIn implements Startable {
  readonly #options: StandInOptions;
  readonly #client: Client;
  readonly #elector: Elector;
  readonly #loop: PollLoop;
  readonly #underWay = new Set<string>();
  #isStopped = false;

  constructor(options: StandInOptions) {
    const { kube, socket, driver, namespace } = options;
    this.#options = options;
    this.#client = new Client(`unix:${socket}`, credentials.createInsecure(), {
      'grpc.primary_user_agent': STAND_IN,
    });
    const name = leaseName(driver);
    this.#elector = new Elector({
      store: new KubeLeaseStore({ client: kube, namespace, name, log: silentLog }),
      leaseName: name,
      identity: STAND_IN,
      ...TIMES,
      clock: systemClock,
      log: silentLog,
      metrics: new Registry(),
      onStartedLeading: () => undefined,
      onStoppedLeading: () => undefined,
    });
    this.#loop = new PollLoop({
      step: () => this.#step(),
      onError: () => undefined,
      periodMs: 50,
      clock: systemClock,
    });
  }

  get isLeader(): boolean {
    return this.#elector.isLeader;
  }

  async stop(): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    await this.#loop.stop();
    await this.#elector.close();
    this.#client.close();
  }

  kill(): Promise<void> {
    return this.stop();
  }

  async #step(): Promise<void> {
    if (!this.#elector.isLeader) return;
    const { kube } = this.#options;
    for await (const claim of listAll<Claim>(kube, claims))
      if (this.#needsVolume(claim)) this.#begin(claim.metadata.uid, () => this.#provision(claim));
    for await (const volume of listAll<Volume>(kube, volumes))
      if (this.#isReleased(volume)) this.#begin(volume.metadata.uid, () => this.#delete(volume));
  }

  #needsVolume({ metadata: { annotations, deletionTimestamp }, spec }: Claim): boolean {
    const isOurs = annotations?.[STORAGE_PROVISIONER] === this.#options.driver;
    return isOurs && deletionTimestamp === undefined && (spec.volumeName ?? '') === '';
  }

  #isReleased({ metadata: { annotations }, spec, status }: Volume): boolean {
    const isOurs = annotations?.[PROVISIONED_BY] === this.#options.driver;
    const { persistentVolumeReclaimPolicy: policy } = spec;
    return isOurs && status?.phase === 'Released' && policy === 'Delete';
  }

  #begin(uid: string, work: () => Promise<void>): void {
    if (this.#underWay.has(uid)) return;
    this.#underWay.add(uid);
    void work()
      .catch(() => undefined)
      .finally(() => this.#underWay.delete(uid));
  }

  async #provision(claim: Claim): Promise<void> {
    const { kube, driver } = this.#options;
    const { namespace = '', name, uid } = claim.metadata;
    const { volume } = await this.#call(Controller.method.createVolume, {
      name: `pvc-${uid}`,
      capacityRange: { requiredBytes: 1n << 20n },
      volumeCapabilities: [{ accessType: { case: 'mount', value: {} }, accessMode: { mode: 1 } }],
    });
    if (this.#isStopped || volume === undefined) return;
    const body = {
      metadata: {
        name: `pvc-${uid}`,
        annotations: { [PROVISIONED_BY]: driver },
        finalizers: [VOLUME_FINALIZER],
      },
      spec: {
        capacity: { storage: '1Mi' },
        accessModes: claim.spec.accessModes ?? [],
        persistentVolumeReclaimPolicy: 'Delete',
        storageClassName: claim.spec.storageClassName,
        claimRef: { kind: 'PersistentVolumeClaim', apiVersion: 'v1', namespace, name, uid },
        csi: { driver, volumeHandle: volume.volumeId, volumeAttributes: volume.volumeContext },
      },
    };
    await kube.create(volumes, undefined, body).catch((error: unknown) => {
      if (!isAlreadyExists(error)) throw error;
    });
  }

  async #delete({ metadata: { name, uid, finalizers = [] }, spec }: Volume): Promise<void> {
    const { kube } = this.#options;
    await this.#call(Controller.method.deleteVolume, { volumeId: spec.csi?.volumeHandle ?? '' });
    if (this.#isStopped) return;
    try {
      await kube.delete(volumes, { name }, { preconditions: { uid } });
      const rest = finalizers.filter((each) => each !== VOLUME_FINALIZER);
      const body = { metadata: { uid, finalizers: rest } };
      await kube.patch(volumes, { name }, { type: 'merge', body });
    } catch (error) {
      if (!isNotFound(error) && !isConflict(error)) throw error;
    }
  }

  #call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>> {
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(
        methodPath(method),
        (value: MessageInitShape<I>) =>
          Buffer.from(toBinary(method.input, create(method.input, value))),
        (bytes: Buffer) => fromBinary(method.output, bytes),
        request,
        { deadline: Date.now() + CALL_TIMEOUT_MS },
        (error, value) => {
          if (error !== null) reject(error);
          else if (value === undefined) reject(new Error(`${method.name} gave no answer`));
          else resolve(value);
        },
      );
    });
  }
}
