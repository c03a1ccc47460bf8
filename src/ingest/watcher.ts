import type { KubeClient } from '../kube/client.ts';
import type { Claim, Class, Volume } from '../kube/objects.ts';
import {
  startReflector,
  type Change,
  type Reflector,
  type Transformed,
} from '../kube/reflector.ts';
import { claims, classes, keyOf, volumes, type Resource } from '../kube/resources.ts';
import type { JobKey } from '../queue/contract.ts';
import { objectId, parseObjectId } from '../queue/wait-list.ts';
import type { HandleSharers } from '../records/shared-handles.ts';
import { unlessAborted } from '../runtime/abort.ts';
import type { Registry } from '../runtime/metrics.ts';
import type { Logger } from '../runtime/log.ts';
import { classNameOf } from '../volumes/eligibility.ts';
import { isPending, restoredSnapshot } from '../volumes/source-use.ts';
import { ClaimedIndex, claimsOf } from './claimed-index.ts';
import type { LeaderGate } from './leader-gate.ts';
import { HandleIndex } from './handle-index.ts';
import { transformClaim, transformClass, transformVolume } from './transforms.ts';
import {
  judgeClaimChange,
  judgeVolumeChange,
  triageClaim,
  triageVolume,
  type Triage,
  type TriageDriver,
} from './triage.ts';

export interface WatcherOptions {
  readonly client: KubeClient;
  readonly driver: TriageDriver;
  readonly gate: Pick<LeaderGate, 'ensureQueued' | 'enqueueNow' | 'promote'>;
  /** Called for a volume that should be deleted and must not be, when it changes and by
   * `reportRefused`. */
  readonly onRefused?: (volume: Volume, reason: string) => void;
  /** Called when a claim, class or volume was added, modified or deleted, with its id in the wait
   * list. */
  readonly onObject?: (object: string) => void;
  /** Called when it changed which PVs share a handle. */
  readonly onSharedHandles?: () => void;
  readonly log: Logger;
  readonly metrics: Registry;
}

type EnqueueHow = 'ensureQueued' | 'enqueueNow';

/** Lists, watches and caches claims, classes and volumes. When one changes and needs a job, passes
 * its key to the leader gate. */
export class Watcher {
  readonly #options: WatcherOptions;
  readonly #handles = new HandleIndex();
  readonly #claimed = new ClaimedIndex();
  readonly #classes: Reflector<Class>;
  readonly #claims: Reflector<Claim>;
  readonly #volumes: Reflector<Volume>;
  /** By the plural of the resource. */
  readonly #reflectors: ReadonlyMap<string, Reflector<Transformed>>;

