import type { FeatureGates } from './feature-gates.ts';

/** The provisioning flags (flags.ts) as the rules read them. */
export interface ProvisioningOptions {
  readonly volumeNamePrefix: string;
  /** -1: the whole UID; otherwise the number of its hex digits to use. */
  readonly volumeNameUuidLength: number;
  readonly defaultFsType: string;
  readonly extraCreateMetadata: boolean;
  readonly controllerPublishReadonly: boolean;
  /** A restore may change the volume mode only if the snapshot content's annotation allows it. */
  readonly preventVolumeModeConversion: boolean;
  /** With a selected node, only its part of the cluster is asked for. */
  readonly strictTopology: boolean;
  /** Without a selected node, all parts of the cluster are named. */
  readonly immediateTopology: boolean;
  readonly gates: FeatureGates;
  /** Names this installation in the volume attributes of the volumes that it creates. */
  readonly identity: string;
}
