import type { ReferenceGrant } from '../kube/objects.ts';

/** A claim's request to use an object of another namespace. */
interface CrossNamespaceRequest {
  readonly claimNamespace: string;
  /** API group of the object; undefined for the core group. */
  readonly apiGroup: string | undefined;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
}

/** Whether one of the grants lets the claim use the object. The grant has to be in the object's
 * namespace and to name both sides. Upstream: external-provisioner pkg/controller/util.go
 * IsGranted. */
export function isGranted(
  grants: readonly ReferenceGrant[],
  request: CrossNamespaceRequest,
): boolean {
  return grants.some(
    (grant) =>
      grant.metadata.namespace === request.namespace &&
      matchesClaim(grant, request) &&
      matchesObject(grant, request),
  );
}

function matchesClaim(grant: ReferenceGrant, { claimNamespace }: CrossNamespaceRequest): boolean {
  return (grant.spec?.from ?? []).some(
    ({ group, kind, namespace }) =>
      group === '' && kind === 'PersistentVolumeClaim' && namespace === claimNamespace,
  );
}

function matchesObject(grant: ReferenceGrant, request: CrossNamespaceRequest): boolean {
  return (grant.spec?.to ?? []).some(
    ({ group, kind, name = '' }) =>
      group === (request.apiGroup ?? '') &&
      kind === request.kind &&
      (name === '' || name === request.name),
  );
}
