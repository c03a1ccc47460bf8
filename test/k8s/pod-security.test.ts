import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { manifestFolders, readManifests } from '../harness/real-manifests.ts';
import { containerViolations, podViolations } from './pod-security.ts';

interface Container {
  readonly name: string;
  readonly image: string;
  readonly args?: readonly string[];
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
  readonly [field: string]: unknown;
}
interface Pod {
  readonly automountServiceAccountToken?: boolean;
  readonly serviceAccountName?: string;
  readonly initContainers?: readonly Container[];
  readonly containers: readonly Container[];
  readonly volumes?: readonly { readonly name: string; readonly emptyDir?: object }[];
  readonly [field: string]: unknown;
}

const TOKEN_FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount';
/** Processes that call the API server. */
const CALLERS = new Set(['ingest', 'jobs', 'secrets']);

const pods = manifestFolders()
  .flatMap(readManifests)
  .flatMap(({ file, object }) => {
    // Templates of other kinds, such as an EventSource, are no pods.
    const { template } = (object['spec'] ?? {}) as { template?: { spec?: Pod } };
    return template?.spec === undefined
      ? []
      : [{ title: `${file} ${object.metadata.name}`, pod: template.spec }];
  });
const containers = pods.flatMap(({ title, pod }) =>
  [...(pod.initContainers ?? []), ...pod.containers].map((container) => ({
    title: `${title}/${container.name}`,
    pod,
    container,
  })),
);

describe('the restricted profile of Pod Security', () => {
  it('has pods to be judged', () => assert.ok(pods.length > 5 && containers.length > 7));

  for (const { title, pod } of pods)
    it(`allows the pod ${title}`, () => assert.deepEqual(podViolations(pod), []));

  for (const { title, pod, container } of containers) {
    it(`allows the container ${title}`, () =>
      assert.deepEqual(containerViolations(container, pod), []));
  }

  const good = containers.find(({ title }) => title.endsWith('/csi-gateway'))?.container;
  const context = good?.['securityContext'] as Readonly<Record<string, unknown>>;
  for (const [name, change] of Object.entries({
    privileged: { privileged: true },
    allowPrivilegeEscalation: { allowPrivilegeEscalation: undefined },
    'capabilities.drop': { capabilities: { drop: ['NET_RAW'] } },
    'capabilities.add': { capabilities: { drop: ['ALL'], add: ['SYS_ADMIN'] } },
    runAsNonRoot: { runAsNonRoot: undefined },
    runAsUser: { runAsUser: 0 },
    seccompProfile: { seccompProfile: undefined },
    appArmorProfile: { appArmorProfile: { type: 'Unconfined' } },
    procMount: { procMount: 'Unmasked' },
    seLinuxOptions: { seLinuxOptions: { type: 'spc_t' } },
    windowsOptions: { windowsOptions: { hostProcess: true } },
  })) {
    it(`refuses a container with another ${name}`, () => {
      const changed = { ...good, securityContext: { ...context, ...change } };
      assert.deepEqual(containerViolations(changed, {}), [name]);
    });
  }

  it('refuses a container with a port of the host', () =>
    assert.deepEqual(containerViolations({ ...good, ports: [{ hostPort: 80 }] }, {}), [
      'hostPort',
    ]));

  for (const [name, change] of Object.entries({
    hostNetwork: { hostNetwork: true },
    volumes: { volumes: [{ name: 'socket-dir', hostPath: { path: '/var' } }] },
    sysctls: { securityContext: { sysctls: [{ name: 'kernel.msgmax', value: '1' }] } },
  })) {
    it(`refuses a pod with other ${name}`, () =>
      assert.deepEqual(podViolations({ containers: [], ...change }), [name]));
  }
});

describe('the token of the service account', () => {
  const mayHoldToken = (pod: Pod, container: Container): boolean => {
    const mount = container.volumeMounts?.find(({ mountPath }) => mountPath === TOKEN_FOLDER);
    const cover = pod.volumes?.find(({ name }) => name === mount?.name);
    return pod.automountServiceAccountToken !== false && cover?.emptyDir === undefined;
  };

  for (const { title, pod, container } of containers) {
    const needsToken = CALLERS.has(container.args?.[0] ?? container.name);
    it(`${needsToken ? 'reaches' : 'does not reach'} ${title}`, () =>
      assert.equal(mayHoldToken(pod, container), needsToken));
  }
});
