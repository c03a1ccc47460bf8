import type { CallOptions, KubeClient } from './client.ts';
import { isForbidden } from './kube-error.ts';
import type { KubeObject } from './objects.ts';
import { namespaces } from './resources.ts';

/** Reads what identifies a cluster: the UID of its namespace kube-system, which exists as long as
 * the cluster does.
 * @returns undefined if RBAC forbids to read it, or if there is no such namespace
 * @throws KubeError if the API server does not answer */
export async function readClusterUid(
  kube: Pick<KubeClient, 'get'>,
  options?: CallOptions,
): Promise<string | undefined> {
  try {
    const ref = { name: 'kube-system' };
    return (await kube.get<KubeObject>(namespaces, ref, options))?.metadata.uid;
  } catch (error) {
    if (isForbidden(error)) return undefined;
    throw error;
  }
}
