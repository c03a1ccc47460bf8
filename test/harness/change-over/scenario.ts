import { setTimeout as delay } from 'node:timers/promises';
import { type KubeClient, listAll } from '#src/kube/client.ts';
import { isNotFound } from '#src/kube/kube-error.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, volumes } from '#src/kube/resources.ts';
import { createSmallClaim } from '../small-claim.ts';
import { until } from '../until.ts';
import type { Caller, VolumeLedger } from './volume-ledger.ts';

/** A running provisioner, or one of its processes. */
export interface Startable {
  /** As SIGTERM does. */
  stop(): Promise<void>;
  /** As SIGKILL does. */
  kill(): Promise<void>;
}

/** Where claims are created and deleted. */
export interface ChurnPlace {
  readonly kube: KubeClient;
  readonly namespace: string;
  readonly className: string;
  readonly ledger: VolumeLedger;
  /** Handles of the volumes that the driver has. */
  readonly handles: () => readonly string[];
}

/** Where a change-over takes place. */
export interface ChangeOverPlace extends ChurnPlace {
  readonly startIngest: () => Promise<Startable>;
  readonly startOther: () => Promise<Startable>;
  /** Whether the audit has reported exactly these volumes. */
  readonly isReported?: (handles: readonly string[]) => Promise<boolean>;
}

export interface ChurnPlan {
  readonly claims: number;
  /** Claims that are created each second. */
  readonly perSecond: number;
  /** The claims are created in this many equal parts, each when those before it have volumes. */
  readonly bursts: number;
  /** Every second claim is deleted this long after it was created, at most; 0: none is deleted. */
  readonly deleteWithinMs: number;
}

export interface ChangeOverPlan extends ChurnPlan {
  /** How the only ingest ends. */
  readonly end: 'stop' | 'kill';
  /** The other provisioner is started, and stopped, when these parts of all claims were created, or
   * have had a volume. */
  readonly turns: readonly [number, number];
  readonly turnsBy: 'claims' | 'volumes';
}

export interface ChangeOverResult {
  readonly made: Readonly<Record<Caller, number>>;
  /** Claims that are not Bound, though nobody deleted them. */
  readonly lost: readonly string[];
  /** Names of volumes made beside one of the same name. */
  readonly madeTwice: readonly string[];
  /** Who made a volume again after its deletion. */
  readonly madeAgain: readonly Caller[];
  /** PVs that are left of claims that were deleted, with phase and who made the volume. */
  readonly left: readonly string[];
  /** Volumes that no PV names, by who made them. */
  readonly leaked: Readonly<Record<Caller, readonly string[]>>;
}

const CREATED_AT_ONCE = 20;

/** Creates claims, and deletes some, while sutler is replaced by the other provisioner and back.
 * sutler's workers run all the time, its only ingest is ended and started again. */
export async function changeOverAndBack(
  place: ChangeOverPlace,
  plan: ChangeOverPlan,
): Promise<ChangeOverResult> {
  const { ledger } = place;
  const [toOther, back] = plan.turns;
  const user = new User(place, plan);
  const isMade = (part: number) => () =>
    (plan.turnsBy === 'claims' ? user.created : ledger.creations) >= part * plan.claims;
  const ingest = await place.startIngest();
  const creating = user.createAll();
  await until(() => ledger.creations > 0, 'a volume of sutler', 120_000);
  await until(isMade(toOther), 'volumes of sutler', 600_000);
  await ingest[plan.end]();
  const other = await place.startOther();
  await until(isMade(back), 'volumes of the other provisioner', 600_000);
  await until(() => ledger.madeBy('other') > 0, 'a volume of the other provisioner', 120_000);
  await other.stop();
  const again = await place.startIngest();
  await creating;
  await user.waitUntilSettled();
  const result = await collect(place, user);
  const { other: left } = result.leaked;
  if (left.length > 0 && place.isReported !== undefined)
    await until(() => place.isReported?.(left), `the audit reports ${left.join()}`, 60_000);
  await again.stop();
  return result;
}

/** Creates claims, and deletes some, while the provisioner is disturbed.
 * @param disturb  called until all claims are created, again and again */
export async function churn(
  place: ChurnPlace,
  plan: ChurnPlan,
  disturb: () => Promise<void>,
): Promise<ChangeOverResult> {
  const user = new User(place, plan);
  const created = new AbortController();
  const creating = user.createAll().finally(() => created.abort());
  while (!created.signal.aborted) await disturb();
  await creating;
  await user.waitUntilSettled();
  return collect(place, user);
}

/** Creates and deletes claims. */
class User {
  readonly #place: ChurnPlace;
  readonly #plan: ChurnPlan;
  readonly #kept = new Set<string>();
  readonly #deleting: Promise<void>[] = [];
  created = 0;

