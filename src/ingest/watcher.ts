import type { KubeClient } from '../kube/client.ts';
import type { Claim, Class, Volume } from '../kube/objects.ts';
import { startReflector } from '../kube/reflector.ts';
import type { Change, Transformed, Reflector } from '../kube/reflector.ts';
import { claims, classes, keyOf, volumes } from '../kube/resources.ts';
import type { JobKey } from '../queue/contract.ts';
import { objectId, parseObjectId } from '../queue/wait-list.ts';
import type { Registry } from '../runtime/metrics.ts';
import type { Logger } from '../runtime/log.ts';
import { classNameOf } from '../volumes/eligibility.ts';
import { isPending, restoredSnapshot } from '../volumes/source-use.ts';
import { ClaimedIndex, claimsOf } from './claimed-index.ts';
import type { LeaderGate } from './leader-gate.ts';
import { HandleIndex } from './handle-index.ts';
import { transformClaim, transformClass, transformVolume } from './transforms.ts';
import { judgeClaimChange, judgeVolumeChange, triageClaim, triageVolume } from './triage.ts';
import type { Triage, TriageDriver } from './triage.ts';

export interface WatcherOptions {
  readonly client: KubeClient;
  readonly driver: TriageDriver;
  readonly gate: Pick<LeaderGate, 'ensureQueued' | 'enqueueNow' | 'promote'>;
  /** Hears of each volume that should be deleted and must not be. */
  readonly onRefused?: (refused: RefusedVolume) => void;
  /** Hears of each object that came, changed or went and that keys may wait for; named as in the
   * wait list. */
  readonly onObject?: (object: string) => void;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** A volume that should be deleted and must not be, and why. */
export interface RefusedVolume {
  readonly volume: Volume;
  readonly reason: string;
}

/** The watched views of claims, volumes and classes; each change of them is triaged. */
export interface Watcher {
  /** Resolves when all views are complete; rejects when the signal aborts first. */
  synced(signal: AbortSignal): Promise<void>;
  /** What keeps a view from being complete or fresh. */
  readonly trouble: string | undefined;
  /** Keys of everything that needs a job now; what re-adding goes through. */
  outstanding(): Generator<JobKey>;
  /** Volumes that should be deleted and must not be. */
  refused(): Generator<RefusedVolume>;
  /** The version of a claim, class or volume, '' = it is not there; undefined: not watched here, or
   * not known now. */
  versionOf(object: string): string | undefined;
  /** The snapshots that pending claims of any namespace are restored from, as "namespace/name". */
  restoredSnapshots(): ReadonlySet<string>;
  stop(): Promise<void>;
}

/** Whether a delayed job stays delayed (`ensureQueued`) or runs at once (`enqueueNow`). */
type EnqueueHow = 'ensureQueued' | 'enqueueNow';

/** Starts to list and to watch. */
export function startWatcher(options: WatcherOptions): Watcher {
  const { client, log, metrics, driver, gate } = options;
  const common = { client, log, metrics };
  const handles = new HandleIndex();
  const claimed = new ClaimedIndex();
  const around = {
    classOf: (name: string) => classView.get(name),
    hasVolume: (claimUid: string) => claimed.has(claimUid),
  };

  const judgeClaim = (claim: Claim): Triage => triageClaim(claim, driver, around);
  const judgeVolume = (volume: Volume): Triage =>
    triageVolume(volume, driver, (candidate) => handles.isShared(candidate));
  const enqueue = (triage: Triage, object: string, how: EnqueueHow = 'ensureQueued'): void => {
    if (triage.kind === 'job') gate[how](triage.key);
    else log.debug({ object, reason: triage.reason }, 'left alone');
  };
  const enqueueClaim = (claim: Claim, how: EnqueueHow = 'ensureQueued'): void =>
    enqueue(judgeClaim(claim), `claim ${keyOf(claim.metadata)}`, how);
  const enqueueVolume = (volume: Volume, how: EnqueueHow = 'ensureQueued'): void => {
    const triage = judgeVolume(volume);
    enqueue(triage, `volume ${volume.metadata.name}`, how);
    if (triage.kind === 'refuse') options.onRefused?.({ volume, reason: triage.reason });
  };
  /** A volume that somebody deletes before it is bound leaves its claim without one. Released ones,
   * the many, have no claim any more. */
  const reconsiderClaimOf = (volume: Volume): void => {
    if (volume.status?.phase === 'Released') return;
    const uids = claimsOf(volume);
    for (const claim of claimView.list()) if (uids.has(claim.metadata.uid)) enqueueClaim(claim);
  };

  const classView: Reflector<Class> = startReflector({
    ...common,
    resource: classes,
    transform: transformClass,
    // A class that came, or was made anew, changes the verdict over all its claims at once.
    onChange: ({ type, object }: Change<Class>) => {
      options.onObject?.(objectId({ resource: classes.plural, name: object.metadata.name }));
      if (type !== 'added') return;
      for (const claim of claimView.list()) {
        if (classNameOf(claim) === object.metadata.name) enqueueClaim(claim, 'enqueueNow');
      }
    },
  });
  const claimView: Reflector<Claim> = startReflector({
    ...common,
    resource: claims,
    transform: transformClaim,
    // A deleted claim needs no job of its own: a record that is open has one that sees it.
    onChange: ({ type, object, previous }: Change<Claim>) => {
      options.onObject?.(objectId({ resource: claims.plural, ...object.metadata }));
      if (type === 'deleted') return;
      const news =
        previous === undefined
          ? 'verdict'
          : judgeClaimChange(object, previous, {
              wasJob: judgeClaim(previous).kind === 'job',
              driver,
            });
      if (news !== 'none')
        enqueueClaim(object, news === 'edit' || news === 'back' ? 'enqueueNow' : 'ensureQueued');
    },
  });
  const volumeView: Reflector<Volume> = startReflector({
    ...common,
    resource: volumes,
    transform: transformVolume,
    onChange: (change: Change<Volume>) => {
      options.onObject?.(objectId({ resource: volumes.plural, name: change.object.metadata.name }));
      handles.apply(change);
      claimed.apply(change);
      if (change.type === 'deleted') reconsiderClaimOf(change.object);
      for (const name of handles.left(change)) {
        const other = volumeView.get(name);
        if (other !== undefined) enqueueVolume(other);
      }
      const { object, previous } = change;
      if (change.type === 'deleted') return;
      const news = previous === undefined ? 'verdict' : judgeVolumeChange(object, previous, driver);
      if (news === 'going') {
        const triage = judgeVolume(object);
        if (triage.kind === 'job') gate.promote(triage.key);
        // A deletion that waits after a failure must hear at once that the policy is another one
        // now.
      } else if (news !== 'none')
        enqueueVolume(object, previous === undefined ? 'ensureQueued' : 'enqueueNow');
    },
  });
  const views = [classView, claimView, volumeView];
  const byPlural = new Map<string, Reflector<Transformed>>([
    [classes.plural, classView],
    [claims.plural, claimView],
    [volumes.plural, volumeView],
  ]);

  return {
    async synced(signal) {
      await Promise.all(views.map((view) => view.synced(signal)));
    },
    get trouble() {
      return views.map((view) => view.trouble).find((trouble) => trouble !== undefined);
    },
    *outstanding() {
      for (const claim of claimView.list()) yield* keyIn(judgeClaim(claim));
      for (const volume of volumeView.list()) yield* keyIn(judgeVolume(volume));
    },
    *refused() {
      for (const volume of volumeView.list()) {
        const triage = judgeVolume(volume);
        if (triage.kind === 'refuse') yield { volume, reason: triage.reason };
      }
    },
    versionOf(id) {
      const { resource, namespace, name } = parseObjectId(id);
      const view = byPlural.get(resource);
      if (view?.hasSynced !== true || view.trouble !== undefined) return undefined;
      return view.get(keyOf({ namespace, name }))?.metadata.resourceVersion ?? '';
    },
    restoredSnapshots() {
      const names = new Set<string>();
      for (const claim of claimView.list()) {
        const snapshot = isPending(claim) ? restoredSnapshot(claim) : undefined;
        if (snapshot !== undefined) names.add(snapshot);
      }
      return names;
    },
    async stop() {
      await Promise.all(views.map((view) => view.stop()));
    },
  };
}

function* keyIn(triage: Triage): Generator<JobKey> {
  if (triage.kind === 'job') yield triage.key;
}
