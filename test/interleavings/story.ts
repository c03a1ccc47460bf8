import assert from 'node:assert/strict';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { silentLog } from '#src/runtime/log.ts';
import { type Binder, startBinder } from '../../sandbox/binder/binder.ts';
import { keyOf, openRig, type Rig } from '../jobs/rig.ts';
import { until } from '../harness/until.ts';

/** The rig of the jobs tests with the volume controller of the sandbox, so that claims become Bound
 * and PVs Released as in a cluster; and helpers to follow one claim. */
export class Story {
  readonly rig: Rig;
  readonly #binder: Binder;

  private constructor(rig: Rig) {
    this.rig = rig;
    this.#binder = startBinder({ operations: rig.cluster.api.operations, log: silentLog });
  }

  static async open(): Promise<Story> {
    return new Story(await openRig());
  }

  async close(): Promise<void> {
    await this.#binder.close();
    await this.rig.close();
  }

  async reset(): Promise<void> {
    await this.rig.reset();
    this.rig.cluster.api.faults.clear();
  }

  /** How many CreateVolume the driver got for the claim. */
  creates(claim: Claim): number {
    const name = `pvc-${claim.metadata.uid}`;
    return this.rig.driver.calls.filter(
      ({ method, request }) =>
        method === 'CreateVolume' && 'name' in request && request.name === name,
    ).length;
  }

  /** Deletes the claim as a user does; it is gone when this resolves. */
  async deleteClaim(claim: Claim): Promise<void> {
    await this.rig.kube.delete(claims, { namespace: 'default', name: claim.metadata.name });
    await until(async () => (await this.rig.claimNow(claim)) === undefined, 'the claim is gone');
  }

  /** The claim's PV, once the volume controller has released it. */
  async released(claim: Claim): Promise<Volume> {
    const isReleased = async () => (await this.rig.volumeOf(claim))?.status?.phase === 'Released';
    await until(isReleased, 'the volume is released');
    return (await this.rig.volumeOf(claim)) as Volume;
  }

  /** Runs the jobs of this claim and of its volume, as the queues would, until nothing is left to
   * do. Time in doubt passes at once. */
  async runUntilDone(claim: Claim, parts: Partial<Dependencies> = {}): Promise<void> {
    let last: Outcome | undefined;
    const end = (cause: unknown): never => {
      throw new Error(`not done; the last run ended with ${JSON.stringify(last)}`, { cause });
    };
    await this.#binder.idle();
    await until(
      async () => {
        if (await this.#isBeingDeleted(claim)) return true;
        last = await this.rig.provision(claim, parts);
        await this.rig.endDoubt(claim);
        return last.kind === 'done';
      },
      `the creation for ${claim.metadata.name} is done`,
      20_000,
    ).catch(end);
    const isOver = async (): Promise<boolean> => {
      await this.#binder.idle();
      const [now, volume] = [await this.rig.claimNow(claim), await this.rig.volumeOf(claim)];
      if (volume === undefined) return now === undefined;
      if (volume.status?.phase === 'Bound') return now !== undefined;
      last = await this.rig.remove(volume, parts);
      await this.rig.endDoubt(volume);
      return false;
    };
    await until(isOver, `all is done for ${claim.metadata.name}`, 20_000).catch(end);
  }

  /** Whether the job of this claim's UID is one that deletes its volume. */
  async #isBeingDeleted(claim: Claim): Promise<boolean> {
    const key = { ...keyOf(claim), kind: 'volume' } as const;
    const { data, finishedOn } = await this.rig.jobs.job(key);
    return data !== undefined && finishedOn === undefined;
  }

  /** Nothing of the claim is left: no volume, and no PV. */
  async assertNothingLeft(claim: Claim): Promise<void> {
    assert.deepEqual(this.#made(claim), []);
    assert.equal(await this.rig.volumeOf(claim), undefined);
  }

  /** The claim has one volume, and its PV names it. */
  async assertOneVolume(claim: Claim): Promise<void> {
    const volume = await this.rig.volumeOf(claim);
    assert.deepEqual(this.#made(claim), [volume?.spec.csi?.volumeHandle]);
    assert.equal(volume?.spec.claimRef?.uid, claim.metadata.uid);
  }

  #made(claim: Claim): readonly string[] {
    return this.rig.driver
      .volumes()
      .filter(({ name }) => name === `pvc-${claim.metadata.uid}`)
      .map(({ handle }) => handle);
  }
}
