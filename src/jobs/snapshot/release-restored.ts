import { isForbidden, isNotFound } from '../../kube/kube-error.ts';
import type { Snapshot } from '../../kube/objects.ts';
import { snapshots } from '../../kube/resources.ts';
import type { SkeletonSource } from '../../volumes/persistent-volume.ts';
import type { ProcessorPorts } from '../ports.ts';
import { hasSnapshotFinalizer, removeSnapshotFinalizer } from './snapshot-finalizer.ts';

/** Takes our finalizer off the snapshot that a volume was restored from. The volume is there
 * whatever comes of it, and what is left the sweep takes off. */
export async function releaseRestoredSnapshot(
  ports: Pick<ProcessorPorts, 'kube' | 'log'>,
  source: SkeletonSource,
): Promise<void> {
  const { namespace, name } = source;
  try {
    const snapshot = await ports.kube.get<Snapshot>(snapshots, { namespace, name });
    if (snapshot?.metadata.uid === source.uid && hasSnapshotFinalizer(snapshot))
      await removeSnapshotFinalizer(ports, snapshot);
  } catch (error) {
    if (isNotFound(error) || isForbidden(error)) return;
    ports.log.warn(
      { snapshot: `${namespace}/${name}`, err: error },
      'the snapshot keeps our finalizer until the next sweep',
    );
  }
}
