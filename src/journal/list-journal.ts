import type { KubeClient } from '../kube/client.ts';
import { KubeError } from '../kube/kube-error.ts';
import type { Lease } from '../kube/objects.ts';
import { claims, leases, type Resource, snapshots } from '../kube/resources.ts';
import {
  decodeEntry,
  isJournalOf,
  type JournalEntry,
  journalNode,
  type JournalOwner,
  readObject,
} from './journal-entry.ts';

/* Reads the journal for workers and commands. Only the leader writes it. */

export interface JournalPlace extends JournalOwner {
  readonly namespace: string;
}

/** An entry, and the object that has it. */
export interface ListedEntry extends JournalEntry {
  readonly object: string;
}

/** Lists all entries of a driver, on all nodes; none if this account has no right to Leases.
 * @throws KubeError */
export async function listJournal(
  client: Pick<KubeClient, 'list'>,
  place: JournalPlace,
): Promise<readonly ListedEntry[]> {
  try {
    const { items } = await client.list<Lease>(leases, { namespace: place.namespace });
    return items
      .filter((lease) => isJournalOf(place, lease))
      .flatMap((lease) => entriesOf(place, lease));
  } catch (error) {
    if (error instanceof KubeError && error.code === 403) return [];
    throw error;
  }
}

/** The entries of a journal object; none if another driver or version wrote it. */
function entriesOf(place: JournalPlace, lease: Lease): readonly ListedEntry[] {
  const read = readObject({ ...place, node: journalNode(lease) }, lease);
  if (read.kind === 'other') return [];
  const { name: object } = lease.metadata;
  return read.entries.map((entry) => ({ ...decodeEntry(entry), object }));
}

/** Reads the entry of a claim (R1).
 * @param object  the object that the claim's job names; without the entry there, reads all objects
 * @throws KubeError */
export async function readEntryOf(
  client: Pick<KubeClient, 'get' | 'list'>,
  place: JournalPlace,
  object: string,
  uid: string,
): Promise<JournalEntry | undefined> {
  if (object !== '') {
    const { namespace } = place;
    const lease = await client.get<Lease>(leases, { namespace, name: object });
    const found = lease && entriesOf(place, lease).find((entry) => entry.uid === uid);
    if (found !== undefined) return found;
  }
  return (await listJournal(client, place)).find((entry) => entry.uid === uid);
}

/** Names a source of the journal. */
export function sourceId(
  { plural }: Pick<Resource, 'plural'>,
  { namespace = '', name }: { readonly namespace?: string | undefined; readonly name: string },
): string {
  return `${plural}/${namespace}/${name}`;
}

/** The sources of the claims in the journal: snapshots and claims, which may be gone.
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
