import assert from 'node:assert/strict';
import { VOLUME_FINALIZER } from '#src/kube/keys.ts';
import type { Volume, VolumeSpec } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import { DRIVER, type Rig } from './rig.ts';

/** Provisions a volume and marks its PV Released, as if its claim were gone. */
export async function createReleasedVolume(
  rig: Rig,
  change: Parameters<Rig['claim']>[0] = {},
): Promise<Volume> {
  const claim = await rig.claim(change);
  assert.equal((await rig.provision(claim)).kind, 'done');
  const volume = await rig.volumeOf(claim);
  assert.ok(volume);
  return rig.setPhase(volume, 'Released');
}

let count = 0;

export interface StaticVolume {
  readonly annotations?: Readonly<Record<string, string>>;
  readonly labels?: Readonly<Record<string, string>>;
  readonly finalizers?: readonly string[];
  readonly spec?: Partial<VolumeSpec>;
  /** Instead of a CSI source. */
  readonly source?: Partial<VolumeSpec>;
  readonly phase?: 'Bound' | 'Released';
}

/** Creates a PV by hand; by default Released, of our driver, with our finalizer. */
export async function createStaticVolume(rig: Rig, change: StaticVolume = {}): Promise<Volume> {
  const name = `by-hand-${(count += 1)}`;
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
  // The API server adds one of its own, which its controller removes when the volume is not used.
  await edit(rig, volume, {
    metadata: { finalizers: finalizers.length === 0 ? null : finalizers },
  });
  return rig.setPhase(volume, phase);
}

/** The PV as it is now. */
export function readAgain(rig: Rig, volume: Volume): Promise<Volume | undefined> {
  return rig.kube.get<Volume>(volumes, { name: volume.metadata.name });
}

/** Edits a PV as a user would. */
export function edit(rig: Rig, volume: Volume, body: unknown): Promise<Volume> {
  return rig.kube.patch<Volume>(volumes, { name: volume.metadata.name }, { type: 'merge', body });
}

/** Whether a PV is gone, or is deleted and has only foreign finalizers. */
export function isDeletedByUs(volume: Volume | undefined): boolean {
  if (volume === undefined) return true;
  return (
    volume.metadata.deletionTimestamp !== undefined &&
    volume.metadata.finalizers?.includes(VOLUME_FINALIZER) !== true
  );
}

/** The number of DeleteVolume calls. */
export function countDeletions(rig: Rig): number {
  return rig.driver.calls.filter(({ method }) => method === 'DeleteVolume').length;
}

/** The request of the last DeleteVolume. */
export function lastDeletion(rig: Rig): {
  readonly volumeId: string;
  readonly secrets: Readonly<Record<string, string>>;
} {
  const request = rig.driver.calls.findLast(({ method }) => method === 'DeleteVolume')?.request;
  assert.ok(
    request !== undefined && 'volumeId' in request && 'secrets' in request,
    'DeleteVolume was called',
  );
  // The driver decoded it as a DeleteVolumeRequest.
  return { volumeId: String(request.volumeId), secrets: request.secrets as Record<string, string> };
}

/** The warnings that were recorded, as "reason message". */
export function listWarnings(rig: Rig): readonly string[] {
  return rig.events
    .filter(({ type }) => type === 'Warning')
    .map(({ reason, message }) => `${reason} ${message}`);
}
