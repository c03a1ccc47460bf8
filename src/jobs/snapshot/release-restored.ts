import { SNAPSHOT_SOURCE_PROTECTION as finalizer } from '../../kube/keys.ts';
import { isForbidden, isNotFound } from '../../kube/kube-error.ts';
import type { Snapshot } from '../../kube/objects.ts';
import { snapshots } from '../../kube/resources.ts';
import type { TemplateSource } from '../../volumes/persistent-volume.ts';
import { removeFinalizer } from '../finalizers.ts';
import type { ProcessorPorts } from '../ports.ts';

/** Removes our finalizer from the snapshot that a volume was restored from. Other sources are
 * ignored. After a failure the sweep (src/ingest/snapshot-sweep.ts) removes it later. */
export async function releaseRestoredSnapshot(
  ports: Pick<ProcessorPorts, 'kube' | 'log'>,
  source: TemplateSource | undefined,
): Promise<void> {
  if (source?.isReleased !== true) return;
  const { namespace, name } = source;
  try {
    const snapshot = await ports.kube.get<Snapshot>(snapshots, { namespace, name });
    if (snapshot?.metadata.uid === source.uid)
      await removeFinalizer(ports, { resource: snapshots, object: snapshot, finalizer });
  } catch (error) {
    if (isNotFound(error) || isForbidden(error)) return;
    ports.log.warn(
      { snapshot: `${namespace}/${name}`, err: error },
      'the snapshot keeps our finalizer until the next sweep',
    );
  }
}
