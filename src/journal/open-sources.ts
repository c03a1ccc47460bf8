import type { KubeClient } from '../kube/client.ts';
import { claims, type Resource, snapshots } from '../kube/resources.ts';
import { type JournalPlace, listJournal } from './list-journal.ts';

/** How the journal's sources are named. */
export function sourceId(
  { plural }: Pick<Resource, 'plural'>,
  { namespace = '', name }: { readonly namespace?: string | undefined; readonly name: string },
): string {
  return `${plural}/${namespace}/${name}`;
}

/** The snapshots and claims that claims in the journal are created from, which may be gone
 * themselves.
 * @throws KubeError */
export async function listOpenSources(
  client: Pick<KubeClient, 'list'>,
  journal: JournalPlace,
): Promise<ReadonlySet<string>> {
  const entries = await listJournal(client, journal);
  return new Set(
    entries.flatMap(({ claim: { metadata, spec } }) => {
      const {
        kind,
        name,
        namespace = metadata.namespace,
      } = {
        ...spec.dataSource,
        ...spec.dataSourceRef,
      };
      if (name === undefined) return [];
      const resource = kind === snapshots.kind ? snapshots : claims;
      return [sourceId(resource, { namespace, name })];
    }),
  );
}
