import { listAll } from '../kube/client.ts';
import { CLONE_PROTECTION, SNAPSHOT_SOURCE_PROTECTION } from '../kube/keys.ts';
import { isConflict, isForbidden, isNotFound, isOutage, KubeError } from '../kube/kube-error.ts';
import { type JournalPlace, listJournal } from '../journal/list-journal.ts';
import type { Claim, Snapshot, Volume } from '../kube/objects.ts';
import { claims, keyOf, type Resource, snapshots, volumes } from '../kube/resources.ts';
import type { JobKey } from '../queue/contract.ts';
import type { Outcome } from '../queue/outcome.ts';
import type { Logger } from '../runtime/log.ts';
import {
  isCloning,
  isPending,
  isTerminatingCloneSource,
  restoredSnapshot,
} from '../volumes/data-source.ts';
import { type DriverFacts, isKnownAs } from '../volumes/driver-facts.ts';
import { provisionerOf } from '../volumes/eligibility.ts';
import { hasFinalizer } from '../volumes/finalizer-patches.ts';
import { identityOf } from '../volumes/handles.ts';
import type { PlannedRequest } from '../volumes/persistent-volume.ts';
import type { Dependencies, Kube } from './dependencies.ts';
import { addFinalizer, removeFinalizer } from './finalizers.ts';

/* Removes our finalizers from what volumes were created from: the claim's own run from the snapshot
 * that was restored, a run of the source claim from that claim, and a run of the snapshot's job
 * from a snapshot that nothing is restored from any more. */

const SNAPSHOT_FINALIZER = { resource: snapshots, finalizer: SNAPSHOT_SOURCE_PROTECTION };

/** Removes our finalizer from the snapshot that a volume was restored from. Other sources are
 * ignored. After a failure the sweep (src/ingest/snapshot-sweep.ts) removes it later. */
export async function releaseRestoredSnapshot(
  kube: Kube,
  log: Logger,
  source: PlannedRequest['source'],
): Promise<void> {
  if (source?.isReleased !== true) return;
  const { namespace, name } = source;
  try {
    const object = await kube.get<Snapshot>(snapshots, { namespace, name });
    if (object?.metadata.uid === source.uid)
      await removeFinalizer(kube, { ...SNAPSHOT_FINALIZER, object });
  } catch (error) {
    if (isNotFound(error) || isForbidden(error)) return;
    log.warn(
      { snapshot: `${namespace}/${name}`, err: error },
      'the snapshot keeps our finalizer until the next sweep',
    );
  }
}

/** Removes our finalizer from a claim that is being deleted and that clones were created from, once
 * no claim waits to be cloned from it and no volume is being created from it (external-provisioner
 * pkg/controller/clone_controller.go syncClaim).
 * @param claim as the run has read it
 * @returns undefined if the claim stays or lacks the finalizer, or if the driver does not clone
 * @throws KubeError, RedisUnavailable */
export async function releaseCloneSource(
  { cluster: { kube }, driver, openSources }: Dependencies,
  claim: Claim,
): Promise<Outcome | undefined> {
  const canClone = driver.facts().controllerCapabilities.has('CLONE_VOLUME');
  if (!canClone || !isTerminatingCloneSource(claim)) return undefined;
  if (!(await isOfDriver(kube, claim, driver.facts()))) return undefined;
  const { namespace = '', name } = claim.metadata;
  // Claims before the journal: a claim that is noted in between was still in the list.
  const clone = await findClaim(kube, namespace, (other) => isCloning(other, name));
  if (clone !== undefined) {
    const { name: cloneName, resourceVersion: seen } = clone.metadata;
    return {
      kind: 'parked',
      reason: `PVC '${cloneName}' is in 'Pending' state, cloning in progress`,
      until: [{ resource: claims.plural, namespace, name: cloneName, seen }],
    };
  }
  if ((await openSources()).has(sourceId(claims, { namespace, name }))) {
    const reason = 'a volume is being created from this claim’s; the claim of that volume is gone';
    return { kind: 'running', reason };
  }
  const target = { resource: claims, object: claim, finalizer: CLONE_PROTECTION };
  try {
    await removeFinalizer(kube, target);
    return { kind: 'done', note: 'all clones are created: our finalizer is removed' };
  } catch (error) {
    if (isNotFound(error)) return { kind: 'done', note: 'the claim is gone' };
    if (!isConflict(error)) throw error;
    return { kind: 'later', reason: 'the claim changed meanwhile; it is read again' };
  }
}

