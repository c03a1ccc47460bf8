import { accountKubeconfig } from './account-kubeconfig.ts';
import type { RealControlPlane } from './real-control-plane.ts';

/** Name of upstream's service account. */
export const ACCOUNT = 'csi-provisioner';
const rule = (group: string, resources: string, verbs: string) => ({
  apiGroups: [group],
  resources: resources.split(' '),
  verbs: verbs.split(' '),
});

/** The rules of external-provisioner's deploy/kubernetes/rbac.yaml (v6.3.0). */
export const CLUSTER_RULES = [
  rule('', 'persistentvolumes', 'get list watch create patch delete'),
  rule('', 'persistentvolumeclaims', 'get list watch update'),
  rule('storage.k8s.io', 'storageclasses', 'get list watch'),
  rule('', 'events', 'list watch create update patch'),
  rule('snapshot.storage.k8s.io', 'volumesnapshots', 'get list watch update'),
  rule('snapshot.storage.k8s.io', 'volumesnapshotcontents', 'get list'),
  rule('storage.k8s.io', 'csinodes', 'get list watch'),
  rule('', 'nodes', 'get list watch'),
  rule('storage.k8s.io', 'volumeattachments', 'get list watch'),
];
const NAMESPACE_RULES = [
  rule('coordination.k8s.io', 'leases', 'get watch list delete update create'),
  rule('storage.k8s.io', 'csistoragecapacities', 'get list watch create update patch delete'),
  rule('', 'pods', 'get'),
  rule('apps', 'replicasets', 'get'),
];

/** Path of the API. */
export const RBAC = '/apis/rbac.authorization.k8s.io/v1';

/** Creates upstream's service account with exactly its rules.
 * @returns a kubeconfig with its token */
export async function grantUpstreamRules(
  plane: RealControlPlane,
  namespace: string,
): Promise<string> {
  const { api } = plane;
  const metadata = { name: `${ACCOUNT}-${namespace}` };
  const subjects = [{ kind: 'ServiceAccount', name: ACCOUNT, namespace }];
  const roleRef = (kind: string) => ({
    apiGroup: 'rbac.authorization.k8s.io',
    kind,
    name: metadata.name,
  });
  await api.create(`/api/v1/namespaces/${namespace}/serviceaccounts`, {
    metadata: { name: ACCOUNT },
  });
  await api.create(`${RBAC}/clusterroles`, { metadata, rules: CLUSTER_RULES });
  await api.create(`${RBAC}/clusterrolebindings`, {
    metadata,
    subjects,
    roleRef: roleRef('ClusterRole'),
  });
  const inNamespace = `${RBAC}/namespaces/${namespace}`;
  await api.create(`${inNamespace}/roles`, { metadata, rules: NAMESPACE_RULES });
  await api.create(`${inNamespace}/rolebindings`, { metadata, subjects, roleRef: roleRef('Role') });
  return accountKubeconfig(plane, { namespace, name: ACCOUNT });
}