  constructor(place: ChurnPlace, plan: ChurnPlan) {
    this.#place = place;
    this.#plan = plan;
  }

  async createAll(): Promise<void> {
    const { claims: count, bursts } = this.#plan;
    for (let burst = 0; burst < bursts; burst += 1) {
      const isDue = () => this.#place.ledger.creations >= (burst * count) / bursts;
      await until(isDue, `burst ${burst + 1}`, 600_000);
      await this.#createBurst(count / bursts);
    }
    await Promise.all(this.#deleting);
  }

  async #createBurst(count: number): Promise<void> {
    const startMs = Date.now();
    const ids = Array.from({ length: count }, (_, i) => i);
    const next = async (): Promise<void> => {
      for (let i = ids.shift(); i !== undefined; i = ids.shift()) {
        const dueMs = startMs + (i * 1000) / this.#plan.perSecond;
        await delay(Math.max(0, dueMs - Date.now()));
        await this.#create(i);
      }
    };
    await Promise.all(Array.from({ length: CREATED_AT_ONCE }, next));
  }

  async #create(i: number): Promise<void> {
    const { kube, namespace, className } = this.#place;
    const name = `claim-${Date.now().toString(36)}-${i}`;
    await createSmallClaim(kube, { name, namespace }, { storageClassName: className });
    this.created += 1;
    const { deleteWithinMs } = this.#plan;
    if (deleteWithinMs > 0 && i % 2 === 1)
      this.#deleting.push(this.#deleteAfter(name, Math.random() * deleteWithinMs));
    else this.#kept.add(name);
  }

  async #deleteAfter(name: string, ms: number): Promise<void> {
    await delay(ms);
    const { kube, namespace } = this.#place;
    await kube.delete(claims, { namespace, name }).catch((error: unknown) => {
      if (!isNotFound(error)) throw error;
    });
  }

  /** The claims that should be Bound and are not. */
  async unbound(): Promise<readonly string[]> {
    const found = await this.#listClaims();
    return [...this.#kept].filter((name) => found.get(name)?.status?.phase !== 'Bound');
  }

  async #listClaims(): Promise<ReadonlyMap<string, Claim>> {
    const found = new Map<string, Claim>();
    const { kube, namespace, className } = this.#place;
    for await (const claim of listAll<Claim>(kube, claims, { namespace }))
      if (claim.spec.storageClassName === className) found.set(claim.metadata.name, claim);
    return found;
  }

  /** Waits until every claim that is kept is Bound and no claim and PV is left of the others; up
   * to four minutes, after which the result says what is not. */
  async waitUntilSettled(): Promise<void> {
    // A busy API server may refuse a list.
    const isSettled = (): Promise<boolean> => this.#isSettled().catch(() => false);
    await until(isSettled, 'everything is settled', 240_000).catch(() => undefined);
  }

  async #isSettled(): Promise<boolean> {
    if ((await this.unbound()).length > 0) return false;
    if ((await this.#listClaims()).size !== this.#kept.size) return false;
    return (await listVolumes(this.#place)).length === this.#kept.size;
  }
}

async function listVolumes({ kube, className }: ChurnPlace): Promise<readonly Volume[]> {
  const found: Volume[] = [];
  for await (const volume of listAll<Volume>(kube, volumes))
    if (volume.spec.storageClassName === className) found.push(volume);
  return found;
}

/** PV, phase, policy, marks and who made the volume. */
function describeVolume(ledger: VolumeLedger, { metadata, spec, status }: Volume): string {
  const by = ledger.makerOf(spec.csi?.volumeHandle ?? '');
  const marks = [metadata.deletionTimestamp, ...(metadata.finalizers ?? [])].join(' ');
  return `${metadata.name} ${status?.phase} by ${by} ${marks}`;
}

async function collect(place: ChurnPlace, user: User): Promise<ChangeOverResult> {
  const { ledger } = place;
  const found = await listVolumes(place);
  const named = new Set(found.map(({ spec }) => spec.csi?.volumeHandle ?? ''));
  const unnamed = place.handles().filter((handle) => !named.has(handle));
  const again = ledger.madeAgain();
  const leakedBy = (caller: Caller) => unnamed.filter((h) => ledger.makerOf(h) === caller);
  return {
    made: { sutler: ledger.madeBy('sutler'), other: ledger.madeBy('other') },
    lost: await user.unbound(),
    left: found
      .filter(({ status }) => status?.phase !== 'Bound')
      .map((volume) => describeVolume(ledger, volume)),
    madeTwice: again.filter(({ wasDeleted }) => !wasDeleted).map(({ name }) => name),
    madeAgain: again.filter(({ wasDeleted }) => wasDeleted).map(({ by }) => by),
    leaked: { sutler: leakedBy('sutler'), other: leakedBy('other') },
  };
}