  constructor(options: WatcherOptions) {
    this.#options = options;
    this.#classes = this.#watch(classes, transformClass, (change) => this.#classChanged(change));
    this.#claims = this.#watch(claims, transformClaim, (change) => this.#claimChanged(change));
    this.#volumes = this.#watch(volumes, transformVolume, (change) => this.#volumeChanged(change));
    this.#reflectors = new Map<string, Reflector<Transformed>>([
      [classes.plural, this.#classes],
      [claims.plural, this.#claims],
      [volumes.plural, this.#volumes],
    ]);
  }

  /** Resolves when all caches are complete, or when the signal aborts. */
  async waitForSync(signal: AbortSignal): Promise<void> {
    const all = [...this.#reflectors.values()].map((reflector) => reflector.waitForSync());
    await unlessAborted(Promise.all(all), signal);
  }

  /** For /readyz: why a cache is incomplete or out of date. */
  get trouble(): string | undefined {
    return [...this.#reflectors.values()].find(({ trouble }) => trouble !== undefined)?.trouble;
  }

  /** Keys of all objects that need a job now, for a resync. */
  *outstanding(): Generator<JobKey> {
    for (const claim of this.#claims.list()) yield* keysIn(this.#triageClaim(claim));
    for (const volume of this.#volumes.list()) yield* keysIn(this.#triageVolume(volume));
  }

  /** Calls `onRefused` for each volume that should be deleted and must not be. */
  reportRefused(): void {
    for (const volume of this.#volumes.list())
      this.#reportIfRefused(volume, this.#triageVolume(volume));
  }

  /** The version of a claim, class or volume; '' = it does not exist. Undefined: another resource,
   * or the cache is incomplete or out of date. */
  versionOf(object: string): string | undefined {
    const { resource, namespace, name } = parseObjectId(object);
    const reflector = this.#reflectors.get(resource);
    if (reflector?.hasSynced !== true || reflector.trouble !== undefined) return undefined;
    return reflector.get(keyOf({ namespace, name }))?.metadata.resourceVersion ?? '';
  }

  /** All classes, without their parameters. */
  classes(): Iterable<Class> {
    return this.#classes.list();
  }

  /** The snapshots that pending claims of any namespace are restored from, as "namespace/name". */
  restoredSnapshots(): ReadonlySet<string> {
    return new Set(
      [...this.#claims.list()]
        .filter((claim) => isPending(claim))
        .flatMap((claim) => restoredSnapshot(claim) ?? []),
    );
  }

  /** Whether changes of PVs arrive at once, so that `sharedHandles` misses none. */
  get isFollowingVolumes(): boolean {
    return this.#volumes.isFollowing;
  }

  /** The PVs of this driver by each handle that several of them name. */
  sharedHandles(): HandleSharers {
    return this.#handles.sharedOf(this.#options.driver.name);
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#reflectors.values()].map((reflector) => reflector.stop()));
  }

  #watch<T extends Transformed>(
    resource: Resource,
    transform: (raw: unknown) => T,
    onChange: (change: Change<T>) => void,
  ): Reflector<T> {
    const { client, log, metrics, onObject } = this.#options;
    return startReflector<T>({
      client,
      log,
      metrics,
      resource,
      transform,
      onChange: (change) => {
        onObject?.(objectId({ resource: resource.plural, ...change.object.metadata }));
        onChange(change);
      },
    });
  }

  /** A class that was added, or deleted and created again, may end the cause of its claims'
   * failures. */
  #classChanged({ type, object }: Change<Class>): void {
    if (type !== 'added') return;
    for (const claim of this.#claims.list())
      if (classNameOf(claim) === object.metadata.name) this.#enqueueClaim(claim, 'enqueueNow');
  }

  /** A deleted claim needs no job: if its record is open, the record's key is in the queue. */
  #claimChanged({ type, object, previous }: Change<Claim>): void {
    if (type === 'deleted') return;
    if (previous === undefined) return this.#enqueueClaim(object, 'ensureQueued');
    const { driver } = this.#options;
    const neededJob = this.#triageClaim(previous).kind === 'job';
    const meaning = judgeClaimChange(object, previous, { neededJob, driver });
    if (meaning === 'irrelevant') return;
    this.#enqueueClaim(object, meaning === 'need-changed' ? 'ensureQueued' : 'enqueueNow');
  }

  #volumeChanged(change: Change<Volume>): void {
    const { type, object, previous } = change;
    if (this.#handles.apply(change)) this.#options.onSharedHandles?.();
    this.#claimed.apply(change);
    if (type === 'deleted') this.#enqueueClaimOf(object);
    for (const name of this.#handles.othersOf(change)) {
      const other = this.#volumes.get(name);
      if (other !== undefined) this.#enqueueVolume(other, 'ensureQueued');
    }
    if (type === 'deleted') return;
    if (previous === undefined) return this.#enqueueVolume(object, 'ensureQueued');
    const meaning = judgeVolumeChange(object, previous, this.#options.driver);
    if (meaning === 'deleting')
      for (const key of keysIn(this.#triageVolume(object))) this.#options.gate.promote(key);
    // Also for `need-changed`: a delayed deletion has to run to find that the policy has changed.
    else if (meaning !== 'irrelevant') this.#enqueueVolume(object, 'enqueueNow');
  }

  /** A claim whose volume is deleted before the two are bound needs another volume. The claim of a
   * Released volume, as most deleted ones are, is gone. */
  #enqueueClaimOf(volume: Volume): void {
    if (volume.status?.phase === 'Released') return;
    const uids = claimsOf(volume);
    for (const claim of this.#claims.list())
      if (uids.has(claim.metadata.uid)) this.#enqueueClaim(claim, 'ensureQueued');
  }

  #enqueueClaim(claim: Claim, how: EnqueueHow): void {
    this.#enqueue(this.#triageClaim(claim), `claim ${keyOf(claim.metadata)}`, how);
  }

  #enqueueVolume(volume: Volume, how: EnqueueHow): void {
    const triage = this.#triageVolume(volume);
    this.#enqueue(triage, `volume ${volume.metadata.name}`, how);
    this.#reportIfRefused(volume, triage);
  }

  #reportIfRefused(volume: Volume, triage: Triage): void {
    if (triage.kind === 'refuse') this.#options.onRefused?.(volume, triage.reason);
  }

  #enqueue(triage: Triage, object: string, how: EnqueueHow): void {
    const { gate, log } = this.#options;
    if (triage.kind === 'job') gate[how](triage.key);
    else log.debug({ object, reason: triage.reason }, 'needs no job');
  }

  #triageClaim(claim: Claim): Triage {
    return triageClaim(claim, this.#options.driver, {
      classOf: (name) => this.#classes.get(name),
      hasVolume: (claimUid) => this.#claimed.has(claimUid),
    });
  }

  #triageVolume(volume: Volume): Triage {
    return triageVolume(volume, this.#options.driver, (candidate) =>
      this.#handles.findOther(candidate),
    );
  }
}

function keysIn(triage: Triage): readonly JobKey[] {
  return triage.kind === 'job' ? [triage.key] : [];
}
