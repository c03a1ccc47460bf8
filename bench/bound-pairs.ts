import type { KubeClient } from '#src/kube/client.ts';
import { classes, claims, namespaces, volumes } from '#src/kube/resources.ts';

const NAME = 'sutler-bench';

export interface BoundPairs {
  readonly client: KubeClient;
  readonly driver: string;
  /** Requests under way at once. */
  readonly concurrency: number;
}

/** Creates the namespace and class of the pairs. */
export async function prepareBoundPairs({ client, driver }: BoundPairs): Promise<void> {
  await client.create(namespaces, undefined, { metadata: { name: NAME } });
  await client.create(classes, undefined, { metadata: { name: NAME }, provisioner: driver });
}

/** Writes the bound claims of these numbers and their PVs, with what such objects carry in a
 * cluster: each takes 2 to 3 kB. */
export function writeBoundPairs(o: BoundPairs, from: number, to: number): Promise<void> {
  return forEach(o, { from, to }, (at) => writePair(o, at));
}

/** Changes a bound claim this many times, each time another. */
export function changeClaims(o: BoundPairs, pairs: number, changes: number): Promise<void> {
  return forEach(o, { from: 0, to: changes }, async (at) => {
    const body = { metadata: { annotations: { 'bench/change': `${at}` } } };
    const ref = { namespace: NAME, name: nameOf(at % pairs) };
    await o.client.patch(claims, ref, { type: 'merge', body });
  });
}

function nameOf(at: number): string {
  return `data-postgresql-${at}`;
}

async function forEach(
  { concurrency }: BoundPairs,
  { from, to }: { readonly from: number; readonly to: number },
  act: (at: number) => Promise<void>,
): Promise<void> {
  let next = from;
  const work = async (): Promise<void> => {
    for (let at = next++; at < to; at = next++) await act(at);
  };
  await Promise.all(Array.from({ length: concurrency }, work));
}

async function writePair({ client, driver }: BoundPairs, at: number): Promise<void> {
  const name = nameOf(at);
  const common = {
    accessModes: ['ReadWriteOnce'],
    storageClassName: NAME,
    volumeMode: 'Filesystem',
  };
  const { metadata } = await client.create<{ metadata: { uid: string } }>(claims, NAME, {
    metadata: {
      name,
      labels: {
        'app.kubernetes.io/name': 'postgresql',
        'app.kubernetes.io/instance': name,
        'app.kubernetes.io/managed-by': 'Helm',
        'helm.sh/chart': 'postgresql-15.5.2',
      },
      annotations: {
        'pv.kubernetes.io/bind-completed': 'yes',
        'pv.kubernetes.io/bound-by-controller': 'yes',
        'volume.beta.kubernetes.io/storage-provisioner': driver,
        'volume.kubernetes.io/storage-provisioner': driver,
        'volume.kubernetes.io/selected-node': `ip-10-0-${at % 250}-12.eu-central-1.compute.internal`,
      },
    },
    spec: { ...common, volumeName: `bench-${name}`, resources: { requests: { storage: '8Gi' } } },
  });
  const claimRef = { kind: 'PersistentVolumeClaim', apiVersion: 'v1', namespace: NAME, name };
  await client.create(volumes, undefined, {
    metadata: {
      name: `bench-${name}`,
      annotations: {
        'pv.kubernetes.io/provisioned-by': driver,
        'volume.kubernetes.io/provisioner-deletion-secret-name': '',
        'volume.kubernetes.io/provisioner-deletion-secret-namespace': '',
      },
      finalizers: ['external-provisioner.volume.kubernetes.io/finalizer'],
    },
    spec: {
      ...common,
      capacity: { storage: '8Gi' },
      persistentVolumeReclaimPolicy: 'Delete',
      claimRef: { ...claimRef, uid: metadata.uid },
      csi: {
        driver,
        fsType: 'ext4',
        volumeHandle: `0001-0009-rook-ceph-0000000000000001-${metadata.uid}`,
        volumeAttributes: { 'storage.kubernetes.io/csiProvisionerIdentity': `1-${driver}` },
      },
    },
  });
  const bound = {
    type: 'merge',
    subresource: 'status',
    body: { status: { phase: 'Bound' } },
  } as const;
  await client.patch(volumes, { name: `bench-${name}` }, bound);
  await client.patch(claims, { namespace: NAME, name }, bound);
}
