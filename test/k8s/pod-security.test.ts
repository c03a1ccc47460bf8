import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { manifestFolders, readManifests } from '../harness/real-manifests.ts';

interface Container {
  readonly name: string;
  readonly args?: readonly string[];
  readonly securityContext?: { readonly readOnlyRootFilesystem?: boolean };
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
}
interface Pod {
  readonly automountServiceAccountToken?: boolean;
  readonly initContainers?: readonly Container[];
  readonly containers: readonly Container[];
  readonly volumes?: readonly { readonly name: string; readonly emptyDir?: object }[];
}

const TOKEN_FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount';
/** Processes that call the API server. */
const CALLERS = new Set(['ingest', 'jobs', 'secrets']);

const containers = manifestFolders()
  .flatMap(readManifests)
  .flatMap(({ file, object }) => {
    // Templates of other kinds, such as an EventSource, are no pods.
    const { template } = (object['spec'] ?? {}) as { template?: { spec?: Pod } };
    const pod = template?.spec;
    return [...(pod?.initContainers ?? []), ...(pod?.containers ?? [])].map((container) => ({
      title: `${file} ${object.metadata.name}/${container.name}`,
      pod: pod ?? { containers: [] },
      container,
    }));
  });

/* test/real/manifests.test.ts has an API server judge the pods by the restricted profile. */
for (const { title, pod, container } of containers)
  describe(title, () => {
    it('has a read-only root', () =>
      assert.equal(container.securityContext?.readOnlyRootFilesystem, true));

    const needsToken = CALLERS.has(container.args?.[0] ?? container.name);
    it(`${needsToken ? 'has' : 'has not'} the token of the service account`, () => {
      const mount = container.volumeMounts?.find(({ mountPath }) => mountPath === TOKEN_FOLDER);
      const cover = pod.volumes?.find(({ name }) => name === mount?.name);
      const hasToken = pod.automountServiceAccountToken !== false && cover?.emptyDir === undefined;
      assert.equal(hasToken, needsToken);
    });
  });
