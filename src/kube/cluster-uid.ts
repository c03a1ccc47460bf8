import type { CallOptions, KubeClient } from './client.ts';
import { KubeError } from './kube-error.ts';
import type { ObjectMeta } from './objects.ts';
import { namespaces } from './resources.ts';

/** What tells one cluster from another: the UID of its namespace kube-system, which lives as long
 * as the cluster does.
 * @returns undefined where we may not ask, or there is none
 * @throws KubeError when the API server can't answer now */
export async function readClusterUid(
  kube: Pick<KubeClient, 'get'>,
  options?: CallOptions,
): Promise<string | undefined> {
  try {
    return (
      await kube.get<{ readonly metadata: ObjectMeta }>(
        namespaces,
        { name: 'kube-system' },
        options,
      )
    )?.metadata.uid;
  } catch (error) {
    if (error instanceof KubeError && error.code === 403) return undefined;
    throw error;
  }
}
