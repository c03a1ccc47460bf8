import assert from 'node:assert/strict';
import type { Redis } from 'ioredis';
import { ownershipMs } from '#src/records/flags.ts';
import { kubeWith, type Parts } from '../jobs/parts.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type Binder, startBinder } from '../../sandbox/binder/binder.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { DRIVER, openRig, type Rig } from '../jobs/rig.ts';
import { until } from '../harness/until.ts';

/** Times of a worker, short enough for a test. */
export interface Timing {
  readonly timeoutMs: number;
  readonly writeAllowanceMs: number;
  readonly settleMs: number;
}

const TIMING: Timing = { timeoutMs: 2_000, writeAllowanceMs: 2_000, settleMs: 200 };

/** The state of one worker process: it remembers the records that it left open, and a test may
 * replace some of its parts. */
export interface Worker {
  readonly records: VolumeRecords;
  reconcileClaim(claim: Claim): Promise<Outcome>;
  reconcileVolume(volume: Volume): Promise<Outcome>;
}

type Records = new (options: ConstructorParameters<typeof VolumeRecords>[0]) => VolumeRecords;

export interface WorkerOptions {
  readonly timing?: Partial<Timing>;
  /** A VolumeRecords whose methods pause or fail where the test wants. */
  readonly records?: Records;
  readonly parts?: Partial<Parts>;
}

/** The rig of the jobs tests with the volume controller of the sandbox, so that claims become Bound
 * and PVs Released as in a cluster; and helpers to follow one claim. */
export class Story {
  readonly rig: Rig;
  /** The Redis of the records: the rig's, or one that a test can kill. */
  readonly redis: Redis;
  readonly #binder: Binder;
  readonly #callsUnderWay = new Map<string, number>();
  /** Volume names and handles for which the driver had two calls at the same time. */
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

  /** Sets what the driver does at each call; see SampleDriverOptions.onCall. Notes calls that are
   * under way for the same volume at the same time. */
  script(hook: (call: DriverCall) => unknown): void {
    this.rig.onCall = async (call) => {
      const about = volumeOf(call);
      if (about === undefined) return hook(call);
      const running = this.#callsUnderWay.get(about) ?? 0;
      if (running > 0) this.doubles.push(`${call.method} ${about}`);
      this.#callsUnderWay.set(about, running + 1);
      let isOver = false;
      // A call that its caller cancelled counts as over, although the driver may go on with it.
      const end = (): void => {
        if (!isOver) this.#callsUnderWay.set(about, (this.#callsUnderWay.get(about) ?? 1) - 1);
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

  worker({ timing, records: Records = VolumeRecords, parts = {} }: WorkerOptions = {}): Worker {
    const { timeoutMs, writeAllowanceMs, settleMs } = { ...TIMING, ...timing };
    const records = new Records({
      redis: this.redis,
      prefix: 'csi',
      driver: DRIVER,
      ownMs: ownershipMs({ timeoutMs, writeAllowanceMs }),
      settleMs,
    });
    const change = { records, timeoutMs, writeAllowanceMs, ...parts };
    // As the jobs process does every two seconds.
    const checkLeftOpen = async (): Promise<void> => {
      await records.rewriteLostRecords().catch(() => undefined);
    };
    return {
      records,
      reconcileClaim: async (claim) => {
        const outcome = await this.rig.provision(claim, change);
        await checkLeftOpen();
        return outcome;
      },
      reconcileVolume: async (volume) => {
        const outcome = await this.rig.remove(volume, change);
        await checkLeftOpen();
        return outcome;
      },
    };
  }

  /** The kube port with some of its methods replaced. */
  kubeWith(change: Partial<Parts['kube']>): Partial<Parts> {
    return kubeWith(this.rig, change);
  }

  /** The gateway port with some of its methods replaced. */
  csiWith(change: Partial<Parts['csi']>): Partial<Parts> {
    const { csi } = this.rig.parts;
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

  /** Deletes the claim as a user does; it is gone when this resolves. */
  async deleteClaim(claim: Claim): Promise<void> {
    await this.rig.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    await until(async () => (await this.readClaim(claim)) === undefined, 'the claim is gone');
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

  /** Ends the ownership of this record's owner. */
  async endOwnership(id: string): Promise<void> {
    await this.redis.hset(`{csi}:volume:${DRIVER}:${id}`, 'until', String(Date.now() - 1));
  }

  /** Runs a creation whose answer is lost: the driver creates the volume, and the caller's deadline
   * passes. */
  async loseAnswer(
    claim: Claim,
    worker = this.worker({ timing: { timeoutMs: 150, writeAllowanceMs: 200 } }),
  ): Promise<void> {
    this.script(async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      await proceed();
      return new Promise(() => undefined);
    });
    const outcome = await worker.reconcileClaim(claim);
    assert.equal(outcome.kind, 'running', JSON.stringify(outcome));
    this.script(() => undefined);
  }

  /** Runs the jobs of this claim and of its volume, as the queues would, until nothing is left to
   * do. */
  async runUntilDone(claim: Claim, worker = this.worker()): Promise<void> {
    let last: readonly unknown[] = [];
    await until(
      async () => {
        const provisioned = await worker.reconcileClaim(claim);
        const volume = await this.rig.volumeOf(claim);
        const removed = volume === undefined ? undefined : await worker.reconcileVolume(volume);
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
      `the jobs of claim ${claim.metadata.name} are done`,
      6_000,
    ).catch((cause: unknown) => {
      throw new Error(`not done; the last runs ended with ${JSON.stringify(last)}`, { cause });
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

/** A point at which a run pauses until the test resumes it. */
export class Pause {
  #arrive: () => void = () => undefined;
  #resume: () => void = () => undefined;
  readonly #resumed = new Promise<void>((resolve) => (this.#resume = resolve));
  /** Resolves when a run has reached this point. */
  readonly reached = new Promise<void>((resolve) => (this.#arrive = resolve));

  wait(): Promise<void> {
    this.#arrive();
    return this.#resumed;
  }

  resume(): void {
    this.#resume();
  }
}
