import type { KubeClient } from '#src/kube/client.ts';
import { claims, volumes } from '#src/kube/resources.ts';

const NAMESPACE = 'sutler-bench';

/** Writes claims that are bound, and their PVs, as if a driver had made them. */
export async function writeBoundClaims(
  client: KubeClient,
  o: { readonly count: number; readonly driver: string; readonly concurrency: number },
): Promise<void> {
  let next = 0;
  const write = async (): Promise<void> => {
    for (let at = next++; at < o.count; at = next++) await writeBound(client, o.driver, at);
  };
  await Promise.all(Array.from({ length: o.concurrency }, write));
}

async function writeBound(client: KubeClient, driver: string, at: number): Promise<void> {
  const [name, volumeName] = [`bound-${at}`, `bench-volume-${at}`];
  const common = {
    accessModes: ['ReadWriteOnce'],
    storageClassName: NAMESPACE,
    volumeMode: 'Filesystem',
  };
  const claim = await client.create<{ metadata: { uid: string } }>(claims, NAMESPACE, {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name, labels: { app: name, 'app.kubernetes.io/managed-by': 'bench' } },
    spec: { ...common, volumeName, resources: { requests: { storage: '1Gi' } } },
  });
  await client.create(volumes, undefined, {
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: {
      name: volumeName,
      annotations: { 'pv.kubernetes.io/provisioned-by': driver },
      finalizers: ['external-provisioner.volume.kubernetes.io/finalizer'],
    },
    spec: {
      ...common,
      capacity: { storage: '1Gi' },
      persistentVolumeReclaimPolicy: 'Delete',
      claimRef: {
        apiVersion: 'v1',
        kind: 'PersistentVolumeClaim',
        namespace: NAMESPACE,
        name,
        uid: claim.metadata.uid,
      },
      csi: { driver, volumeHandle: `handle-${at}`, volumeAttributes: { made: 'by the bench' } },
    },
  });
  const body = { status: { phase: 'Bound' } };
  await client.patch(volumes, { name: volumeName }, { type: 'merge', subresource: 'status', body });
  const ref = { namespace: NAMESPACE, name };
  await client.patch(claims, ref, { type: 'merge', subresource: 'status', body });
}
