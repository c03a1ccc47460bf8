import type { FeatureGates } from './feature-gates.ts';

/** What a driver is called, and the in-tree plug-in that it took over from, if any (spec 07). */
export interface DriverNames {
  readonly name: string;
  readonly inTreeName?: string | undefined;
}

/** Whether a provisioner's name is one of the driver's. */
export function isKnownAs(driver: DriverNames, provisioner: string | undefined): boolean {
  return (
    provisioner !== undefined && (provisioner === driver.name || provisioner === driver.inTreeName)
  );
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

/** The object whose change may end a refusal, and the version of it that was seen; '' = it is not
 * there. */
export interface WaitCondition {
  /** Plural name of its resource. */
  readonly resource: string;
  readonly namespace?: string;
  readonly name: string;
  readonly seen: string;
}

/** A claim, class or volume that can't be served as it is. The message is what the user reads in
 * the event. */
export class RefusedError extends Error {
  override readonly name = 'RefusedError';
  /** None: nobody can say what would end it. */
  readonly waitsFor: readonly WaitCondition[];

  constructor(
    message: string,
    options: ErrorOptions & { readonly waitsFor?: readonly WaitCondition[] } = {},
  ) {
    super(message, options);
    this.waitsFor = options.waitsFor ?? [];
  }
}

/** Does what may be refused.
 * @param refused what comes of a refusal; any other error is a defect and passes */
export function onRefusal<T>(act: () => T, refused: (refusal: RefusedError) => T): T {
  try {
    return act();
  } catch (error) {
    if (error instanceof RefusedError) return refused(error);
    throw error;
  }
}

/** What a claim asks of the driver besides a volume. */
export interface Demands {
  readonly sourceKind?: 'snapshot' | 'clone' | 'populator' | undefined;
  /** The claim names a VolumeAttributesClass. */
  readonly modifies?: boolean;
}

/** Which capability the driver lacks for what is asked, or undefined (spec 02 §7.2). */
export function missingCapability(
  driver: DriverFacts,
  { sourceKind, modifies = false }: Demands = {},
): string | undefined {
  const lacks = (
    what: string,
    kind: 'plugin' | 'controller',
    capability: string,
  ): string | undefined => {
    const reported = kind === 'plugin' ? driver.pluginCapabilities : driver.controllerCapabilities;
    return reported.has(capability)
      ? undefined
      : `CSI driver does not support ${what}: ${kind} ${capability} capability is not reported`;
  };
  return (
    lacks('dynamic provisioning', 'plugin', 'CONTROLLER_SERVICE') ??
    lacks('dynamic provisioning', 'controller', 'CREATE_DELETE_VOLUME') ??
    (sourceKind === 'snapshot'
      ? lacks('snapshot restore', 'controller', 'CREATE_DELETE_SNAPSHOT')
      : undefined) ??
    (sourceKind === 'clone'
      ? lacks('clone operations', 'controller', 'CLONE_VOLUME')
      : undefined) ??
    (modifies ? lacks('VolumeAttributesClass', 'controller', 'MODIFY_VOLUME') : undefined)
  );
}

/** Whether volumes of the driver belong to parts of the cluster (spec 04 A). */
export function supportsTopology(driver: DriverFacts, gates: FeatureGates): boolean {
  return gates.Topology && driver.pluginCapabilities.has('VOLUME_ACCESSIBILITY_CONSTRAINTS');
}
