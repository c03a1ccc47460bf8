import type { Claim, Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import { volumeName } from '../../volumes/names.ts';
import type { ProcessorPorts } from '../ports.ts';

/** Whether another claim has the volume name of this one, as shortened UIDs may; its volume must
 * not become ours. Whole UIDs can't clash and cost nothing.
 * @returns the refusal for the user, or undefined */
export async function findNameClash(
  ports: Pick<ProcessorPorts, 'kube' | 'names' | 'options'>,
  claim: Claim,
): Promise<string | undefined> {
  if (!isShortened(ports)) return undefined;
  const { uid } = claim.metadata;
  const name = volumeName(uid, ports.options);
  const holder = await ports.names.reserve(name, uid);
  if (holder !== undefined) return belongsTo(name, holder);
  // The name is taken before the PV is looked at: of two runs at once only one then sees neither.
  const volume = await ports.kube.get<Volume>(volumes, { name });
  const other = volume?.spec.claimRef?.uid;
  if (volume === undefined || other === uid) return undefined;
  await ports.names.release(name, uid);
  return other === undefined
    ? `PersistentVolume ${name} belongs to no claim and has the name that this claim’s volume would get; delete it, or make this claim anew`
    : belongsTo(name, other);
}

/** Without a prefix there are no names at all; whoever plans says so. */
function isShortened({ options }: Pick<ProcessorPorts, 'options'>): boolean {
  return options.volumeNameUuidLength !== -1 && options.volumeNamePrefix !== '';
}

function belongsTo(name: string, uid: string): string {
  return `volume name ${name} belongs to the claim with UID ${uid}, whose UID begins alike; raise --volume-name-uuid-length, or make this claim anew`;
}

/** The name is free again: proof that no volume of it was made, or a PV that guards it. */
export async function freeName(
  ports: Pick<ProcessorPorts, 'names' | 'options'>,
  uid: string,
): Promise<void> {
  if (isShortened(ports)) await ports.names.release(volumeName(uid, ports.options), uid);
}

/** The claim is gone and its record still open: its name stays taken, however long that lasts. */
export async function keepName(
  ports: Pick<ProcessorPorts, 'names' | 'options'>,
  uid: string,
): Promise<void> {
  if (isShortened(ports)) await ports.names.reserve(volumeName(uid, ports.options), uid);
}
