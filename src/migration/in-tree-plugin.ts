import { RESERVED_PARAMETER_PREFIX } from '../kube/keys.ts';
import type { Class, CsiSource, Labels, ObjectMeta, VolumeSpec } from '../kube/objects.ts';
import { RefusedError } from '../rules/rule.ts';
import { omitUnset } from '../runtime/json.ts';

/** A field of a PV's spec that contains the source of an in-tree volume. */
export type SourceField =
  | 'gcePersistentDisk'
  | 'awsElasticBlockStore'
  | 'cinder'
  | 'azureDisk'
  | 'azureFile'
  | 'vsphereVolume'
  | 'portworxVolume';

type InTreeSource<F extends SourceField> = NonNullable<VolumeSpec[F]>;

/** An in-tree volume plug-in, and how its classes and volumes are translated for the CSI driver
 * that replaced it. Upstream: csi-translation-lib plugins/in_tree_volume.go InTreePlugin. */
export interface InTreePlugin<F extends SourceField = SourceField> {
  /** The provisioner in classes and in annotations of claims. */
  readonly inTreeName: string;
  readonly csiDriver: string;
  readonly source: F;

  /** The class with the parameters and allowed topologies that the driver understands.
   * Upstream: TranslateInTreeStorageClassToCSI. */
  translateClass(cls: Class): Class;

  /** Identifies the volume among all volumes of its driver; '' if the source names no volume.
   * @param claimNamespace namespace of the PV's claim, '' for none */
  identify(source: InTreeSource<F>, claimNamespace: string): string;

  /** The driver's handle of a stored PV. Upstream: TranslateInTreePVToCSI.
   * @throws RefusedError for a source without a CSI form */
  toHandle(source: InTreeSource<F>, volume: VolumeParts): string;

  /** The in-tree source of a volume that the driver created. Upstream: TranslateCSIPVToInTree.
   * @throws RefusedError for a property that the in-tree source can't express */
  toInTreeSource(csi: CsiSource): InTreeSource<F>;

  /** Translates the rest of a new PV back: topology, labels, annotations.
   * @throws RefusedError for zones without a common region */
  finishInTree?<V extends VolumeParts>(volume: V, csi: CsiSource): V;
}

/** The parts of a PV, stored or new, that translation reads and changes. */
export interface VolumeParts {
  readonly metadata: Pick<ObjectMeta, 'name' | 'annotations' | 'labels'>;
  readonly spec: VolumeSpec;
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

/** Values by lower-cased key. If a key has several spellings, the last in byte order counts (lower
 * case), so that the result does not depend on the order of the keys. */
export function indexByLowerCase(given: Labels | undefined): ReadonlyMap<string, string> {
  const sorted = Object.entries(given ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  return new Map(sorted.map(([key, value]) => [key.toLowerCase(), value]));
}

/** Leaves out some keys in every spelling. */
export function omitKeys(given: Labels | undefined, ...lowerCaseKeys: string[]): Labels {
  return Object.fromEntries(
    Object.entries(given ?? {}).filter(([key]) => !lowerCaseKeys.includes(key.toLowerCase())),
  );
}

/** Moves the class parameter `fstype` to the key that CSI uses; it replaces a value that the class
 * already has there. */
export function renameFsType(cls: Class): Class {
  const fsType = indexByLowerCase(cls.parameters).get('fstype');
  const others = omitKeys(cls.parameters, 'fstype');
  const renamed = omitUnset({ [`${RESERVED_PARAMETER_PREFIX}fstype`]: fsType });
  return { ...cls, parameters: { ...others, ...renamed } };
}
