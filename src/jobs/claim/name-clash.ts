import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import { type NamingOptions, volumeName } from '../../volumes/persistent-volume.ts';
import type { Kube, RedisState } from '../dependencies.ts';

/* Clashes of shortened volume names (--volume-name-uuid-length). Two claims whose UIDs begin alike
 * would get one name, and the driver would give both the same volume. So Redis stores which claim a
 * shortened name belongs to. Names with whole UIDs can't clash and are not stored. */

type Names = RedisState['names'];

/** Reserves the volume name of the claim with this UID, unless it belongs to another claim.
 * @returns the refusal for the user if it does */
export async function findNameClash(
  kube: Kube,
  names: Names,
  options: NamingOptions,
  uid: string,
): Promise<string | undefined> {
  const name = shortenedName(options, uid);
  if (name === undefined) return undefined;
  const owner = await names.reserve(name, uid);
  if (owner !== undefined) return describeClash(name, owner);
  // Reserved before the PV is read, so that only one of two runs at once finds the name free.
  const volume = await kube.get<Volume>(volumes, { name });
  const other = volume?.spec.claimRef?.uid;
  if (volume === undefined || other === uid) return undefined;
  await names.release(name, uid);
  if (other !== undefined) return describeClash(name, other);
  return (
    `PersistentVolume ${name} belongs to no claim and has the name that ` +
    'this claim’s volume would get; delete it, or create this claim again'
  );
}

/** The claim's volume name; undefined if it contains the whole UID, and without a prefix, since the
 * plan refuses that. */
function shortenedName(options: NamingOptions, uid: string): string | undefined {
  const isShortened = options.volumeNameUuidLength !== -1 && options.volumeNamePrefix !== '';
  return isShortened ? volumeName(uid, options) : undefined;
}

function describeClash(name: string, uid: string): string {
  return (
    `volume name ${name} belongs to the claim with UID ${uid}, whose UID begins alike; ` +
    'raise --volume-name-uuid-length, or create this claim again'
  );
}

/** Frees the name, since no volume has it or since findNameClash finds the PV that has it. */
export async function freeName(names: Names, options: NamingOptions, uid: string): Promise<void> {
  const name = shortenedName(options, uid);
  if (name !== undefined) await names.release(name, uid);
}

/** Renews the reservation for a claim that is gone and whose record is open: no other run does. */
export async function keepName(names: Names, options: NamingOptions, uid: string): Promise<void> {
  const name = shortenedName(options, uid);
  if (name !== undefined) await names.reserve(name, uid);
}
