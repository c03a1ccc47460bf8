import assert from 'node:assert/strict';
import { VOLUME_FINALIZER } from '#src/kube/keys.ts';
import type { Volume, VolumeSpec } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import { DRIVER, type Rig } from './rig.ts';

/** A volume that we made, whose claim is gone. */
export async function released(
  rig: Rig,
  change: Parameters<Rig['claim']>[0] = {},
): Promise<Volume> {
  const claim = await rig.claim(change);
  assert.equal((await rig.provision(claim)).kind, 'done');
  const volume = await rig.volumeOf(claim);
  assert.ok(volume);
  return rig.setPhase(volume, 'Released');
}

let made = 0;

export interface StaticVolume {
  readonly annotations?: Readonly<Record<string, string>>;
  readonly labels?: Readonly<Record<string, string>>;
  readonly finalizers?: readonly string[];
  readonly spec?: Partial<VolumeSpec>;
  /** Instead of a CSI source. */
  readonly source?: Partial<VolumeSpec>;
  readonly phase?: 'Bound' | 'Released';
}

/** A volume that somebody made by hand; Released, of our driver, with our finalizer where nothing
 * else is said. */
export async function byHand(rig: Rig, change: StaticVolume = {}): Promise<Volume> {
  const name = `by-hand-${(made += 1)}`;
  const {
    annotations = {},
    labels = {},
    finalizers = [VOLUME_FINALIZER],
    spec = {},
    phase = 'Released',
  } = change;
  const { source = { csi: { driver: DRIVER, volumeHandle: `handle-of-${name}` } } } = change;
  const volume = await rig.kube.create<Volume>(volumes, undefined, {
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name, annotations, labels },
    spec: {
      capacity: { storage: '1Mi' },
      accessModes: ['ReadWriteOnce'],
      persistentVolumeReclaimPolicy: 'Delete',
      ...source,
      ...spec,
    },
  });
  // The API server puts one of its own there, which its controller takes off where nobody uses the
  // volume.
  await edit(rig, volume, {
    metadata: { finalizers: finalizers.length === 0 ? null : finalizers },
  });
  return rig.setPhase(volume, phase);
}

/** The PV as it is now. */
export function reread(rig: Rig, volume: Volume): Promise<Volume | undefined> {
  return rig.kube.get<Volume>(volumes, { name: volume.metadata.name });
}

/** Changes a PV as its owner would. */
export function edit(rig: Rig, volume: Volume, body: unknown): Promise<Volume> {
  return rig.kube.patch<Volume>(volumes, { name: volume.metadata.name }, { type: 'merge', body });
}

/** Whether a PV is gone, or would be but for others' finalizers. */
export function isLetGo(volume: Volume | undefined): boolean {
  if (volume === undefined) return true;
  return (
    volume.metadata.deletionTimestamp !== undefined &&
    volume.metadata.finalizers?.includes(VOLUME_FINALIZER) !== true
  );
}

/** How often the driver was asked to delete. */
export function deletions(rig: Rig): number {
  return rig.driver.calls.filter(({ method }) => method === 'DeleteVolume').length;
}

/** What the last DeleteVolume said. */
export function lastDeletion(rig: Rig): {
  readonly volumeId: string;
  readonly secrets: Readonly<Record<string, string>>;
} {
  const request = rig.driver.calls.findLast(({ method }) => method === 'DeleteVolume')?.request;
  assert.ok(
    request !== undefined && 'volumeId' in request && 'secrets' in request,
    'the driver was asked to delete',
  );
  // Decoded by the driver as a DeleteVolumeRequest.
  return { volumeId: String(request.volumeId), secrets: request.secrets as Record<string, string> };
}

/** The warnings so far. */
export function warnings(rig: Rig): readonly string[] {
  return rig.events
    .filter(({ type }) => type === 'Warning')
    .map(({ reason, message }) => `${reason} ${message}`);
}
