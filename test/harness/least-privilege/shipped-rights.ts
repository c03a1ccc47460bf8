import { accountKubeconfig } from '../account-kubeconfig.ts';
import type { RealControlPlane } from '../real-control-plane.ts';
import { collectionOf, type ManifestObject, readManifests } from '../real-manifests.ts';

/** The namespace of ingest and jobs. */
export const HOME = 'sutler';

const KINDS = ['ServiceAccount', 'ClusterRole', 'ClusterRoleBinding', 'Role', 'RoleBinding'];

/** Gives the accounts of ingest and jobs the rights that folders of k8s/ have.
 * @param folders  by name, where an administrator puts what names no namespace of its own
 * @returns the objects, and by process a kubeconfig of its account */
export async function grantShipped(
  plane: RealControlPlane,
  folders: Readonly<Record<string, string>>,
): Promise<{
  readonly objects: readonly ManifestObject[];
  readonly kubeconfigs: Readonly<Record<'ingest' | 'jobs', string>>;
}> {
  const { api } = plane;
  for (const name of new Set(Object.values(folders)))
    await api.create('/api/v1/namespaces', { metadata: { name } });
  const objects = Object.entries(folders).flatMap(([name, home]) => rightsIn(name, home));
  for (const object of objects) await api.create(collectionOf(object), object);
  const kubeconfig = (name: string): Promise<string> =>
    accountKubeconfig(plane, { namespace: HOME, name: `sutler-${name}` });
  return {
    objects,
    kubeconfigs: { ingest: await kubeconfig('ingest'), jobs: await kubeconfig('jobs') },
  };
}

function rightsIn(folder: string, home: string): readonly ManifestObject[] {
  return readManifests(folder)
    .map(({ object }) => object)
    .filter(({ kind }) => KINDS.includes(kind))
    .map((object) =>
      object.kind.startsWith('ClusterRole') || object.kind === 'ServiceAccount'
        ? object
        : { ...object, metadata: { ...object.metadata, namespace: home } },
    );
}
