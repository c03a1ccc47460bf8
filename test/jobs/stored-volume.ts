import assert from 'node:assert/strict';
import { VOLUME_FINALIZER } from '#src/kube/keys.ts';
import type { Volume, VolumeSpec } from '#src/kube/objects.ts';
import { volumes } from '#src/kube/resources.ts';
import { type Bed, DRIVER, type NewClaim } from './rig.ts';

export interface StaticVolume {
  readonly annotations?: Readonly<Record<string, string>>;
  readonly labels?: Readonly<Record<string, string>>;
  readonly finalizers?: readonly string[];
  readonly spec?: Partial<VolumeSpec>;
  /** Instead of a CSI source. */
  readonly source?: Partial<VolumeSpec>;
  readonly phase?: 'Bound' | 'Released';
}

/** What the rig offers for cases of stored volumes. */
export function volumeTools(bed: Bed) {
  let count = 0;
  /** Edits a PV as a user would. */
  const edit = ({ metadata: { name } }: Volume, body: unknown) =>
    bed.kube.patch<Volume>(volumes, { name }, { type: 'merge', body });
  const deletions = () => bed.driver.calls.filter(({ method }) => method === 'DeleteVolume');
  return {
    edit,
    /** Provisions a volume and marks its PV Released, as if its claim were gone. */
    async createReleasedVolume(change: NewClaim = {}): Promise<Volume> {
      const claim = await bed.claim(change);
      assert.equal((await bed.provision(claim)).kind, 'done');
      const volume = await bed.volumeOf(claim);
      assert.ok(volume);
      return bed.setPhase(volume, 'Released');
    },
    /** Creates a PV by hand; by default Released, of our driver, with our finalizer. */
    async createStaticVolume(change: StaticVolume = {}): Promise<Volume> {
      const name = `by-hand-${(count += 1)}`;
      const { annotations = {}, labels = {}, spec = {}, phase = 'Released' } = change;
      const { finalizers = [VOLUME_FINALIZER] } = change;
      const { source = { csi: { driver: DRIVER, volumeHandle: `handle-of-${name}` } } } = change;
      const volume = await bed.kube.create<Volume>(volumes, undefined, {
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
      // The API server adds one of its own, which its controller removes when the volume is not
      // used.
      await edit(volume, { metadata: { finalizers: finalizers.length === 0 ? null : finalizers } });
      return bed.setPhase(volume, phase);
    },
    /** The PV as it is now. */
    readAgain: ({ metadata: { name } }: Volume) => bed.kube.get<Volume>(volumes, { name }),
    /** Whether a PV is gone, or is deleted and has only foreign finalizers. */
    async isDeleted(volume: Volume): Promise<boolean> {
      const now = await this.readAgain(volume);
      if (now === undefined) return true;
      const { deletionTimestamp, finalizers = [] } = now.metadata;
      return deletionTimestamp !== undefined && !finalizers.includes(VOLUME_FINALIZER);
    },
    /** The number of DeleteVolume calls. */
    countDeletions: () => deletions().length,
    /** The request of the last DeleteVolume. */
    lastDeletion() {
      const request = deletions().at(-1)?.request;
      assert.ok(
        request !== undefined && 'volumeId' in request && 'secrets' in request,
        'DeleteVolume was called',
      );
      return { volumeId: request.volumeId, secrets: request.secrets };
    },
    /** The warnings that were recorded, as "reason message". */
    warnings: (): readonly string[] =>
      bed.events
        .filter(({ type }) => type === 'Warning')
        .map(({ reason, message }) => `${reason} ${message}`),
  };
}
