import assert from 'node:assert/strict';
import type { Redis } from 'ioredis';
import { ownershipMs } from '#src/records/flags.ts';
import type { ProcessorPorts } from '#src/jobs/ports.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startBinder } from '../../sandbox/binder/binder.ts';
import type { Binder } from '../../sandbox/binder/binder.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { until } from '../harness/csi-folder.ts';
import { kubeWith } from '../jobs/kube-with.ts';
import { DRIVER, openRig } from '../jobs/rig.ts';
import type { Rig } from '../jobs/rig.ts';

/** Times of a worker, short enough to wait for. */
export interface Timing {
  readonly timeoutMs: number;
  readonly writeAllowanceMs: number;
  readonly settleMs: number;
}

const TIMING: Timing = { timeoutMs: 2_000, writeAllowanceMs: 2_000, settleMs: 200 };

/** One worker process, so to speak: a memory of its own of the records it left open, and ports that
 * a test may have replaced. */
export interface Worker {
  readonly records: VolumeRecords;
  provision(claim: Claim): Promise<Outcome>;
  remove(volume: Volume): Promise<Outcome>;
}

type Records = new (options: ConstructorParameters<typeof VolumeRecords>[0]) => VolumeRecords;

export interface WorkerOptions {
  readonly timing?: Partial<Timing>;
  /** A VolumeRecords whose methods stop or die where the test wants. */
  readonly records?: Records;
  readonly ports?: Partial<ProcessorPorts>;
}

/** The rig with the volume controller beside it: claims become Bound, volumes Released, as in a
 * cluster. */
export class Story {
  readonly rig: Rig;
  /** Holds the records: the rig's, or one that a test can kill. */
  readonly redis: Redis;
  readonly #binder: Binder;
  readonly #atOnce = new Map<string, number>();
  /** Names and handles for which the driver had two calls at the same time. */
  readonly doubles: string[] = [];

  private constructor(rig: Rig, redis: Redis) {
    this.rig = rig;
    this.redis = redis;
    this.#binder = startBinder({ operations: rig.cluster.api.operations, log: silentLog });
  }

  static async open(redis?: Redis): Promise<Story> {
    const rig = await openRig();
    return new Story(rig, redis ?? rig.redis);
  }

  async close(): Promise<void> {
    await this.#binder.close();
    await this.rig.close();
  }

  async reset(): Promise<void> {
    await this.rig.reset();
    this.rig.cluster.api.faults.clear();
    this.doubles.length = 0;
    this.script(() => undefined);
  }

  /** What the driver does at each call; see SampleDriverOptions.onCall. Keeps an eye on calls for
   * the same volume at once. */
  script(hook: (call: DriverCall) => unknown): void {
    this.rig.onCall = async (call) => {
      const about = volumeOf(call);
      if (about === undefined) return hook(call);
      const running = this.#atOnce.get(about) ?? 0;
      // A call whose caller gave up is the driver's own business from then on.
      if (running > 0) this.doubles.push(`${call.method} ${about}`);
      this.#atOnce.set(about, running + 1);
      let isOver = false;
      const end = (): void => {
        if (!isOver) this.#atOnce.set(about, (this.#atOnce.get(about) ?? 1) - 1);
        isOver = true;
      };
      call.signal.addEventListener('abort', end, { once: true });
      try {
        return (await hook(call)) ?? (await call.proceed());
      } finally {
        end();
      }
    };
  }

  worker({ timing, records: Records = VolumeRecords, ports = {} }: WorkerOptions = {}): Worker {
    const { timeoutMs, writeAllowanceMs, settleMs } = { ...TIMING, ...timing };
    const records = new Records({
      redis: this.redis,
      prefix: 'csi',
      driver: DRIVER,
      ownMs: ownershipMs({ timeoutMs, writeAllowanceMs }),
      settleMs,
    });
    const change = { records, timeoutMs, writeAllowanceMs, ...ports };
    // As the jobs process does when it starts, or else its first run would only learn the epoch.
    let started: Promise<void> | undefined;
    const start = (): Promise<void> => (started ??= records.learnIncarnation());
    return {
      records,
      provision: async (claim) => {
        await start();
        return this.rig.provision(claim, change);
      },
      remove: async (volume) => {
        await start();
        return this.rig.remove(volume, change);
      },
    };
  }

  /** The kube port with some of its methods replaced. */
  kubeWith(change: Partial<ProcessorPorts['kube']>): Partial<ProcessorPorts> {
    return kubeWith(this.rig, change);
  }

  /** The gateway port with some of its methods replaced. */
  csiWith(change: Partial<ProcessorPorts['csi']>): Partial<ProcessorPorts> {
    const { csi } = this.rig.ports;
    return {
      csi: {
        createVolume: (...args) => csi.createVolume(...args),
        deleteVolume: (...args) => csi.deleteVolume(...args),
        ...change,
      },
    };
  }

