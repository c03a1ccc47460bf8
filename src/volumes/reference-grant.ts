import type { ReferenceGrant } from '../kube/objects.ts';

/** The claim's namespace, and the object of another namespace that it refers to. */
interface CrossNamespaceRef {
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
export function isGranted(grants: readonly ReferenceGrant[], request: CrossNamespaceRef): boolean {
  const { claimNamespace, apiGroup = '', kind, name } = request;
  return grants.some(
    ({ metadata, spec }) =>
      metadata.namespace === request.namespace &&
      (spec?.from ?? []).some(
        (from) =>
          from.group === '' &&
          from.kind === 'PersistentVolumeClaim' &&
          from.namespace === claimNamespace,
      ) &&
      (spec?.to ?? []).some(
        (to) => to.group === apiGroup && to.kind === kind && ['', name].includes(to.name ?? ''),
      ),
  );
}
