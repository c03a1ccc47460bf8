import { SNAPSHOT_SOURCE_PROTECTION } from '../../kube/keys.ts';
import type { Snapshot } from '../../kube/objects.ts';
import { snapshots } from '../../kube/resources.ts';
import type { ProcessorPorts } from '../ports.ts';

/** Whether our finalizer is on a snapshot. */
export function hasSnapshotFinalizer({ metadata }: Snapshot): boolean {
  return metadata.finalizers?.includes(SNAPSHOT_SOURCE_PROTECTION) === true;
}

/** Takes our finalizer off a snapshot, and no other (spec 04 E).
 * @returns the snapshot as it is then
 * @throws KubeError, a conflict where it has changed since it was read */
export function removeSnapshotFinalizer(
  ports: Pick<ProcessorPorts, 'kube'>,
  snapshot: Snapshot,
): Promise<Snapshot> {
  return write(
    ports,
    snapshot,
    (snapshot.metadata.finalizers ?? []).filter(
      (finalizer) => finalizer !== SNAPSHOT_SOURCE_PROTECTION,
    ),
  );
}

/** Puts our finalizer on a snapshot that is without.
 * @throws KubeError as above */
export async function addSnapshotFinalizer(
  ports: Pick<ProcessorPorts, 'kube'>,
  snapshot: Snapshot,
): Promise<void> {
  await write(ports, snapshot, [
    ...(snapshot.metadata.finalizers ?? []),
    SNAPSHOT_SOURCE_PROTECTION,
  ]);
}

/** A custom resource knows no strategic merge, so the list is sent whole: it counts only as long as
 * the snapshot is as it was read. */
function write(
  { kube }: Pick<ProcessorPorts, 'kube'>,
  { metadata }: Snapshot,
  finalizers: readonly string[],
): Promise<Snapshot> {
  const { namespace = '', name, uid, resourceVersion } = metadata;
  return kube.patch<Snapshot>(
    snapshots,
    { namespace, name },
    { type: 'merge', body: { metadata: { uid, resourceVersion, finalizers } } },
  );
}
