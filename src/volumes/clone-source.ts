import { CLONE_PROTECTION } from '../kube/keys.ts';
import type { Claim, Class, Volume, VolumeMode } from '../kube/objects.ts';
import { claims, volumes } from '../kube/resources.ts';
import {
  alsoWaitFor,
  notFound,
  type ObjectApi,
  read,
  RefusedError,
  refuseUntilChanged,
  rewordRefusal,
} from '../rules/rule.ts';
import { type ContentInput, type ContentSource, parseSourceBytes } from './data-source.ts';

/** The volume from which a claim is cloned. The classes of both claims may differ. This file checks
 * the source claim and its volume; its messages become texts of events. data-source.ts checks what
 * clones and restores share (grants, sizes), driver-facts.ts the driver's capability.
 * Checks and messages are upstream's, in upstream's order:
 * external-provisioner pkg/controller/controller.go getPVCSource.
 * @throws RefusedError that waits for the source claim or its volume */
export async function cloneSource(api: ObjectApi, input: ContentInput): Promise<ContentSource> {
  const { claim, cls } = input;
  const source = await readSourceClaim(api, input);
  const { name } = source.metadata;
  checkIsBound(source);
  if (source.spec.storageClassName === undefined)
    throw refuse(source, `the source PVC (${name}) storageclass cannot be empty`);
  if (claim.spec.storageClassName === undefined)
    throw new RefusedError(
      `the requested PVC (${claim.metadata.name}) storageclass cannot be empty`,
    );
  checkSize(source, input.requestedBytes);
  const volumeName = source.spec.volumeName ?? '';
  if (volumeName === '') throw refuse(source, `volume name is empty in source PVC ${name}`);
  // As in upstream, the user's message does not give the reason; the error's cause does.
  const reading = alsoWaitFor(claims, source, readSourceVolume(api, volumeName, source, cls));
  const volume = await rewordRefusal(reading, () => 'claim in dataSource not bound or invalid');
  checkMode(source, volume.mode, claim);
  return {
    request: { type: { case: 'volume', value: { volumeId: volume.handle } } },
    resource: claims,
    object: source,
    finalizer: CLONE_PROTECTION,
  };
}

function refuse(source: Claim, message: string): RefusedError {
  return refuseUntilChanged(claims, source, message);
}

function readSourceClaim(api: ObjectApi, { source, claim }: ContentInput): Promise<Claim> {
  const { name, namespace } = source;
  // As in upstream, the message has the claim's namespace even if the source is in another one, and
  // the kind in the singular.
  const where = `(namespace "${claim.metadata.namespace}")`;
  const prefix = `error getting PVC ${name} ${where} from api server`;
  const reading = read<Claim>(api, claims, { namespace, name }, prefix);
  return rewordRefusal(reading, (message) =>
    message.replace(notFound(claims, name), `persistentvolumeclaim "${name}" not found`),
  );
}

function checkIsBound(source: Claim): void {
  const { name, deletionTimestamp } = source.metadata;
  const phase = source.status?.phase;
  if (phase !== 'Bound') {
    const got = phase ?? 'no phase';
    throw refuse(source, `the PVC DataSource ${name} must have a status of Bound.  Got ${got}`);
  }
  if (deletionTimestamp !== undefined)
    throw refuse(source, `the PVC DataSource ${name} is currently being deleted`);
}

/** Compares with the size that the source claim requested, not with the size of its volume. */
function checkSize(source: Claim, requestedBytes: bigint): void {
  const text = source.spec.resources?.requests?.storage ?? '0';
  const sourceBytes = parseSourceBytes(claims, source, 'spec.resources.requests.storage', text);
  if (requestedBytes >= sourceBytes) return;
  throw refuse(
    source,
    'error, new PVC request must be greater than or equal in size to the specified ' +
      `PVC data source, requested ${requestedBytes} but source is ${sourceBytes}`,
  );
}

async function readSourceVolume(
  api: ObjectApi,
  volumeName: string,
  source: Claim,
  cls: Class,
): Promise<{ readonly handle: string; readonly mode: VolumeMode | undefined }> {
  const volume = await read<Volume>(api, volumes, { name: volumeName });
  const { csi, claimRef, volumeMode } = volume.spec;
  const refuseVolume = (why: string): RefusedError =>
    refuseUntilChanged(volumes, volume, `volume ${volumeName} ${why}`);
  if (csi === undefined) throw refuseVolume('is no CSI volume');
  if (csi.driver !== cls.provisioner)
    throw refuseVolume(`belongs to driver ${csi.driver}, the class to ${cls.provisioner}`);
  const { uid, namespace, name } = source.metadata;
  if (claimRef?.uid !== uid || claimRef.namespace !== namespace || claimRef.name !== name)
    throw refuseVolume('is bound to another claim');
  if (volume.status?.phase !== 'Bound')
    throw refuseVolume(`is ${volume.status?.phase ?? 'without phase'}`);
  return { handle: csi.volumeHandle, mode: volumeMode };
}

/** A missing mode means Filesystem, for both claims. */
function checkMode(source: Claim, mode: VolumeMode = 'Filesystem', claim: Claim): void {
  const wanted = claim.spec.volumeMode ?? 'Filesystem';
  if (mode === wanted) return;
  throw refuse(
    source,
    'the source PVC and destination PVCs must have the same volume mode for cloning.  ' +
      `Source is ${mode}, but new PVC requested ${wanted}`,
  );
}
