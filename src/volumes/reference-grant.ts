import type { ReferenceGrant } from '../kube/objects.ts';

/** A claim's wish to read something in another namespace. */
export interface CrossNamespaceRequest {
  /** Namespace of the claim. */
  readonly claimNamespace: string;
  /** API group of what it refers to; undefined = the core group. */
  readonly apiGroup: string | undefined;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
}

/** Whether one of the grants lets the claim use the object; both halves have to come from the same
 * grant, and it has to be in the object's namespace (spec 02 §7.1). */
export function isAllowed(
  grants: readonly ReferenceGrant[],
  request: CrossNamespaceRequest,
): boolean {
  return grants.some(
    (grant) =>
      grant.metadata.namespace === request.namespace &&
      isFor(grant, request) &&
      isAbout(grant, request),
  );
}

function isFor(grant: ReferenceGrant, { claimNamespace }: CrossNamespaceRequest): boolean {
  return (grant.spec?.from ?? []).some(
    ({ group, kind, namespace }) =>
      group === '' && kind === 'PersistentVolumeClaim' && namespace === claimNamespace,
  );
}

function isAbout(grant: ReferenceGrant, request: CrossNamespaceRequest): boolean {
  return (grant.spec?.to ?? []).some(
    ({ group, kind, name = '' }) =>
      group === (request.apiGroup ?? '') &&
      kind === request.kind &&
      (name === '' || name === request.name),
  );
}
