import { ALLOW_VOLUME_MODE_CHANGE, SNAPSHOT_SOURCE_PROTECTION } from '../kube/keys.ts';
import type { Claim, Snapshot, SnapshotContent } from '../kube/objects.ts';
import { snapshotContents, snapshots } from '../kube/resources.ts';
import { quote } from '../rules/quote.ts';
import {
  alsoWaitFor,
  type ObjectApi,
  read,
  RefusedError,
  refuseUntilChanged,
  rewordRefusal,
} from '../rules/rule.ts';
import { parseBool } from '../runtime/flags.ts';
import { type ContentInput, type ContentSource, parseSourceBytes } from './data-source.ts';

/** The snapshot from which a claim is restored. This file checks the snapshot and its content; its
 * messages become texts of events. data-source.ts checks what clones and restores share (grants,
 * sizes), driver-facts.ts the driver's capability. Checks and messages are upstream's, in
 * upstream's order: external-provisioner pkg/controller/controller.go getSnapshotSource.
 * @throws RefusedError that waits for the snapshot or its content */
export async function snapshotSource(api: ObjectApi, input: ContentInput): Promise<ContentSource> {
  const { name, namespace } = input.source;
  const prefix = `error getting snapshot ${name} from api server`;
  const snapshot = await read<Snapshot>(api, snapshots, { namespace, name }, prefix);
  checkNotDeleted(snapshot);
  return alsoWaitFor(snapshots, snapshot, checkContent(api, snapshot, input));
}

async function checkContent(
  api: ObjectApi,
  snapshot: Snapshot,
  input: ContentInput,
): Promise<ContentSource> {
  const { name } = snapshot.metadata;
  const content = await readContent(api, snapshot);
  checkIsBoundTo(snapshot, content);
  if (content.spec.driver !== input.cls.provisioner) {
    const { name: className } = input.cls.metadata;
    throw refuse(
      snapshot,
      `${describe(content, snapshot)} is not handled by CSI driver of StorageClass ${className}`,
    );
  }
  if (snapshot.status?.readyToUse !== true) throw refuse(snapshot, `snapshot ${name} is not Ready`);
  const snapshotId = content.status?.snapshotHandle ?? '';
  // An empty handle counts as missing: a lax driver would create an empty volume for it.
  if (snapshotId === '')
    throw refuseForContent(content, `snapshot handle ${name} is not available`);
  checkSize(snapshot, input);
  if (input.preventVolumeModeConversion) checkMode(content, input.claim);
  return {
    request: { type: { case: 'snapshot', value: { snapshotId } } },
    resource: snapshots,
    object: snapshot,
    finalizer: SNAPSHOT_SOURCE_PROTECTION,
  };
}

function refuse(snapshot: Snapshot, message: string): RefusedError {
  return refuseUntilChanged(snapshots, snapshot, message);
}

function refuseForContent(content: SnapshotContent, message: string): RefusedError {
  return refuseUntilChanged(snapshotContents, content, message);
}

/** A snapshot that is being deleted can be used while it has our finalizer. A restore, this one or
 * another, added the finalizer; sutler removes it after that restore has ended. */
function checkNotDeleted(snapshot: Snapshot): void {
  const { name, deletionTimestamp, finalizers = [] } = snapshot.metadata;
  if (deletionTimestamp === undefined || finalizers.includes(SNAPSHOT_SOURCE_PROTECTION)) return;
  throw refuse(snapshot, `snapshot ${name} is being deleted`);
}

async function readContent(api: ObjectApi, snapshot: Snapshot): Promise<SnapshotContent> {
  const { name } = snapshot.metadata;
  const contentName = snapshot.status?.boundVolumeSnapshotContentName ?? '';
  if (contentName === '') throw refuse(snapshot, `snapshot ${name} not bound`);
  const reading = read<SnapshotContent>(api, snapshotContents, { name: contentName });
  const message = `error getting snapshotcontent ${contentName} for snapshot ${name}`;
  return rewordRefusal(reading, () => message);
}

function checkIsBoundTo(snapshot: Snapshot, content: SnapshotContent): void {
  const ref = content.spec.volumeSnapshotRef;
  const { uid, namespace, name } = snapshot.metadata;
  if (ref.uid === uid && ref.namespace === namespace && ref.name === name) return;
  const which = describe(content, snapshot);
  throw refuseForContent(content, `${which} is bound to a different snapshot`);
}

function describe(content: SnapshotContent, snapshot: Snapshot): string {
  return `snapshotcontent ${content.metadata.name} for snapshot ${snapshot.metadata.name}`;
}

/** A larger volume is accepted: the driver grows it. */
function checkSize(snapshot: Snapshot, { claim, requestedBytes }: ContentInput): void {
  const text = snapshot.status?.restoreSize;
  if (text === undefined) return;
  const { name } = snapshot.metadata;
  if (claim.spec.resources?.requests?.storage === undefined)
    throw new RefusedError(
      `error getting capacity for PVC ${claim.metadata.name} when creating snapshot ${name}`,
    );
  const restoreBytes = parseSourceBytes(snapshots, snapshot, 'status.restoreSize', text);
  if (requestedBytes >= restoreBytes) return;
  throw refuse(
    snapshot,
    `requested volume size ${requestedBytes} is less than the size ${restoreBytes} ` +
      `for the source snapshot ${name}`,
  );
}

/** A user who wrote raw blocks could attack the node's kernel once they are mounted as a file
 * system, so an administrator has to allow the change of mode by an annotation. */
function checkMode(content: SnapshotContent, claim: Claim): void {
  const { sourceVolumeMode } = content.spec;
  const { volumeMode } = claim.spec;
  if (sourceVolumeMode === undefined || volumeMode === undefined || sourceVolumeMode === volumeMode)
    return;
  const allowed = content.metadata.annotations?.[ALLOW_VOLUME_MODE_CHANGE];
  if (allowed !== undefined && parseBool(allowed) === true) return;
  const { namespace, name } = claim.metadata;
  throw refuseForContent(
    content,
    `requested volume ${namespace}/${name} modifies the mode of the source volume but ` +
      `does not have permission to do so. ${whyNotAllowed(content, allowed)}`,
  );
}

function whyNotAllowed(content: SnapshotContent, allowed: string | undefined): string {
  const { name } = content.metadata;
  if (allowed === undefined)
    return `${ALLOW_VOLUME_MODE_CHANGE} annotation is not present on snapshotcontent ${name}`;
  if (parseBool(allowed) === false)
    return `${ALLOW_VOLUME_MODE_CHANGE} is set to false on snapshotcontent ${name}`;
  return (
    `failed to convert ${ALLOW_VOLUME_MODE_CHANGE} annotation value to boolean with error: ` +
    `strconv.ParseBool: parsing ${quote(allowed)}: invalid syntax`
  );
}
