import { parseBool } from '../runtime/parse-bool.ts';

/** The gates of upstream that sutler supports, and how mature each is. Upstream:
 * external-provisioner pkg/features/features.go. */
const GATE_STAGES = {
  Topology: 'ga',
  CrossNamespaceVolumeDataSource: 'alpha',
  VolumeAttributesClass: 'ga',
  ReleaseLeaderElectionOnExit: 'alpha',
} as const;

/** Gates that upstream has removed since what they switched on became its only behaviour, which is
 * ours too. Manifests of drivers still set them. */
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
