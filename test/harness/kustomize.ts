import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { parseAllDocuments, stringify } from 'yaml';
import { K8S, type ManifestObject } from './real-manifests.ts';
import { findKubectls } from './sandbox-kubectl.ts';

/** The kubectl to render with, if there is one. */
export const [KUBECTL] = await findKubectls(process.env);

/** A driver of local volumes, as its author would deploy it, in a namespace of its own. */
export function localDriver(kind = 'DaemonSet') {
  return {
    apiVersion: 'apps/v1',
    kind,
    metadata: {
      labels: { 'sutler.dev/driver': 'true' },
      name: 'local-driver',
      namespace: 'local-storage',
    },
    spec: {
      selector: { matchLabels: { app: 'local-driver' } },
      template: {
        metadata: { labels: { app: 'local-driver' } },
        spec: {
          containers: [
            {
              name: 'driver',
              image: 'local-driver',
              volumeMounts: [{ name: 'socket-dir', mountPath: '/csi' }],
            },
          ],
          volumes: [{ name: 'socket-dir', hostPath: { path: '/var/lib/kubelet/plugins/local' } }],
        },
      },
    },
  };
}

/** A kustomization, with drivers. */
export interface Rendered {
  /** Folders of k8s/. */
  readonly resources?: readonly string[];
  /** Folders of k8s/. */
  readonly components?: readonly string[];
  /** Workloads; without them, that of localDriver(). */
  readonly drivers?: readonly object[];
  readonly patches?: readonly object[];
  /** Patches of a component that is applied before the others. */
  readonly labelling?: readonly object[];
}

/** What kubectl makes of a kustomization.
 * @throws if kubectl refuses it, with what it says */
export function render(rendered: Rendered): readonly ManifestObject[] {
  const { resources = [], components = [], drivers = [localDriver()] } = rendered;
  const { patches = [], labelling = [] } = rendered;
  const folder = mkdtempSync(join(tmpdir(), 'sutler-kustomize-'));
  try {
    const pathOf = (name: string): string => relative(folder, join(K8S, name));
    writeFileSync(
      join(folder, 'driver.yaml'),
      drivers.map((each) => stringify(each)).join('---\n'),
    );
    mkdirSync(join(folder, 'label'));
    writeKustomization(join(folder, 'label'), {
      apiVersion: 'kustomize.config.k8s.io/v1alpha1',
      kind: 'Component',
      patches: labelling,
    });
    writeKustomization(folder, {
      apiVersion: 'kustomize.config.k8s.io/v1beta1',
      kind: 'Kustomization',
      resources: [...resources.map(pathOf), 'driver.yaml'],
      components: [...(labelling.length === 0 ? [] : ['label']), ...components.map(pathOf)],
      patches,
    });
    const text = execFileSync(KUBECTL ?? '', ['kustomize', folder], {
      encoding: 'utf8',
      stdio: 'pipe',
    });
    return parseAllDocuments(text).map(
      (each) => each.toJS() as unknown,
    ) as readonly ManifestObject[];
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function writeKustomization(folder: string, kustomization: object): void {
  writeFileSync(join(folder, 'kustomization.yaml'), stringify(kustomization));
}