/** Whether a claim is this driver's. One that was bound by hand names none: its volume does. */
async function isOfDriver(kube: Kube, claim: Claim, driver: DriverFacts): Promise<boolean> {
  const provisioner = provisionerOf(claim);
  if (provisioner !== undefined) return isKnownAs(driver, provisioner);
  const { volumeName: name = '' } = claim.spec;
  const volume = name === '' ? undefined : await kube.get<Volume>(volumes, { name });
  return volume === undefined || identityOf(volume)?.driver === driver.name;
}

/** How the journal's sources are named. */
export function sourceId(
  { plural }: Pick<Resource, 'plural'>,
  { namespace = '', name }: { readonly namespace?: string; readonly name: string },
): string {
  return `${plural}/${namespace}/${name}`;
}

/** The snapshots and claims that claims in the journal are created from, which may be gone
 * themselves.
 * @throws KubeError */
export async function listOpenSources(
  kube: Kube,
  journal: JournalPlace,
): Promise<ReadonlySet<string>> {
  const entries = await listJournal(kube, journal);
  return new Set(
    entries.flatMap(({ claim: { metadata, spec } }) => {
      const {
        kind,
        name,
        namespace = metadata.namespace,
      } = {
        ...spec.dataSource,
        ...spec.dataSourceRef,
      };
      if (name === undefined) return [];
      const resource = kind === snapshots.kind ? snapshots : claims;
      return [sourceId(resource, { ...(namespace === undefined ? {} : { namespace }), name })];
    }),
  );
}

/** Refusals that need no warning: sutler may not write snapshots (403), or the snapshot is gone
 * (404) or changed (409). */
const EXPECTED: ReadonlySet<number> = new Set([403, 404, 409]);

/** One run of a snapshot's job: removes our finalizer if nothing is restored from the snapshot any
 * more (upstream's sweep with --snapshot-orphan-sweep-interval). What the API server refuses is
 * left to the next sweep (src/ingest/snapshot-sweep.ts).
 * @throws KubeError if the API server is down, RedisUnavailable if Redis is */
export async function reconcileSnapshot(deps: Dependencies, job: JobKey): Promise<Outcome> {
  try {
    return { kind: 'done', note: await releaseUnused(deps, job) };
  } catch (error) {
    if (!(error instanceof KubeError) || isOutage(error)) throw error;
    const level = EXPECTED.has(error.code) ? 'debug' : 'warn';
    deps.reports.log[level](
      { snapshot: keyOf(job), error: error.message },
      'the snapshot keeps our finalizer until the next sweep',
    );
    return { kind: 'done', note: `left to the next sweep: ${error.message}` };
  }
}

/** Removes our finalizer unless the snapshot is in use.
 * @returns what was done, or why nothing was */
async function releaseUnused(deps: Dependencies, job: JobKey): Promise<string> {
  const { kube } = deps.cluster;
  const ref = { namespace: job.namespace, name: job.name };
  const snapshot = await kube.get<Snapshot>(snapshots, ref);
  if (snapshot?.metadata.uid !== job.uid) return 'the snapshot is gone';
  if (!hasFinalizer(snapshot, SNAPSHOT_SOURCE_PROTECTION))
    return 'the snapshot does not have our finalizer';
  const use = await findUse(deps, job);
  if (use !== undefined) return use;
  const object = await removeFinalizer(kube, { ...SNAPSHOT_FINALIZER, object: snapshot });
  // A claim that came after findUse may have found the finalizer still there and rely on it.
  const lateUse = await findUse(deps, job);
  if (lateUse === undefined) return 'our finalizer is removed';
  await addFinalizer(kube, { ...SNAPSHOT_FINALIZER, object });
  return lateUse;
}

/** What still reads from a snapshot; undefined = nothing. */
async function findUse(
  { cluster, openSources, settings }: Dependencies,
  job: JobKey,
): Promise<string | undefined> {
  const { namespace } = job;
  const key = keyOf(job);
  // Claims before the journal: a claim that is noted in between was still in the list.
  const { gates } = settings.options;
  const where = gates.CrossNamespaceVolumeDataSource ? undefined : namespace;
  const isRestored = (claim: Claim) => isPending(claim) && restoredSnapshot(claim) === key;
  const restore = await findClaim(cluster.kube, where, isRestored);
  if (restore !== undefined) return `claim ${restore.metadata.name} is restored from it`;
  return (await openSources()).has(sourceId(snapshots, job))
    ? 'a volume is being created from it'
    : undefined;
}

/** Lists claims until one matches.
 * @param namespace undefined = all namespaces
 * @throws KubeError */
async function findClaim(
  kube: Kube,
  namespace: string | undefined,
  matches: (claim: Claim) => boolean,
): Promise<Claim | undefined> {
  for await (const claim of listAll<Claim>(kube, claims, { namespace }))
    if (matches(claim)) return claim;
  return undefined;
}
