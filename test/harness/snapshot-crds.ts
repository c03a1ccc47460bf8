import { setTimeout as delay } from 'node:timers/promises';
import type { KubeClient } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Resource } from '#src/kube/resources.ts';

/** A CustomResourceDefinition with names and versions. Its schema accepts any object. */
export interface CrdManifest {
  readonly apiVersion: 'apiextensions.k8s.io/v1';
  readonly kind: 'CustomResourceDefinition';
  readonly metadata: {
    readonly name: string;
    readonly annotations: Readonly<Record<string, string>>;
  };
  readonly spec: {
    readonly group: string;
    readonly scope: 'Namespaced' | 'Cluster';
    readonly names: {
      readonly plural: string;
      readonly singular: string;
      readonly kind: string;
      readonly listKind: string;
      readonly shortNames: readonly string[];
    };
    readonly versions: readonly CrdVersion[];
  };
}

interface CrdVersion {
  readonly name: string;
  readonly served: boolean;
  readonly storage: boolean;
  readonly subresources?: { readonly status: Readonly<Record<string, never>> };
  readonly schema: {
    readonly openAPIV3Schema: {
      readonly type: 'object';
      readonly 'x-kubernetes-preserve-unknown-fields': true;
    };
  };
}

interface CrdInput {
  readonly group: string;
  readonly kind: string;
  readonly plural: string;
  readonly shortNames: readonly string[];
  readonly scope: 'Namespaced' | 'Cluster';
  readonly versions: readonly string[];
  readonly hasStatus: boolean;
}

const definitions: Resource = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  plural: 'customresourcedefinitions',
  kind: 'CustomResourceDefinition',
  namespaced: false,
};
const READY_WITHIN_MS = 60_000;

/** VolumeSnapshot, VolumeSnapshotContent and VolumeSnapshotClass, snapshot.storage.k8s.io/v1. Their
 * objects keep every field; status is a subresource where the real kinds have it as one. */
export const snapshotCrds: readonly CrdManifest[] = [
  snapshotCrd({
    kind: 'VolumeSnapshot',
    plural: 'volumesnapshots',
    shortNames: ['vs'],
    scope: 'Namespaced',
    hasStatus: true,
  }),
  snapshotCrd({
    kind: 'VolumeSnapshotContent',
    plural: 'volumesnapshotcontents',
    shortNames: ['vsc'],
    scope: 'Cluster',
    hasStatus: true,
  }),
  snapshotCrd({
    kind: 'VolumeSnapshotClass',
    plural: 'volumesnapshotclasses',
    shortNames: ['vsclass'],
    scope: 'Cluster',
    hasStatus: false,
  }),
];

/** ReferenceGrant, gateway.networking.k8s.io.
 * @param versions  the served versions; the first one is stored */
export function referenceGrantCrd(versions: readonly ('v1' | 'v1beta1')[]): CrdManifest {
  return crd({
    group: 'gateway.networking.k8s.io',
    kind: 'ReferenceGrant',
    plural: 'referencegrants',
    shortNames: ['refgrant'],
    scope: 'Namespaced',
    versions,
    hasStatus: false,
  });
}

/** Creates or updates the definitions, and waits until every version of each kind can be listed.
 * Works on the sandbox's API server and on a real one.
 * @throws Error that names the kind, after a minute */
export async function installCrds(
  kube: KubeClient,
  crds: readonly CrdManifest[] = snapshotCrds,
): Promise<void> {
  for (const manifest of crds) await apply(kube, manifest);
  for (const manifest of crds) {
    const { name } = manifest.metadata;
    await until(`${name} is not established`, () => isEstablished(kube, name));
    for (const resource of resourcesOf(manifest))
      await until(`${name} is not served as ${resource.version}`, () => isServed(kube, resource));
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
        `${name} is still served as ${resource.version}`,
        async () => !(await isServed(kube, resource)),
      );
    await until(
      `${name} is still there`,
      async () => (await kube.get(definitions, { name })) === undefined,
    );
  }
}

function snapshotCrd(input: Omit<CrdInput, 'group' | 'versions'>): CrdManifest {
  return crd({ ...input, group: 'snapshot.storage.k8s.io', versions: ['v1'] });
}

function crd({
  group,
  kind,
  plural,
  shortNames,
  scope,
  versions,
  hasStatus,
}: CrdInput): CrdManifest {
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
      names: { plural, singular: kind.toLowerCase(), kind, listKind: `${kind}List`, shortNames },
      versions: versions.map((name, i) => ({
        name,
        served: true,
        storage: i === 0,
        ...(hasStatus ? { subresources: { status: {} } } : {}),
        schema: {
          openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
        },
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
  readonly status?: {
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
  };
}

async function isEstablished(kube: KubeClient, name: string): Promise<boolean> {
  const found = await kube.get<CrdStatus>(definitions, { name });
  return (
    found?.status?.conditions?.some(
      ({ type, status }) => type === 'Established' && status === 'True',
    ) === true
  );
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

async function until(trouble: string, isDone: () => Promise<boolean>): Promise<void> {
  const deadlineMs = Date.now() + READY_WITHIN_MS;
  while (!(await isDone())) {
    if (Date.now() > deadlineMs) throw new Error(`${trouble} after ${READY_WITHIN_MS} ms`);
    await delay(50);
  }
}
