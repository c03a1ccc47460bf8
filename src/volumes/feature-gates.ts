import { parseBool } from '../runtime/parse-bool.ts';

/** The gates of upstream that sutler supports, and how mature each is. Upstream:
 * external-provisioner pkg/features/features.go. */
const GATE_STAGES = {
  Topology: 'ga',
  CrossNamespaceVolumeDataSource: 'alpha',
  VolumeAttributesClass: 'ga',
  ReleaseLeaderElectionOnExit: 'alpha',
} as const;

type Gate = keyof typeof GATE_STAGES;

/** Whether each gate is on. */
export type FeatureGates = Readonly<Record<Gate, boolean>>;

/** The gates without --feature-gates. */
export const DEFAULT_GATES: FeatureGates = {
  Topology: true,
  CrossNamespaceVolumeDataSource: false,
  VolumeAttributesClass: true,
  ReleaseLeaderElectionOnExit: false,
};

/** Parses the items of `A=true,B=false`. AllAlpha and AllBeta set the gates that are not named.
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
    if (!isGate(name) && name !== 'AllAlpha' && name !== 'AllBeta') {
      const known = Object.keys(GATE_STAGES).join(', ');
      return `unrecognized feature gate: ${name}; there are ${known}, AllAlpha and AllBeta`;
    }
    given.set(name, value);
  }
  const allAlpha = given.get('AllAlpha');
  const valueOf = (name: Gate): boolean =>
    given.get(name) ?? (GATE_STAGES[name] === 'alpha' ? (allAlpha ?? false) : true);
  return {
    Topology: valueOf('Topology'),
    CrossNamespaceVolumeDataSource: valueOf('CrossNamespaceVolumeDataSource'),
    VolumeAttributesClass: valueOf('VolumeAttributesClass'),
    ReleaseLeaderElectionOnExit: valueOf('ReleaseLeaderElectionOnExit'),
  };
}

function isGate(name: string): name is Gate {
  return Object.hasOwn(GATE_STAGES, name);
}
