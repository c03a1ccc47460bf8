import { CLAIM_FINALIZER, VOLUME_FINALIZER } from '../kube/keys.ts';
import {
  isConflict,
  isForbidden,
  isInvalid,
  isNotFound,
  isOutage,
  KubeError,
} from '../kube/kube-error.ts';
import type { Claim, KubeObject, Volume } from '../kube/objects.ts';
import { claims, type Resource, volumes } from '../kube/resources.ts';
import type { Outcome } from '../queue/outcome.ts';
import type { VolumeRecords } from '../records/volume-record.ts';
import * as lists from '../volumes/finalizer-patches.ts';
import type { Kube } from './dependencies.ts';

/* Adds finalizers of ours to objects and removes them. Every patch names the object's UID: the API
 * server refuses it for another object that has the same name by now. */

/** One finalizer of one object. */
interface FinalizerTarget<T extends KubeObject> {
  readonly resource: Resource;
  /** As it was read. */
  readonly object: T;
  readonly finalizer: string;
  /** Whether the API server should refuse the patch if the object changed since it was read. It
   * always does for custom resources. */
  readonly mustBeUnchanged?: boolean;
}

/** Adds a finalizer at the end of the list. Sends nothing if the object has it already.
 * @returns the object as it is then
 * @throws KubeError: NotFound; Conflict or Invalid for another object of that name, for one that
 *   changed, and for one that is being deleted, since that takes no new finalizer */
export function addFinalizer<T extends KubeObject>(
  kube: Kube,
  target: FinalizerTarget<T>,
): Promise<T> {
  return patch(kube, target, lists.addFinalizer);
}

/** Removes a finalizer and no other. Sends nothing if the object does not have it.
 * @returns the object as it is then
 * @throws KubeError as addFinalizer */
export function removeFinalizer<T extends KubeObject>(
  kube: Kube,
  target: FinalizerTarget<T>,
): Promise<T> {
  return patch(kube, target, lists.removeFinalizer);
}

async function patch<T extends KubeObject>(
  kube: Kube,
  { resource, object, finalizer, mustBeUnchanged = false }: FinalizerTarget<T>,
  changeList: typeof lists.addFinalizer,
): Promise<T> {
  const change = changeList(object.metadata, finalizer);
  if (change === undefined) return object;
  const { namespace, name, uid, resourceVersion } = object.metadata;
  const ref = namespace === undefined ? { name } : { namespace, name };
  // Custom resources have no strategic merge patch, so the whole list is sent, on condition that
  // the object is unchanged. Of the built-in kinds only core ones (group '') get our finalizers.
  const isCustom = resource.group !== '';
  const metadata = {
    uid,
    ...(isCustom || mustBeUnchanged ? { resourceVersion } : {}),
    ...(isCustom ? { finalizers: change.list } : change.patch),
  };
  const type = isCustom ? 'merge' : 'strategic';
  return kube.patch<T>(resource, ref, { type, body: { metadata } });
}

/* The finalizer that a claim has with --claim-finalizer while its volume record is open. If Redis
 * loses the record, the claim still exists, and its next run finishes the volume. */

const OF_CLAIMS = { resource: claims, finalizer: CLAIM_FINALIZER };

/** Adds the finalizer, before the record is opened. Sends nothing if the claim is being deleted:
 * it takes no new finalizer, and upstream provisions it while other finalizers keep it.
 * @returns the claim as it is then; undefined if it is gone, replaced, or being deleted since it
 *   was read
 * @throws KubeError for any other refusal */
export async function addClaimFinalizer(kube: Kube, claim: Claim): Promise<Claim | undefined> {
  if (claim.metadata.deletionTimestamp !== undefined) return claim;
  return changeClaim(kube, claim, lists.addFinalizer).catch(ignoreGone);
}

/** Removes the finalizer unless the record is open. Sends nothing for a claim without it.
 * @throws KubeError, RecordsUnavailable */
export async function removeClaimFinalizer(
  kube: Kube,
  records: Pick<VolumeRecords, 'isOpen'>,
  claim: Claim,
): Promise<void> {
  if (lists.hasFinalizer(claim, CLAIM_FINALIZER) && !(await records.isOpen(claim.metadata.uid)))
    await changeClaim(kube, claim, lists.removeFinalizer).catch(ignoreGone);
}

/** How often an update is tried that other writers of the claim come before. */
const MAX_UPDATES = 10;

/** Changes the list by a patch. Where the role allows no patch of claims, as that of
 * external-provisioner does not, by an update of the claim as it is then.
 * @returns undefined if the claim is gone or replaced */
async function changeClaim(
  kube: Kube,
  claim: Claim,
  changeList: typeof lists.addFinalizer,
): Promise<Claim | undefined> {
  try {
    return await patch(kube, { ...OF_CLAIMS, object: claim }, changeList);
  } catch (error) {
    if (!isForbidden(error)) throw error;
  }
  const { namespace = '', name, uid } = claim.metadata;
  for (let tries = 1; ; tries += 1) {
    const now = await kube.get<Claim>(claims, { namespace, name });
    if (now?.metadata.uid !== uid) return undefined;
    const change = changeList(now.metadata, CLAIM_FINALIZER);
    if (change === undefined) return now;
    const changed = { ...now, metadata: { ...now.metadata, finalizers: change.list } };
    try {
      return await kube.update<Claim>(claims, { namespace, name }, changed);
    } catch (error) {
      if (!isConflict(error) || tries === MAX_UPDATES) throw error;
    }
  }
}

/** A claim that is gone or replaced needs no finalizer added or removed. */
function ignoreGone(error: unknown): undefined {
  if (!isNotFound(error) && !isConflict(error) && !isInvalid(error)) throw error;
}

/** Adds our finalizer to a PV, or removes it; it keeps the PV until the driver has deleted the
 * volume. A failure gets no event: users can do nothing about it. */
export async function setVolumeFinalizer(
  kube: Kube,
  volume: Volume,
  isWanted: boolean,
): Promise<Outcome> {
  const target = { resource: volumes, object: volume, finalizer: VOLUME_FINALIZER };
  try {
    await (isWanted ? addFinalizer(kube, target) : removeFinalizer(kube, target));
    return { kind: 'done', note: `the PV ${isWanted ? 'has' : 'does not have'} our finalizer` };
  } catch (error) {
    if (isNotFound(error)) return { kind: 'done', note: 'the volume is gone' };
    if (!(error instanceof KubeError)) throw error;
    const { name, finalizers = [] } = volume.metadata;
    const others = finalizers.filter((other) => other !== VOLUME_FINALIZER);
    const list = isWanted ? [...others, VOLUME_FINALIZER] : others;
    const change = `failed to modify finalizers to [${list.join(' ')}] on volume ${name}`;
    const reason = `${change} err: ${error.message}`;
    return { kind: isOutage(error) ? 'later' : 'retry', reason };
  }
}
