import { listAll } from '../kube/client.ts';
import { removeFinalizer } from '../kube/finalizers.ts';
import { CLONE_PROTECTION, SNAPSHOT_SOURCE_PROTECTION } from '../kube/keys.ts';
import { isConflict, isForbidden, isNotFound } from '../kube/kube-error.ts';
import { sourceId } from '../journal/list-journal.ts';
import type { Claim, Snapshot, Volume } from '../kube/objects.ts';
import { claims, snapshots, volumes } from '../kube/resources.ts';
import type { Outcome } from '../queue/outcome.ts';
import type { Logger } from '../runtime/log.ts';
import { isCloning, isTerminatingCloneSource } from '../volumes/data-source.ts';
import { type DriverFacts, isKnownAs } from '../volumes/driver-facts.ts';
import { provisionerOf } from '../volumes/eligibility.ts';
import { identityOf } from '../volumes/handles.ts';
import type { PlannedRequest } from '../volumes/persistent-volume.ts';
import type { Dependencies, Kube } from './dependencies.ts';

/* Removes our finalizers from what volumes were created from: the run of a restored claim from its
 * snapshot, the run of a source claim from that claim. */

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
      await removeFinalizer(kube, {
        resource: snapshots,
        object,
        finalizer: SNAPSHOT_SOURCE_PROTECTION,
      });
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
  { kube, facts, openSources }: Dependencies,
  claim: Claim,
): Promise<Outcome | undefined> {
  const canClone = facts().controllerCapabilities.has('CLONE_VOLUME');
  if (!canClone || !isTerminatingCloneSource(claim)) return undefined;
  if (!(await isOfDriver(kube, claim, facts()))) return undefined;
  const { namespace = '', name } = claim.metadata;
  // Claims before the journal: an entry written in between has its claim in the list.
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
    const reason = 'a volume is being created from this claim’s, for a claim that is gone';
    return { kind: 'running', reason };
  }
  const target = { resource: claims, object: claim, finalizer: CLONE_PROTECTION };
  try {
    await removeFinalizer(kube, target);
    return { kind: 'done', note: 'all clones are created: our finalizer is removed' };
  } catch (error) {
    if (isNotFound(error)) return { kind: 'done', note: 'the claim is gone' };
    if (!isConflict(error)) throw error;
    return { kind: 'later', reason: 'the claim has changed; the next run reads it again' };
  }
}

/** Whether a claim is this driver's. If it was bound by hand, only its PV names a driver. */
async function isOfDriver(kube: Kube, claim: Claim, driver: DriverFacts): Promise<boolean> {
  const provisioner = provisionerOf(claim);
  if (provisioner !== undefined) return isKnownAs(driver, provisioner);
  const { volumeName: name = '' } = claim.spec;
  const volume = name === '' ? undefined : await kube.get<Volume>(volumes, { name });
  return volume === undefined || identityOf(volume)?.driver === driver.name;
}

/** Lists the claims of a namespace until one matches.
 * @throws KubeError */
async function findClaim(
  kube: Kube,
  namespace: string,
  matches: (claim: Claim) => boolean,
): Promise<Claim | undefined> {
  for await (const claim of listAll<Claim>(kube, claims, { namespace }))
    if (matches(claim)) return claim;
  return undefined;
}
