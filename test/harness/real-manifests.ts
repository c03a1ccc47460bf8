import { readFileSync, readdirSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseAllDocuments } from 'yaml';

/** A Kubernetes object of a manifest. */
export interface Manifest {
  /** Path below `k8s/`. */
  readonly file: string;
  readonly object: ManifestObject;
}

export interface ManifestObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
  readonly [field: string]: unknown;
}

// Tests run from dist-dev/test/harness.
export const K8S = fileURLToPath(new URL('../../../k8s', import.meta.url));

const CLUSTER_SCOPED = new Set([
  'Namespace',
  'ClusterRole',
  'ClusterRoleBinding',
  'StorageClass',
  'ValidatingWebhookConfiguration',
]);
const PLURALS: Readonly<Record<string, string>> = {
  NetworkPolicy: 'networkpolicies',
  StorageClass: 'storageclasses',
};

/** Where the API server keeps an object.
 * @param home  the namespace of one that names none */
export function pathOf(object: ManifestObject, home = 'sutler'): string {
  return `${collectionOf(object, home)}/${object.metadata.name}`;
}

/** Where the API server keeps objects of its kind. */
export function collectionOf(
  { apiVersion, kind, metadata }: ManifestObject,
  home?: string,
): string {
  const group = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const plural = PLURALS[kind] ?? `${kind.toLowerCase()}s`;
  return CLUSTER_SCOPED.has(kind)
    ? `${group}/${plural}`
    : `${group}/namespaces/${metadata.namespace ?? home}/${plural}`;
}

/** Folders of `k8s/` with a kustomization. */
export function manifestFolders(): readonly string[] {
  return readdirSync(K8S, { recursive: true, encoding: 'utf8' })
    .filter((path) => basename(path) === 'kustomization.yaml')
    .map(dirname)
    .toSorted();
}

/** The YAML files of one folder, without its kustomization and what that makes a ConfigMap of. */
export function manifestFiles(folder: string): readonly string[] {
  return readdirSync(join(K8S, folder)).filter(
    (file) => file.endsWith('.yaml') && !['kustomization.yaml', 'drivers.yaml'].includes(file),
  );
}

/** All objects of one folder. */
export function readManifests(folder: string): readonly Manifest[] {
  return manifestFiles(folder).flatMap((file) =>
    readYaml(`${folder}/${file}`).map((object) => ({
      file: `${folder}/${file}`,
      object: object as ManifestObject,
    })),
  );
}

/** The documents of one file below `k8s/`. */
export function readYaml(path: string): readonly unknown[] {
  return parseAllDocuments(readFileSync(join(K8S, path), 'utf8')).map(
    (each) => each.toJS() as unknown,
  );
}
