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
  readonly gates: FeatureGates;
  /** Names this installation in the volume attributes of the volumes that it creates. */
  readonly identity: string;
}
