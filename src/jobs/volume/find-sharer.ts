import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import { MAX_SHARERS } from '../../records/shared-handles.ts';
import { identityOf, mayBeSame } from '../../volumes/handles.ts';
import type { ProcessorPorts } from '../ports.ts';

/** Looks for another PV that may stand for the same volume (invariant 7). Costs no API request
 * unless ingest has published one; then that PV is read, since it may be gone by now.
 * @returns `unknown` if no ingest has published lately, or if all PVs that it named are gone and
 *   there were more than it names
 * @throws KubeError, RecordsUnavailable */
export async function findSharer(
  ports: Pick<ProcessorPorts, 'kube' | 'sharersOf'>,
  volume: Volume,
): Promise<Volume | undefined | 'unknown'> {
  const identity = identityOf(volume);
  if (identity === undefined) return undefined;
  const names = await ports.sharersOf(identity.id);
  if (names === undefined) return 'unknown';
  for (const name of names) {
    if (name === volume.metadata.name) continue;
    const other = await ports.kube.get<Volume>(volumes, { name });
    if (other !== undefined && mayBeSame(other, volume)) return other;
  }
  return names.length < MAX_SHARERS ? undefined : 'unknown';
}
