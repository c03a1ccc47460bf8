import type { Class, CsiSource, VolumeSpec } from '../kube/objects.ts';
import type { VolumeParts } from './volume-parts.ts';

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

  /** What tells the volume from all others of its driver; '' if the source names no volume.
   * @param claimNamespace namespace of the PV's claim, '' for none */
  identify(source: InTreeSource<F>, claimNamespace: string): string;

  /** The CSI source of a stored PV, without the driver's name. Upstream: TranslateInTreePVToCSI.
   * @param volume the PV without its in-tree source
   * @throws RefusedError for a source without a CSI form */
  toCsiSource(source: InTreeSource<F>, volume: VolumeParts): Omit<CsiSource, 'driver'>;

  /** What else of a stored PV is translated for the driver: topology, access modes. */
  finishCsi?<V extends VolumeParts>(volume: V): V;

  /** The in-tree source of a volume that the driver created. Upstream: TranslateCSIPVToInTree.
   * @throws RefusedError for what the in-tree source can't express */
  toInTreeSource(csi: CsiSource): InTreeSource<F>;

  /** What else of a new PV is translated back: topology, labels, annotations.
   * @throws RefusedError for zones without a common region */
  finishInTree?<V extends VolumeParts>(volume: V, csi: CsiSource): V;
}
