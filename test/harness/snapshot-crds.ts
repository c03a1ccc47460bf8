import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import type { Resource } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { until } from './until.ts';

const definitions: Resource = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  plural: 'customresourcedefinitions',
  kind: 'CustomResourceDefinition',
  namespaced: false,
};

export type CrdManifest = ReturnType<typeof crd>;

/** VolumeSnapshot, VolumeSnapshotContent and VolumeSnapshotClass, snapshot.storage.k8s.io/v1. Their
 * objects keep every field; status is a subresource where the real kinds have it as one. */
export const snapshotCrds: readonly CrdManifest[] = [
  snapshotCrd('VolumeSnapshot', 'volumesnapshots', { shortName: 'vs', hasStatus: true }),
  snapshotCrd('VolumeSnapshotContent', 'volumesnapshotcontents', {
    shortName: 'vsc',
    scope: 'Cluster',
    hasStatus: true,
  }),
  snapshotCrd('VolumeSnapshotClass', 'volumesnapshotclasses', {
    shortName: 'vsclass',
    scope: 'Cluster',
  }),
];

/** ReferenceGrant, gateway.networking.k8s.io.
 * @param versions  the served versions; the first one is stored */
export function referenceGrantCrd(versions: readonly ('v1' | 'v1beta1')[]): CrdManifest {
  return crd('ReferenceGrant', 'referencegrants', {
    group: 'gateway.networking.k8s.io',
    versions,
    shortName: 'refgrant',
  });
}

/** Creates or updates the definitions, and waits until every version of each kind can be listed.
 * Works on the sandbox's API server and on a real one.
 * @throws Error that names the kind, after 50 s */
export async function installCrds(
  kube: KubeClient,
  crds: readonly CrdManifest[] = snapshotCrds,
): Promise<void> {
  for (const manifest of crds) await apply(kube, manifest);
  for (const manifest of crds) {
    const { name } = manifest.metadata;
    await until(() => isEstablished(kube, name), `${name} is established`);
    for (const resource of resourcesOf(manifest))
      await until(() => isServed(kube, resource), `${name} is served as ${resource.version}`);
  }
}

/** As installCrds, in the cluster of a kubeconfig file. */
export async function installCrdsIn(
  kubeconfig: string,
  crds?: readonly CrdManifest[],
): Promise<void> {
  const access = await loadClusterAccess({ kubeconfig, master: '', env: {} });
  const kube = createKubeClient({ access, userAgent: 'sutler-test', log: silentLog });
  try {
    await installCrds(kube, crds);
  } finally {
    await kube.close();
  }
}

/** Deletes the definitions with all their objects, and waits until none of them is served. */
export async function removeCrds(
  kube: KubeClient,
  crds: readonly CrdManifest[] = snapshotCrds,
): Promise<void> {
  for (const { metadata } of crds) await kube.delete(definitions, { name: metadata.name });
  for (const manifest of crds) {
    const { name } = manifest.metadata;
    for (const resource of resourcesOf(manifest))
      await until(
        async () => !(await isServed(kube, resource)),
        `${name} is not served as ${resource.version} any more`,
      );
    await until(
      async () => (await kube.get(definitions, { name })) === undefined,
      `${name} is gone`,
    );
  }
}

interface CrdOptions {
  readonly group: string;
  readonly versions: readonly string[];
  readonly shortName: string;
  readonly scope?: 'Namespaced' | 'Cluster';
  readonly hasStatus?: boolean;
}

function snapshotCrd(
  kind: string,
  plural: string,
  options: Omit<CrdOptions, 'group' | 'versions'>,
): CrdManifest {
  return crd(kind, plural, { ...options, group: 'snapshot.storage.k8s.io', versions: ['v1'] });
}

/** A CustomResourceDefinition whose schema accepts any object. */
function crd(kind: string, plural: string, options: CrdOptions) {
  const { group, versions, shortName, scope = 'Namespaced', hasStatus = false } = options;
  const singular = kind.toLowerCase();
  const schema = { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: {
      name: `${plural}.${group}`,
      // A real server requires this annotation on definitions in groups of *.k8s.io.
      annotations: { 'api-approved.kubernetes.io': 'unapproved, for tests of sutler' },
    },
    spec: {
      group,
      scope,
      names: { plural, singular, kind, listKind: `${kind}List`, shortNames: [shortName] },
      versions: versions.map((name, i) => ({
        name,
        served: true,
        storage: i === 0,
        ...(hasStatus ? { subresources: { status: {} } } : {}),
        schema: { openAPIV3Schema: schema },
      })),
    },
  };
}

function resourcesOf({ spec }: CrdManifest): readonly Resource[] {
  return spec.versions.map(({ name }) => ({
    group: spec.group,
    version: name,
    plural: spec.names.plural,
    kind: spec.names.kind,
    namespaced: spec.scope === 'Namespaced',
  }));
}

async function apply(kube: KubeClient, manifest: CrdManifest): Promise<void> {
  const { name } = manifest.metadata;
  try {
    await kube.create(definitions, undefined, manifest);
  } catch (error) {
    if (!(error instanceof KubeError) || error.reason !== 'AlreadyExists') throw error;
    await kube.patch(definitions, { name }, { type: 'merge', body: { spec: manifest.spec } });
  }
}

interface CrdStatus {
  readonly status?: { readonly conditions?: readonly Record<'type' | 'status', string>[] | null };
}

async function isEstablished(kube: KubeClient, name: string): Promise<boolean> {
  const definition = await kube.get<CrdStatus>(definitions, { name });
  // A real server answers with null where it has no condition yet.
  const conditions = definition?.status?.conditions ?? [];
  return conditions.some(({ type, status }) => type === 'Established' && status === 'True');
}

async function isServed(kube: KubeClient, resource: Resource): Promise<boolean> {
  try {
    await kube.list(resource, { limit: 1 });
    return true;
  } catch (error) {
    // Not isNotFound(): the server's router answers in plain text, not with a Status.
    if (error instanceof KubeError && error.code === 404) return false;
    throw error;
  }
}
