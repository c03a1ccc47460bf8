import { type Flags, parseBool, perDriver } from '../runtime/flags.ts';

/** The flags that decide how volumes are named and created. ingest and jobs need the same values,
 * since both compute names. */
export const provisioningFlags = perDriver({
  'volume-name-prefix': {
    type: 'string',
    default: 'pvc',
    help: 'First part of the CSI volume name and PV name.',
    upstream: 'same',
  },
  'volume-name-uuid-length': {
    type: 'int',
    default: -1,
    min: -1,
    max: 32,
    help: 'Hex digits of the claim’s UID in the volume name, 1 to 32; -1: the whole UID.',
    upstream: 'same; 0 and values above 32 are refused here',
  },
  'default-fstype': {
    type: 'string',
    default: '',
    help: 'File system for classes that name none.',
    upstream: 'same',
  },
  'extra-create-metadata': {
    type: 'bool',
    default: false,
    help: 'Adds the names of the claim and the PV to the CreateVolume parameters.',
    upstream: 'same',
  },
  'controller-publish-readonly': {
    type: 'bool',
    default: false,
    help: 'Marks the PV read-only if ReadOnlyMany is the only access mode of the claim.',
    upstream: 'same',
  },
  'prevent-volume-mode-conversion': {
    type: 'bool',
    default: true,
    help:
      'A restore may change the volume mode of a snapshot only if an annotation of the ' +
      'VolumeSnapshotContent allows it.',
    upstream: 'same',
  },
  'strict-topology': {
    type: 'bool',
    default: false,
    help:
      'For a claim with a selected node, allows the driver only that node’s part of the cluster. ' +
      'false: that part is only preferred.',
    upstream: 'same',
  },
  'immediate-topology': {
    type: 'bool',
    default: true,
    help:
      'For a claim without a selected node and a class without allowed topologies, tells the ' +
      'driver all parts of the cluster. false: the driver chooses.',
    upstream: 'same',
  },
  'feature-gates': {
    type: 'strings',
    default: '',
    help:
      'Feature gates as NAME=true|false: Topology, CrossNamespaceVolumeDataSource, ' +
      'VolumeAttributesClass, ReleaseLeaderElectionOnExit, AllAlpha, AllBeta.',
    upstream: 'same; other names are refused',
  },
});

/** The provisioning flags as the rules read them. */
export interface ProvisioningOptions extends Omit<Flags<typeof provisioningFlags>, 'featureGates'> {
  readonly gates: FeatureGates;
  /** Names this installation in the volume attributes of the volumes that it creates. */
  readonly identity: string;
}

/** The gates of upstream that sutler supports, and how mature each is. Upstream:
 * external-provisioner pkg/features/features.go. */
const GATE_STAGES = {
  Topology: 'ga',
  CrossNamespaceVolumeDataSource: 'alpha',
  VolumeAttributesClass: 'ga',
  ReleaseLeaderElectionOnExit: 'alpha',
} as const;

/** Gates that upstream has removed, because they are always on; so they are in sutler. Manifests of
 * drivers still set them. */
const RETIRED_GATES = new Set(['HonorPVReclaimPolicy']);

/** Whether each gate is on. */
export type FeatureGates = Readonly<Record<keyof typeof GATE_STAGES, boolean>>;

/** The gates without --feature-gates. */
export const DEFAULT_GATES = applyGates(new Map());

/** Parses the items of `A=true,B=false`. AllAlpha sets the alpha gates that are not named; AllBeta
 * is accepted, but there is no beta gate.
 * @returns a text that names the first wrong item and the fix, if there is one */
export function parseFeatureGates(items: readonly string[]): FeatureGates | string {
  const given = new Map<string, boolean>();
  for (const item of items) {
    const at = item.indexOf('=');
    if (at === -1) return `missing value in "${item}"; write ${item}=true or ${item}=false`;
    const name = item.slice(0, at).trim();
    const value = parseBool(item.slice(at + 1).trim());
    if (value === undefined)
      return `invalid value in "${item}"; write ${name}=true or ${name}=false`;
    const isKnown = Object.hasOwn(GATE_STAGES, name) || RETIRED_GATES.has(name);
    if (!isKnown && name !== 'AllAlpha' && name !== 'AllBeta') {
      const known = Object.keys(GATE_STAGES).join(', ');
      return `unrecognized feature gate: ${name}; there are ${known}, AllAlpha and AllBeta`;
    }
    given.set(name, value);
  }
  return applyGates(given);
}

/** The gates among the items of `A=true,B=false` that upstream has retired. */
export function retiredGates(items: readonly string[]): readonly string[] {
  const names = items.map((item) => item.split('=', 1).join('').trim());
  return names.filter((name) => RETIRED_GATES.has(name));
}

function applyGates(given: ReadonlyMap<string, boolean>): FeatureGates {
  const gates = Object.entries(GATE_STAGES).map(([name, stage]) => {
    const byDefault = stage === 'alpha' ? (given.get('AllAlpha') ?? false) : true;
    return [name, given.get(name) ?? byDefault] as const;
  });
  return Object.fromEntries(gates) as FeatureGates;
}
