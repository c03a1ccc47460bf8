import type { CsiSource, ObjectMeta, VolumeSpec } from '../../kube/objects.ts';
import { RefusedError } from '../provisioning-options.ts';

/** What translation reads and writes of a PV, stored or new. */
export interface VolumeParts {
  readonly metadata: Pick<ObjectMeta, 'name' | 'annotations' | 'labels'>;
  readonly spec: VolumeSpec;
}

/** The volume with changes to its spec. */
export function withSpec<V extends VolumeParts>(volume: V, change: Partial<VolumeSpec>): V {
  return { ...volume, spec: { ...volume.spec, ...change } };
}

/** The volume with a label, if it has none of that key. */
export function withDefaultLabel<V extends VolumeParts>(volume: V, key: string, value: string): V {
  if (volume.metadata.labels?.[key] !== undefined) return volume;
  return {
    ...volume,
    metadata: { ...volume.metadata, labels: { ...volume.metadata.labels, [key]: value } },
  };
}

interface MountFields {
  readonly fsType?: string | undefined;
  readonly readOnly?: boolean | undefined;
}

/** The two fields that most sources spell alike, as far as they are set. */
export function mountFields({
  fsType,
  readOnly,
}: MountFields): Pick<CsiSource, 'fsType' | 'readOnly'> {
  return {
    ...(fsType === undefined ? {} : { fsType }),
    ...(readOnly === undefined ? {} : { readOnly }),
  };
}

/** A partition number of volume attributes.
 * @param failed the clouds' spelling
 * @throws RefusedError for a text that is none */
export function readPartition(text: string, failed: 'Failed' | 'failed'): number {
  const number = /^[+-]?\d+$/.test(text) ? Number(text) : Infinity;
  if (Math.abs(number) < 2 ** 31) return number;
  throw new RefusedError(
    `${failed} to convert partition ${text} to integer: it is no whole number of 32 bits`,
  );
}
