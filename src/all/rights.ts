import type { KubeClient } from '../kube/client.ts';
import { ruleFor } from '../kube/missing-rights.ts';
import * as kinds from '../kube/resources.ts';
import type { Flags } from '../runtime/flags.ts';
import { parseFeatureGates, type provisioningFlags } from '../volumes/flags.ts';
import type { capacityFlags } from '../capacity/flags.ts';
import type { electionFlags } from '../election/flags.ts';

/** What `sutler all` asks of the API server, and what does not work without it. */
interface NeededRight {
  readonly feature: string;
  readonly resources: readonly kinds.Resource[];
  readonly verbs: readonly string[];
}

type NeededFlags = Flags<typeof provisioningFlags & typeof capacityFlags & typeof electionFlags>;

/** The rights that the flags need. Those that depend on the driver, or on what users ask for, are
 * among them: their features say so. */
export function neededRights(flags: NeededFlags): readonly NeededRight[] {
  const right = (feature: string, verbs: string, ...resources: kinds.Resource[]): NeededRight => ({
    feature,
    resources,
    verbs: verbs.split(' '),
  });
  const gates = parseFeatureGates(flags.featureGates);
  const isOn = (gate: 'Topology' | 'VolumeAttributesClass' | 'CrossNamespaceVolumeDataSource') =>
    typeof gates !== 'string' && gates[gate];
  const rights: readonly (NeededRight | false)[] = [
    right('provisioning', 'get list watch update', kinds.claims),
    right('provisioning and deletion', 'get list watch create patch delete', kinds.volumes),
    right('provisioning', 'list watch', kinds.classes),
    right('events', 'create patch', kinds.events),
    right('restores from snapshots', 'get', kinds.snapshots, kinds.snapshotContents),
    right('protection of snapshots while they are restored', 'list update', kinds.snapshots),
    right('deletion of volumes that a driver attaches', 'list watch', kinds.volumeAttachments),
    isOn('Topology') && right('drivers with topology', 'list watch', kinds.nodes, kinds.csiNodes),
    isOn('VolumeAttributesClass') &&
      right('claims with a VolumeAttributesClass', 'get', kinds.volumeAttributesClasses),
    isOn('CrossNamespaceVolumeDataSource') &&
      right('sources in other namespaces', 'list', kinds.referenceGrants),
    flags.leaderElection && right('leader election', 'get list watch create update', kinds.leases),
    flags.enableCapacity &&
      right('storage capacity', 'get list watch create patch delete', kinds.storageCapacities),
  ];
  return rights.filter((each) => each !== false);
}

interface Rule {
  readonly verbs: readonly string[];
  readonly apiGroups?: readonly string[];
  readonly resources?: readonly string[];
  readonly resourceNames?: readonly string[];
}

/** Asks the API server for the rights of this account.
 * @param namespace  of the pod
 * @returns for each feature that lacks one the rule that grants it; none where the API server does
 *   not tell all rules
 * @throws KubeError */
export async function missingRights(
  kube: Pick<KubeClient, 'create'>,
  namespace: string,
  needed: readonly NeededRight[],
): Promise<readonly { readonly feature: string; readonly rule: string }[]> {
  const { status } = await kube.create<{
    status?: { incomplete?: boolean; resourceRules?: readonly Rule[] };
  }>(kinds.ownRulesReviews, undefined, { spec: { namespace } });
  const { incomplete = true, resourceRules = [] } = status ?? {};
  if (incomplete) return [];
  return needed.flatMap(({ feature, resources, verbs }) =>
    resources.flatMap((resource) => {
      const missing = verbs.filter((verb) => !resourceRules.some(grants(verb, resource)));
      return missing.length === 0 ? [] : [{ feature, rule: ruleFor(resource, missing) }];
    }),
  );
}

function grants(verb: string, { group, plural }: kinds.Resource) {
  const has = (list: readonly string[] = [], value: string): boolean =>
    list.includes(value) || list.includes('*');
  return ({ verbs, apiGroups, resources, resourceNames = [] }: Rule): boolean =>
    resourceNames.length === 0 &&
    has(verbs, verb) &&
    has(apiGroups, group) &&
    has(resources, plural);
}
