import { SNAPSHOT_SOURCE_PROTECTION } from '../kube/keys.ts';
import type { Snapshot } from '../kube/objects.ts';
import { snapshots } from '../kube/resources.ts';
import type { ProcessorPorts } from './ports.ts';

/** Whether our finalizer is on a snapshot. */
export function isProtected({ metadata }: Snapshot): boolean {
  return metadata.finalizers?.includes(SNAPSHOT_SOURCE_PROTECTION) === true;
}

/** Takes our finalizer off a snapshot, and no other (spec 04 E). A custom resource knows no strategic merge, so the list is sent whole: it counts only as long as
 * the snapshot is as it was read.
 * @throws KubeError, a conflict where it has changed since */
export async function unprotect({ kube }: Pick<ProcessorPorts, 'kube'>, { metadata }: Snapshot): Promise<void> {
  const { namespace = '', name, uid, resourceVersion, finalizers = [] } = metadata;
  const others = finalizers.filter((finalizer) => finalizer !== SNAPSHOT_SOURCE_PROTECTION);
  await kube.patch(snapshots, { namespace, name }, { type: 'merge', body: { metadata: { uid, resourceVersion, finalizers: others } } });
}
