import type { FeatureGates } from './flags.ts';

/** The driver's name, and the name of the in-tree plug-in that it replaced, if any. */
export interface DriverNames {
  readonly name: string;
  readonly inTreeName?: string | undefined;
  /** The only node that this process serves; other nodes have their own processes. Undefined if it
   * serves all nodes. */
  readonly ownNode?: string | undefined;
}

/** Whether a provisioner's name is one of the driver's. Upstream:
 * sig-storage-lib-external-provisioner controller/controller.go knownProvisioner. */
export function isKnownAs(driver: DriverNames, provisioner: string | undefined): boolean {
  return provisioner !== undefined && [driver.name, driver.inTreeName].includes(provisioner);
}

/** What the rules know about the driver. Capability names are spelled as in csi.v1. */
export interface DriverFacts extends DriverNames {
  /** PluginCapability services, for example CONTROLLER_SERVICE. */
  readonly pluginCapabilities: ReadonlySet<string>;
  /** ControllerServiceCapability RPCs, for example CREATE_DELETE_VOLUME. */
  readonly controllerCapabilities: ReadonlySet<string>;
}

/** What fills a volume: the driver from a snapshot or by a clone, or a populator. */
export type SourceKind = 'snapshot' | 'clone' | 'populator';

/** The message about the first capability that the driver lacks, or undefined. Upstream:
 * external-provisioner pkg/controller/controller.go checkDriverCapabilities.
 * @param claim.modifies it names a VolumeAttributesClass */
export function missingCapability(
  driver: DriverFacts,
  claim: { readonly sourceKind?: SourceKind | undefined; readonly modifies?: boolean } = {},
): string | undefined {
  const { sourceKind, modifies = false } = claim;
  const needs = [
    ['dynamic provisioning', 'plugin', 'CONTROLLER_SERVICE', true],
    ['dynamic provisioning', 'controller', 'CREATE_DELETE_VOLUME', true],
    ['snapshot restore', 'controller', 'CREATE_DELETE_SNAPSHOT', sourceKind === 'snapshot'],
    ['clone operations', 'controller', 'CLONE_VOLUME', sourceKind === 'clone'],
    ['VolumeAttributesClass', 'controller', 'MODIFY_VOLUME', modifies],
  ] as const;
  const reported = { plugin: driver.pluginCapabilities, controller: driver.controllerCapabilities };
  const missing = needs.find(
    ([, kind, capability, isNeeded]) => isNeeded && !reported[kind].has(capability),
  );
  if (missing === undefined) return undefined;
  const [what, kind, capability] = missing;
  return `CSI driver does not support ${what}: ${kind} ${capability} capability is not reported`;
}

/** Whether the driver's volumes can be reached from a part of the cluster only. Upstream:
 * external-provisioner pkg/controller/controller.go supportsTopology. */
export function supportsTopology(driver: DriverFacts, gates: FeatureGates): boolean {
  return gates.Topology && driver.pluginCapabilities.has('VOLUME_ACCESSIBILITY_CONSTRAINTS');
}