  creates(claim: Claim): readonly DriverCall[] {
    const name = `pvc-${claim.metadata.uid}`;
    return this.rig.driver.calls.filter(
      (call) => call.method === 'CreateVolume' && volumeOf(call) === `name ${name}`,
    );
  }

  deletes(): readonly string[] {
    return this.rig.driver.calls
      .filter(({ method }) => method === 'DeleteVolume')
      .map(({ request }) => ('volumeId' in request ? String(request.volumeId) : ''));
  }

  messages(): readonly string[] {
    return this.rig.events.map(({ type, reason, message }) => `${type} ${reason} ${message}`);
  }

  /** As a user does; the claim is gone when this resolves. */
  async deleteClaim(claim: Claim): Promise<void> {
    await this.rig.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    await until('the claim is gone', async () => (await this.readClaim(claim)) === undefined);
  }

  async readClaim(claim: Claim): Promise<Claim | undefined> {
    const found = await this.rig.kube.get<Claim>(claims, {
      namespace: 'default',
      name: claim.metadata.name,
    });
    return found?.metadata.uid === claim.metadata.uid ? found : undefined;
  }

  record(claim: Claim): Promise<Record<string, string>> {
    return this.redis.hgetall(`{csi}:volume:${DRIVER}:${claim.metadata.uid}`);
  }

  /** The time of whoever is at this record is over. */
  async endOwnership(id: string): Promise<void> {
    await this.redis.hset(`{csi}:volume:${DRIVER}:${id}`, 'until', String(Date.now() - 1));
  }

  /** Ends as if the answer got lost: the driver made the volume, the caller's deadline passed. */
  async loseAnswer(
    claim: Claim,
    worker = this.worker({ timing: { timeoutMs: 150 } }),
  ): Promise<void> {
    this.script(async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      await proceed();
      return new Promise(() => undefined);
    });
    const outcome = await worker.provision(claim);
    assert.equal(outcome.kind, 'running', JSON.stringify(outcome));
    this.script(() => undefined);
  }

  /** Runs the jobs of this claim and of its volume, as the queues would, until nothing is left to
   * do; then says what there is. */
  async settle(claim: Claim, worker = this.worker()): Promise<void> {
    let last: readonly unknown[] = [];
    await until(
      `claim ${claim.metadata.name} is settled`,
      async () => {
        const provisioned = await worker.provision(claim);
        const volume = await this.rig.volumeOf(claim);
        const removed = volume === undefined ? undefined : await worker.remove(volume);
        await this.#binder.idle();
        last = [provisioned, removed];
        if (provisioned.kind !== 'done' || (removed !== undefined && removed.kind !== 'done'))
          return false;
        if ((await this.redis.hexists(`{csi}:open:${DRIVER}`, claim.metadata.uid)) === 1)
          return false;
        const now = await this.readClaim(claim);
        const left = await this.rig.volumeOf(claim);
        return now === undefined ? left === undefined : left?.status?.phase === 'Bound';
      },
      6_000,
    ).catch((cause: unknown) => {
      throw new Error(`not settled; the last runs said ${JSON.stringify(last)}`, { cause });
    });
  }

  /** Nothing of the claim is left: no volume, no PV, no open record. */
  async assertNothingLeft(claim: Claim): Promise<void> {
    assert.deepEqual(this.#made(claim), []);
    assert.equal(await this.rig.volumeOf(claim), undefined);
    assert.equal(await this.redis.hexists(`{csi}:open:${DRIVER}`, claim.metadata.uid), 0);
  }

  /** The claim has one volume, its PV names it, and nothing is open. */
  async assertOneVolume(claim: Claim): Promise<void> {
    const volume = await this.rig.volumeOf(claim);
    assert.deepEqual(this.#made(claim), [volume?.spec.csi?.volumeHandle]);
    assert.equal(volume?.spec.claimRef?.uid, claim.metadata.uid);
    assert.equal(await this.redis.hexists(`{csi}:open:${DRIVER}`, claim.metadata.uid), 0);
  }

  #made(claim: Claim): readonly string[] {
    return this.rig.driver
      .volumes()
      .filter(({ name }) => name === `pvc-${claim.metadata.uid}`)
      .map(({ handle }) => handle);
  }
}

function volumeOf({ request }: DriverCall): string | undefined {
  if ('name' in request) return `name ${String(request.name)}`;
  return 'volumeId' in request ? `handle ${String(request.volumeId)}` : undefined;
}

/** A place where somebody is frozen until thawed. */
export class Ice {
  #arrive: () => void = () => undefined;
  #thaw: () => void = () => undefined;
  readonly #thawed = new Promise<void>((resolve) => (this.#thaw = resolve));
  /** Resolves when somebody is frozen here. */
  readonly reached = new Promise<void>((resolve) => (this.#arrive = resolve));

  freeze(): Promise<void> {
    this.#arrive();
    return this.#thawed;
  }

  thaw(): void {
    this.#thaw();
  }
}
