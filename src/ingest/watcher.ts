import { isDeepStrictEqual } from 'node:util';
import type { KubeClient } from '../kube/client.ts';
import type { Claim, Class, Volume } from '../kube/objects.ts';
import { startReflector } from '../kube/reflector.ts';
import type { Change, Reflector } from '../kube/reflector.ts';
import { claims, classes, volumes } from '../kube/resources.ts';
import type { JobKey } from '../queue/contract.ts';
import { objectId, parseObjectId } from '../queue/wait-list.ts';
import type { Registry } from '../runtime/metrics.ts';
import type { Logger } from '../runtime/log.ts';
import { judgeVolume as verdictOfVolume } from '../volumes/deletion.ts';
import { classNameOf } from '../volumes/eligibility.ts';
import type { DriverNames } from '../volumes/provisioning-options.ts';
import type { Gate } from './gate.ts';
import { HandleIndex } from './handle-index.ts';
import { projectClaim, projectClass, projectVolume } from './projection.ts';
import { triageClaim, triageVolume } from './triage.ts';
import type { Triage } from './triage.ts';

export interface WatcherOptions {
  readonly client: KubeClient;
  readonly driver: DriverNames;
  readonly gate: Pick<Gate, 'touch'>;
  /** Hears of each object that came, changed or went and that keys may wait for; named as in the wait list. */
  readonly onObject?: (object: string) => void;
  readonly log: Logger;
  readonly metrics: Registry;
}

/** The watched views of claims, volumes and classes; each change of them is triaged. */
export interface Watcher {
  /** Resolves when all views are complete; rejects when the signal aborts first. */
  synced(signal: AbortSignal): Promise<void>;
  /** What keeps a view from being complete or fresh. */
  readonly trouble: string | undefined;
  /** Keys of everything that needs a job now; what re-adding goes through. */
  outstanding(): Generator<JobKey>;
  /** The version of a claim or class, '' = it is not there; undefined: not watched here, or not complete yet. */
  versionOf(object: string): string | undefined;
  stop(): Promise<void>;
}

/** Starts to list and to watch. */
export function startWatcher(options: WatcherOptions): Watcher {
  const { client, log, metrics, driver, gate } = options;
  const common = { client, log, metrics };
  const handles = new HandleIndex();

  const judgeClaim = (claim: Claim): Triage => triageClaim(claim, driver, (name) => classView.get(name));
  const judgeVolume = (volume: Volume): Triage => triageVolume(volume, driver, (candidate) => handles.isShared(candidate));
  // A change that leaves the verdict as it was brings the job nothing that it does not read for itself; a deletion would otherwise be run twice, since its own
  // writes come back as changes.
  const isNewsOfClaim = (claim: Claim, previous: Claim | undefined): boolean =>
    previous === undefined ||
    judgeClaim(previous).kind !== 'job' ||
    !isDeepStrictEqual(claim.metadata.annotations, previous.metadata.annotations);
  const isNewsOfVolume = ({ object, previous }: Change<Volume>): boolean =>
    previous === undefined || verdictOfVolume(previous, driver).kind !== verdictOfVolume(object, driver).kind;
  const enqueue = (triage: Triage, object: string, how?: { readonly kick: boolean }): void => {
    if (triage.kind === 'job') gate.touch(triage.key, how);
    else log.debug({ object, reason: triage.reason }, 'left alone');
  };

  const classView: Reflector<Class> = startReflector({
    ...common,
    resource: classes,
    project: projectClass,
    // A class that came, or was made anew, changes the verdict over all its claims at once.
    onChange: ({ type, object }: Change<Class>) => {
      options.onObject?.(objectId({ resource: classes.plural, name: object.metadata.name }));
      if (type !== 'added') return;
      for (const claim of claimView.list()) {
        if (classNameOf(claim) === object.metadata.name) enqueue(judgeClaim(claim), `claim ${claim.metadata.name}`, { kick: true });
      }
    },
  });
  const claimView: Reflector<Claim> = startReflector({
    ...common,
    resource: claims,
    project: projectClaim,
    // A deleted claim needs no job of its own: a record that is open has one that sees it.
    onChange: ({ type, object, previous }: Change<Claim>) => {
      options.onObject?.(objectId({ resource: claims.plural, ...object.metadata }));
      if (type !== 'deleted' && isNewsOfClaim(object, previous))
        enqueue(judgeClaim(object), `claim ${object.metadata.namespace ?? ''}/${object.metadata.name}`);
    },
  });
  const volumeView: Reflector<Volume> = startReflector({
    ...common,
    resource: volumes,
    project: projectVolume,
    onChange: (change: Change<Volume>) => {
      handles.apply(change);
      if (change.type !== 'deleted' && isNewsOfVolume(change)) enqueue(judgeVolume(change.object), `volume ${change.object.metadata.name}`);
    },
  });
  const views = [classView, claimView, volumeView];

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
    versionOf(id) {
      const { resource, namespace, name } = parseObjectId(id);
      const view = resource === classes.plural ? classView : resource === claims.plural ? claimView : undefined;
      if (view?.hasSynced !== true) return undefined;
      return view.get(namespace === '' ? name : `${namespace}/${name}`)?.metadata.resourceVersion ?? '';
    },
    async stop() {
      await Promise.all(views.map((view) => view.stop()));
    },
  };
}

function* keyIn(triage: Triage): Generator<JobKey> {
  if (triage.kind === 'job') yield triage.key;
}
