import type { FeatureGates } from './feature-gates.ts';

/** What a driver is called, and the in-tree plug-in that it took over from, if any (spec 07). */
export interface DriverNames {
  readonly name: string;
  readonly inTreeName?: string | undefined;
}

/** Whether a provisioner's name is one of the driver's. */
export function isKnownAs(driver: DriverNames, provisioner: string | undefined): boolean {
  return provisioner !== undefined && (provisioner === driver.name || provisioner === driver.inTreeName);
}

/** The driver, as far as the rules look at it. Capability names as csi.v1 spells them. */
export interface DriverFacts extends DriverNames {
  /** PluginCapability services, for example CONTROLLER_SERVICE. */
  readonly pluginCapabilities: ReadonlySet<string>;
  /** ControllerServiceCapability RPCs, for example CREATE_DELETE_VOLUME. */
  readonly controllerCapabilities: ReadonlySet<string>;
}

/** The provisioning flags of one driver (spec 01 §2). */
export interface ProvisioningOptions {
  readonly volumeNamePrefix: string;
  /** -1: the whole UID; else that many of its hex digits. */
  readonly volumeNameUuidLength: number;
  readonly defaultFsType: string;
  readonly extraCreateMetadata: boolean;
  readonly controllerPublishReadonly: boolean;
  /** A restore may change the volume mode only with the content's annotation. */
  readonly preventVolumeModeConversion: boolean;
  readonly gates: FeatureGates;
  /** Names this installation in the volume attributes of what it makes. */
  readonly identity: string;
}

/** The object whose change may end a refusal, and the version of it that was seen; '' = it is not there. */
export interface Awaited {
  /** Plural name of its resource. */
  readonly resource: string;
  readonly namespace?: string;
  readonly name: string;
  readonly seen: string;
}

/** A claim, class or volume that can't be served as it is. The message is what the user reads in the event. */
export class RefusedError extends Error {
  override readonly name = 'RefusedError';
  readonly waitsFor: Awaited | undefined;

  constructor(message: string, options: ErrorOptions & { readonly waitsFor?: Awaited } = {}) {
    super(message, options);
    this.waitsFor = options.waitsFor;
  }
}

/** Why a driver can't provision at all, or undefined (spec 02 §7.2). */
export function missingCapability(driver: DriverFacts): string | undefined {
  const prefix = 'CSI driver does not support dynamic provisioning:';
  if (!driver.pluginCapabilities.has('CONTROLLER_SERVICE')) return `${prefix} plugin CONTROLLER_SERVICE capability is not reported`;
  if (!driver.controllerCapabilities.has('CREATE_DELETE_VOLUME'))
    return `${prefix} controller CREATE_DELETE_VOLUME capability is not reported`;
  return undefined;
}
