import { KubeError } from '#src/kube/kube-error.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, namespaces } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { DEFAULT_OPTIONS } from '../harness/default-options.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';

/** For the tests that remove finalizers from sources: the sandbox's API server, and a settable list
 * of the sources of claims in the journal. */
export interface ReleaseRig {
  readonly cluster: SandboxCluster;
  readonly kube: KubeClient;
  readonly parts: Pick<Dependencies, 'kube' | 'facts' | 'openSources' | 'options' | 'log'>;
  /** By sourceId; undefined: the API server is down. */
  openSources: ReadonlySet<string> | undefined;
  /** Creates an empty namespace. */
  namespace(): Promise<string>;
  /** Creates a claim in the given phase. */
  claim(namespace: string, change: ClaimChange): Promise<Claim>;
  close(): Promise<void>;
}

export interface ClaimChange {
  readonly name: string;
  readonly phase?: 'Pending' | 'Bound' | 'Lost';
  readonly finalizers?: readonly string[];
  readonly dataSource?: Claim['spec']['dataSource'];
  readonly dataSourceRef?: Claim['spec']['dataSourceRef'];
}

export async function openReleaseRig(): Promise<ReleaseRig> {
  const cluster = await openSandboxCluster();
  const kube = await cluster.client();
  let serial = 0;
  const rig: ReleaseRig = {
    cluster,
    kube,
    openSources: new Set(),
    parts: {
      kube,
      facts: () => ({
        name: 'd.example',
        pluginCapabilities: new Set(['CONTROLLER_SERVICE']),
        controllerCapabilities: new Set([
          'CREATE_DELETE_VOLUME',
          'CLONE_VOLUME',
          'CREATE_DELETE_SNAPSHOT',
        ]),
      }),
      openSources: () =>
        rig.openSources === undefined
          ? Promise.reject(
              new KubeError({ code: 503, reason: 'ServiceUnavailable', serverMessage: 'away' }),
            )
          : Promise.resolve(rig.openSources),
      options: { ...DEFAULT_OPTIONS, identity: 'test' },
      log: silentLog,
    },
    async namespace() {
      serial += 1;
      const name = `space-${serial}`;
      await kube.create(namespaces, undefined, {
        apiVersion: 'v1',
        kind: 'Namespace',
        metadata: { name },
      });
      return name;
    },
    async claim(namespace, { name, phase = 'Pending', finalizers = [], ...sources }) {
      const created = await kube.create<Claim>(claims, namespace, {
        apiVersion: 'v1',
        kind: 'PersistentVolumeClaim',
        metadata: { name, namespace, finalizers },
        spec: {
          storageClassName: 'c',
          accessModes: ['ReadWriteOnce'],
          resources: { requests: { storage: '1Mi' } },
          ...sources,
        },
      });
      if (phase === 'Pending') return created;
      return kube.patch<Claim>(
        claims,
        { namespace, name },
        { type: 'merge', body: { status: { phase } }, subresource: 'status' },
      );
    },
    async close() {
      await cluster.close();
    },
  };
  return rig;
}
