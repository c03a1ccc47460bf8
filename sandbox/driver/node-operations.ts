import { lstatSync, readlinkSync, symlinkSync, unlinkSync } from 'node:fs';
import type {
  NodePublishVolumeRequest,
  NodeUnpublishVolumeRequest,
} from '#src/csi/generated/csi_pb.ts';
import { Code } from '#src/csi/status.ts';
import { messageOf } from '#src/runtime/error-message.ts';
import { pathInside } from './contents.ts';
import { DriverStatus } from './driver-status.ts';
import type { VolumeOperations } from './volume-operations.ts';
import type { VolumeStore } from './volume-store.ts';

/** Creates a symbolic link to the volume in place of a mount: it needs no privileges, but it can't
 * be read-only.
 * @throws DriverStatus */
export function publish(
  { volumeId, targetPath, volumeCapability }: NodePublishVolumeRequest,
  volumes: VolumeOperations,
  store: VolumeStore,
): void {
  if (volumeId === '') throw new DriverStatus(Code.InvalidArgument, 'no volume id given');
  if (targetPath === '') throw new DriverStatus(Code.InvalidArgument, 'no target path given');
  if (volumeCapability === undefined)
    throw new DriverStatus(Code.InvalidArgument, 'no volume capability given');
  const { accessType } = volumes.get(volumeId);
  if (!volumes.supports(volumeId, [volumeCapability]))
    throw new DriverStatus(Code.InvalidArgument, `volume ${volumeId} is a ${accessType} volume`);
  const path = pathInside(store.directory(volumeId), accessType);
  if (linkAt(targetPath) === path) return;
  try {
    symlinkSync(path, targetPath);
  } catch (cause) {
    throw new DriverStatus(Code.Internal, `${targetPath} can't be created: ${messageOf(cause)}`);
  }
}

/** Removes the link. Succeeds if the link or the volume does not exist.
 * @throws DriverStatus */
export function unpublish(
  { volumeId, targetPath }: NodeUnpublishVolumeRequest,
  store: VolumeStore,
): void {
  if (volumeId === '') throw new DriverStatus(Code.InvalidArgument, 'no volume id given');
  if (targetPath === '') throw new DriverStatus(Code.InvalidArgument, 'no target path given');
  const directory = store.directory(volumeId);
  const link = linkAt(targetPath);
  if (link === pathInside(directory, 'mount') || link === pathInside(directory, 'block'))
    unlinkSync(targetPath);
}

/** The target of a symbolic link; undefined where there is none. */
function linkAt(path: string): string | undefined {
  const entry = lstatSync(path, { throwIfNoEntry: false });
  return entry?.isSymbolicLink() === true ? readlinkSync(path) : undefined;
}
