import { CLONE_PROTECTION } from '../kube/keys.ts';
import type { Claim, DataSource } from '../kube/objects.ts';
import { keyOf, snapshots } from '../kube/resources.ts';

/* Who still reads from a snapshot or from another claim: what decides when our finalizers on
 * sources come off (spec 04 D and E). */

/** Whether a claim still waits for its volume. The API server says so at once; one that says
 * nothing was never looked at. */
export function isPending({ status }: Claim): boolean {
  return status?.phase === undefined || status.phase === 'Pending';
}

/** The snapshot that a claim is restored from, as "namespace/name"; undefined where it has another
 * source, or none. */
export function restoredSnapshot({ metadata, spec }: Claim): string | undefined {
  const { dataSource, dataSourceRef } = spec;
  if (isSnapshot(dataSource))
    return keyOf({ namespace: metadata.namespace, name: dataSource.name });
  if (!isSnapshot(dataSourceRef)) return undefined;
  const { namespace, name } = dataSourceRef;
  return keyOf({ namespace: (namespace ?? '') === '' ? metadata.namespace : namespace, name });
}

/** Whether a claim waits to be cloned from the claim of that name in its own namespace. Only
 * `dataSource` counts, whatever its group; clones across namespaces hold nothing, as upstream has
 * it. */
export function isCloning({ spec, status }: Claim, source: string): boolean {
  const { dataSource } = spec;
  return (
    status?.phase === 'Pending' &&
    dataSource?.kind === 'PersistentVolumeClaim' &&
    dataSource.name === source
  );
}

/** Whether a claim is being deleted and our finalizer for sources of clones still holds it. */
export function isHeldSource({ metadata }: Pick<Claim, 'metadata'>): boolean {
  return (
    metadata.deletionTimestamp !== undefined &&
    metadata.finalizers?.includes(CLONE_PROTECTION) === true
  );
}

function isSnapshot(source: DataSource | undefined): source is DataSource {
  // The API server may write null for what is not set.
  return (
    source?.kind === snapshots.kind && (source.apiGroup ?? snapshots.group) === snapshots.group
  );
}
