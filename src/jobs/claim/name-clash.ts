import type { Claim, Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import { volumeName } from '../../volumes/names.ts';
import type { ProcessorPorts } from '../ports.ts';

/* Shortened volume names (--volume-name-uuid-length). Two claims whose UIDs begin alike would get one
 * name, and the driver would give both the same volume. Redis says which claim a name belongs to;
 * names with whole UIDs can't clash, and Redis is not asked about them. */

/** Reserves the claim's volume name, unless it belongs to another claim.
 * @returns the refusal for the user if it does */
export async function findNameClash(
  ports: Pick<ProcessorPorts, 'kube' | 'names' | 'options'>,
  claim: Claim,
): Promise<string | undefined> {
  if (!areNamesShortened(ports)) return undefined;
  const { uid } = claim.metadata;
  const name = volumeName(uid, ports.options);
  const owner = await ports.names.reserve(name, uid);
  if (owner !== undefined) return describeClash(name, owner);
  // The name is reserved before the PV is read: of two runs at once only one then finds neither.
  const volume = await ports.kube.get<Volume>(volumes, { name });
  const other = volume?.spec.claimRef?.uid;
  if (volume === undefined || other === uid) return undefined;
  await ports.names.release(name, uid);
  if (other !== undefined) return describeClash(name, other);
  return (
    `PersistentVolume ${name} belongs to no claim and has the name that ` +
    'this claim’s volume would get; delete it, or make this claim anew'
  );
}

/** Whether names are made and shortened. Without a prefix there are none, which the plan refuses. */
function areNamesShortened({ options }: Pick<ProcessorPorts, 'options'>): boolean {
  return options.volumeNameUuidLength !== -1 && options.volumeNamePrefix !== '';
}

function describeClash(name: string, uid: string): string {
  return (
    `volume name ${name} belongs to the claim with UID ${uid}, whose UID begins alike; ` +
    'raise --volume-name-uuid-length, or make this claim anew'
  );
}

/** Frees the name: it is proven that no volume has it, or its PV guards it now. */
export async function freeName(
  ports: Pick<ProcessorPorts, 'names' | 'options'>,
  uid: string,
): Promise<void> {
  if (areNamesShortened(ports)) await ports.names.release(volumeName(uid, ports.options), uid);
}

/** Keeps the name of a claim that is gone while its record is open, however long that takes. */
export async function keepName(
  ports: Pick<ProcessorPorts, 'names' | 'options'>,
  uid: string,
): Promise<void> {
  if (areNamesShortened(ports)) await ports.names.reserve(volumeName(uid, ports.options), uid);
}
