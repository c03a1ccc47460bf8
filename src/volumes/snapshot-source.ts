import { ALLOW_VOLUME_MODE_CHANGE, SNAPSHOT_SOURCE_PROTECTION } from '../kube/keys.ts';
import type { Claim, Snapshot, SnapshotContent } from '../kube/objects.ts';
import { snapshotContents, snapshots } from '../kube/resources.ts';
import { parseBool } from '../runtime/parse-bool.ts';
import { ofSource, reworded, statedBytes } from './data-source.ts';
import type { ContentInput, ContentSource } from './data-source.ts';
import { RefusedError } from './provisioning-options.ts';
import { quoted } from './quoted.ts';
import { orUntilChanged, read, untilChanged } from './rule.ts';
import type { Rule } from './rule.ts';

/** The snapshot that a claim is restored from, if it can be; the checks come in upstream's order
 * (spec 02 §7.6).
 * @throws RefusedError that waits for the snapshot or its content, whichever is in the way */
export function snapshotSource(input: ContentInput): Rule<ContentSource> {
  return ofSource(input.source, restoredFrom(input));
}

function* restoredFrom(input: ContentInput): Rule<ContentSource> {
  const { name, namespace } = input.source;
  const snapshot = yield* read<Snapshot>(
    snapshots,
    { namespace, name },
    `error getting snapshot ${name} from api server`,
  );
  checkNotDeleted(snapshot);
  return yield* orUntilChanged(snapshots, snapshot, restoredWith(snapshot, input));
}

function* restoredWith(snapshot: Snapshot, input: ContentInput): Rule<ContentSource> {
  const { name } = snapshot.metadata;
  const content = yield* contentOf(snapshot);
  checkIsOf(content, snapshot);
  if (content.spec.driver !== input.cls.provisioner) {
    const { metadata } = input.cls;
    throw untilChanged(
      snapshots,
      snapshot,
      `${pair(content, snapshot)} is not handled by CSI driver of StorageClass ${metadata.name}`,
    );
  }
  if (snapshot.status?.readyToUse !== true)
    throw untilChanged(snapshots, snapshot, `snapshot ${name} is not Ready`);
  const snapshotId = content.status?.snapshotHandle ?? '';
  // An empty handle is none: a lax driver would make an empty volume of it.
  if (snapshotId === '')
    throw untilChanged(snapshotContents, content, `snapshot handle ${name} is not available`);
  checkSize(snapshot, input);
  if (input.preventVolumeModeConversion) checkMode(content, input.claim);
  return {
    request: { type: { case: 'snapshot', value: { snapshotId } } },
    resource: snapshots,
    object: snapshot,
    finalizer: SNAPSHOT_SOURCE_PROTECTION,
  };
}

/** A snapshot with our finalizer is one that this restore, or another, has begun to read; it stays
 * until that is done. */
function checkNotDeleted(snapshot: Snapshot): void {
  const { name, deletionTimestamp, finalizers = [] } = snapshot.metadata;
  if (deletionTimestamp === undefined || finalizers.includes(SNAPSHOT_SOURCE_PROTECTION)) return;
  throw untilChanged(snapshots, snapshot, `snapshot ${name} is being deleted`);
}

function* contentOf(snapshot: Snapshot): Rule<SnapshotContent> {
  const { name } = snapshot.metadata;
  const contentName = snapshot.status?.boundVolumeSnapshotContentName ?? '';
  if (contentName === '') throw untilChanged(snapshots, snapshot, `snapshot ${name} not bound`);
  const reading = read<SnapshotContent>(snapshotContents, { name: contentName });
  return yield* reworded(
    reading,
    () => `error getting snapshotcontent ${contentName} for snapshot ${name}`,
  );
}

function checkIsOf(content: SnapshotContent, snapshot: Snapshot): void {
  const ref = content.spec.volumeSnapshotRef;
  const { uid, namespace, name } = snapshot.metadata;
  if (ref.uid === uid && ref.namespace === namespace && ref.name === name) return;
  throw untilChanged(
    snapshotContents,
    content,
    `${pair(content, snapshot)} is bound to a different snapshot`,
  );
}

function pair(content: SnapshotContent, snapshot: Snapshot): string {
  return `snapshotcontent ${content.metadata.name} for snapshot ${snapshot.metadata.name}`;
}

/** A larger volume is fine: the driver grows it. */
function checkSize(snapshot: Snapshot, { claim, requestedBytes }: ContentInput): void {
  const text = snapshot.status?.restoreSize;
  if (text === undefined) return;
  const { name } = snapshot.metadata;
  if (claim.spec.resources?.requests?.storage === undefined)
    throw new RefusedError(
      `error getting capacity for PVC ${claim.metadata.name} when creating snapshot ${name}`,
    );
  const restoreBytes = statedBytes(snapshots, snapshot, { field: 'status.restoreSize', text });
  if (requestedBytes >= restoreBytes) return;
  const message = `requested volume size ${requestedBytes} is less than the size ${restoreBytes} for the source snapshot ${name}`;
  throw untilChanged(snapshots, snapshot, message);
}

/** Bytes that were written raw and are then mounted can attack the node's kernel, so an
 * administrator has to have allowed it. */
function checkMode(content: SnapshotContent, claim: Claim): void {
  const { sourceVolumeMode } = content.spec;
  const { volumeMode } = claim.spec;
  if (sourceVolumeMode === undefined || volumeMode === undefined || sourceVolumeMode === volumeMode)
    return;
  const allowed = content.metadata.annotations?.[ALLOW_VOLUME_MODE_CHANGE];
  if (allowed !== undefined && parseBool(allowed) === true) return;
  const { namespace, name } = claim.metadata;
  const begin = `requested volume ${namespace}/${name} modifies the mode of the source volume but does not have permission to do so.`;
  throw untilChanged(snapshotContents, content, `${begin} ${whyNotAllowed(content, allowed)}`);
}

function whyNotAllowed(content: SnapshotContent, allowed: string | undefined): string {
  const { name } = content.metadata;
  if (allowed === undefined)
    return `${ALLOW_VOLUME_MODE_CHANGE} annotation is not present on snapshotcontent ${name}`;
  if (parseBool(allowed) === false)
    return `${ALLOW_VOLUME_MODE_CHANGE} is set to false on snapshotcontent ${name}`;
  const error = `strconv.ParseBool: parsing ${quoted(allowed)}: invalid syntax`;
  return `failed to convert ${ALLOW_VOLUME_MODE_CHANGE} annotation value to boolean with error: ${error}`;
}
