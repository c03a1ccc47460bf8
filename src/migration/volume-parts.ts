import type { CsiSource, ObjectMeta, VolumeSpec } from '../kube/objects.ts';
import { omitUnset } from '../runtime/json.ts';
import { RefusedError } from '../rules/refused-error.ts';

/** The parts of a PV, stored or new, that translation reads and changes. */
export interface VolumeParts {
  readonly metadata: Pick<ObjectMeta, 'name' | 'annotations' | 'labels'>;
  readonly spec: VolumeSpec;
}

/** Changes fields of the volume's spec. */
export function withSpec<V extends VolumeParts>(volume: V, change: Partial<VolumeSpec>): V {
  return { ...volume, spec: { ...volume.spec, ...change } };
}

/** Adds a label unless the volume has one with that key. */
export function withDefaultLabel<V extends VolumeParts>(volume: V, key: string, value: string): V {
  const { labels } = volume.metadata;
  if (labels?.[key] !== undefined) return volume;
  return { ...volume, metadata: { ...volume.metadata, labels: { ...labels, [key]: value } } };
}

type MountFields = Pick<CsiSource, 'fsType' | 'readOnly'>;

/** The two fields that most sources share, as far as they are set. */
export function mountFields({ fsType, readOnly }: MountFields): MountFields {
  return omitUnset({ fsType, readOnly });
}

/** Parses the partition number of volume attributes.
 * @param failed upstream's plug-ins spell the refusal differently
 * @throws RefusedError for anything but a whole number of 32 bits */
export function parsePartition(text: string, failed: 'Failed' | 'failed'): number {
  const number = /^[+-]?\d+$/.test(text) ? Number(text) : Infinity;
  if (Math.abs(number) < 2 ** 31) return number;
  throw new RefusedError(
    `${failed} to convert partition ${text} to integer: it is no whole number of 32 bits`,
  );
}
