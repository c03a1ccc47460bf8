import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, ClaimSpec } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';

/** Creates a claim of 1 MiB. */
export function createSmallClaim(
  kube: KubeClient,
  metadata: {
    readonly namespace: string;
    readonly name: string;
    readonly annotations?: Readonly<Record<string, string>>;
  },
  spec: Partial<ClaimSpec>,
): Promise<Claim> {
  return kube.create<Claim>(claims, metadata.namespace, {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata,
    spec: {
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage: '1Mi' } },
      ...spec,
    },
  });
}

/** Whether a claim is Bound. */
export async function isClaimBound(
  kube: KubeClient,
  ref: { readonly namespace: string; readonly name: string },
): Promise<boolean> {
  return (await kube.get<Claim>(claims, ref))?.status?.phase === 'Bound';
}
