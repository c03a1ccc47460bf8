import { CLONE_PROTECTION } from '../kube/keys.ts';
import type { Claim, DataSource } from '../kube/objects.ts';
import { keyOf, snapshots } from '../kube/resources.ts';
import { hasFinalizer } from './finalizer-patches.ts';

/* Which claims still read from a snapshot or from another claim. That decides when our finalizers
 * on sources are removed. Upstream: external-provisioner pkg/controller/clone_controller.go and
 * pkg/controller/snapshot_finalizer_controller.go. */

/** Whether a claim still waits for its volume. A claim without a phase is new. */
export function isPending({ status }: Claim): boolean {
  return status?.phase === undefined || status.phase === 'Pending';
}

/** The snapshot from which a claim is restored, as "namespace/name"; undefined for a claim with
 * another source or none. */
export function restoredSnapshot({ metadata, spec }: Claim): string | undefined {
  const { dataSource, dataSourceRef } = spec;
  if (isSnapshot(dataSource))
    return keyOf({ namespace: metadata.namespace, name: dataSource.name });
  if (!isSnapshot(dataSourceRef)) return undefined;
  const { namespace, name } = dataSourceRef;
  return keyOf({ namespace: (namespace ?? '') === '' ? metadata.namespace : namespace, name });
}

/** Whether a claim waits to be cloned from the claim of that name in its own namespace. As in
 * upstream, only `dataSource` counts, whatever its group; a clone across namespaces does not
 * keep its source. */
export function isCloning({ spec, status }: Claim, source: string): boolean {
  const { dataSource } = spec;
  return (
    status?.phase === 'Pending' &&
    dataSource?.kind === 'PersistentVolumeClaim' &&
    dataSource.name === source
  );
}

/** Whether a claim is being deleted and still has our finalizer for sources of clones. */
export function isTerminatingCloneSource(claim: Pick<Claim, 'metadata'>): boolean {
  return claim.metadata.deletionTimestamp !== undefined && hasFinalizer(claim, CLONE_PROTECTION);
}

function isSnapshot(source: DataSource | undefined): source is DataSource {
  // The API server may send null for an unset field.
  return (
    source?.kind === snapshots.kind && (source.apiGroup ?? snapshots.group) === snapshots.group
  );
}
