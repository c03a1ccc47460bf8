import type { KubeClient, ListOptions } from './client.ts';
import type { Resource } from './resources.ts';

/** Whether the API server is at an older version than one that it told before, as after its data
 * was restored from a backup. A watch from that version stays open then, and nothing comes, until
 * the server has reached the version again.
 * @param o  selects what is watched, of which one object is listed */
export async function hasRolledBack(
  client: Pick<KubeClient, 'list'>,
  resource: Resource,
  { version, ...o }: ListOptions & { readonly version: string },
): Promise<boolean> {
  const { resourceVersion } = await client.list(resource, { ...o, limit: 1, metadataOnly: true });
  return isOlder(resourceVersion, version);
}

/** False where one of them is not a number, as other servers than Kubernetes' may have them. */
function isOlder(version: string, than: string): boolean {
  const isNumber = (text: string): boolean => /^\d+$/.test(text);
  return isNumber(version) && isNumber(than) && BigInt(version) < BigInt(than);
}
