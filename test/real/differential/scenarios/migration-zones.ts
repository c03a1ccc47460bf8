import { allowed, nodes, on } from '../../../harness/differential/cluster-nodes.ts';
import type { Scene } from '../../../harness/differential/scene.ts';
import type { Fields } from '../../../conformance/connection.ts';
import {
  AZURE_DISK,
  CINDER,
  EBS,
  type InTree,
  inTreeVolume,
  type Migrated,
  PD,
  VSPHERE,
} from './in-tree.ts';
import {
  all,
  bound,
  calls,
  event,
  refused,
  type Scenario,
} from '../../../harness/differential/scenario.ts';
import { type CallAnswer, volumeFor } from '../../../harness/differential/scripted-driver.ts';

const ZONE = 'topology.kubernetes.io/zone';
const OLD_ZONE = 'failure-domain.beta.kubernetes.io/zone';
const REGION = 'topology.kubernetes.io/region';
const OLD_REGION = 'failure-domain.beta.kubernetes.io/region';
const LATE = { volumeBindingMode: 'WaitForFirstConsumer' };

/** The five zonal drivers that replaced in-tree plug-ins. */
export const zonal: readonly Migrated[] = [
  plugin({
    ...EBS,
    key: 'topology.ebs.csi.aws.com/zone',
    zones: ['us-east-1a', 'us-east-1b'],
    hasZoneParameters: true,
    badZones: ['nowhere'],
    severalRegions: { zones: ['us-east-1a', 'eu-west-1a'], isDeletable: true },
  }),
  plugin({
    ...PD,
    key: 'topology.gke.io/zone',
    zones: ['us-central1-a', 'us-central1-b'],
    hasZoneParameters: true,
    badZones: ['nowhere'],
    severalRegions: { zones: ['us-central1-a', 'europe-west1-b'], isDeletable: false },
  }),
  plugin({
    ...AZURE_DISK,
    key: 'topology.disk.csi.azure.com/zone',
    zones: ['eastus-1', '2'],
    hasZoneParameters: true,
  }),
  plugin({
    ...CINDER,
    key: 'topology.cinder.csi.openstack.org/zone',
    zones: ['nova', 'b'],
  }),
  plugin({
    ...VSPHERE,
    key: 'topology.csi.vmware.com/zone',
    zones: ['zone-a', 'zone-b'],
    region: { 'topology.csi.vmware.com/region': 'region-1' },
  }),
];

interface Plugin extends InTree {
  /** The driver's key of topology. */
  readonly key: string;
  readonly zones: readonly [string, string];
  /** What the driver reports beside the zone. */
  readonly region?: Readonly<Record<string, string>>;
  /** The plug-in took zones as parameters of a class. */
  readonly hasZoneParameters?: boolean;
  /** Zones whose region can't be told. */
  readonly badZones?: readonly string[];
  /** Zones of two regions, and whether such a volume can be deleted. */
  readonly severalRegions?: { readonly zones: readonly string[]; readonly isDeletable: boolean };
}

function plugin(given: Plugin): Migrated {
  const { driver, inTree, zones } = given;
  const parameters: readonly Scenario[] =
    given.hasZoneParameters === true
      ? [
          made(
            given,
            { name: 'zone', title: 'asks for the zone in the parameters' },
            {
              parameters: { zone: zones[0] },
            },
          ),
          made(
            given,
            { name: 'zones', title: 'asks for the zones in the parameters' },
            {
              parameters: { zones: zones.join(',') },
            },
          ),
        ]
      : [
          made(
            given,
            { name: 'zone', title: 'leaves a zone in the parameters to the driver' },
            {
              parameters: { zone: zones[0] },
              // Nodes of other scenarios would decide without them.
              ...allowedZones(given.key, zones),
            },
          ),
        ];
  return {
    driver,
    inTree,
    scenarios: [
      ...parameters,
      made(
        given,
        { name: 'allowed', title: 'asks for zones by the driver’s key' },
        allowedZones(ZONE, zones),
      ),
      made(
        given,
        { name: 'allowed-old', title: 'knows the old key of zones' },
        allowedZones(OLD_ZONE, zones),
      ),
      made(
        given,
        { name: 'allowed-region', title: 'keeps the key of regions' },
        {
          allowedTopologies: [
            { matchLabelExpressions: [{ key: REGION, values: ['r1'] }] },
            ...allowedZones(ZONE, zones).allowedTopologies,
          ],
        },
      ),
      made(
        given,
        { name: 'allowed-own', title: 'keeps the driver’s own key' },
        allowedZones(given.key, zones),
      ),
      made(
        given,
        { name: 'everywhere', title: 'writes all zones that the driver names' },
        {},
        zones,
      ),
      late(given),
      fixed(given, 'static', { [ZONE]: zones[0], [REGION]: 'r1' }),
      fixed(given, 'static-old', { [OLD_ZONE]: zones[0], [OLD_REGION]: 'r1' }),
      fixed(given, 'static-two', { [ZONE]: zones.join('__') }),
      ...unusual(given),
    ],
  };
}

function made(
  given: Plugin,
  { name, title }: Pick<Scenario, 'name' | 'title'>,
  cls: Fields,
  zones?: readonly string[],
): Scenario {
  return {
    name: `zone-${name}`,
    title,
    // Of a class without topologies the requirement would depend on all nodes of the cluster.
    class: {
      provisioner: given.inTree,
      ...('allowedTopologies' in cls || 'parameters' in cls
        ? {}
        : allowedZones(given.key, given.zones)),
      ...cls,
    },
    answer: answerIn(given, zones),
    ends: bound,
  };
}

function late(given: Plugin): Scenario {
  const labels = { [given.key]: given.zones[0], ...given.region };
  return {
    name: 'zone-late',
    title: 'asks for the zone of the chosen node',
    class: (scene: Scene) => ({
      provisioner: given.inTree,
      ...LATE,
      ...allowed({ [ZONE]: given.zones })(scene),
    }),
    prepare: nodes({ n1: { labels } }),
    claim: on('n1'),
    answer: answerIn(given),
    ends: bound,
  };
}

/** A volume that the plug-in created, with these labels. */
function fixed(given: Plugin, name: string, labels: Readonly<Record<string, string>>): Scenario {
  return {
    name: `zone-${name}`,
    title: `deletes a volume of the plug-in with ${Object.keys(labels).join(' and ')}`,
    class: { provisioner: given.inTree },
    claim: null,
    ends: (scene) => inTreeVolume(scene, given, labels),
    afterwards: async (scene) => {
      await scene.deleteAll();
      await calls('DeleteVolume', 1)(scene);
    },
  };
}

/** Answers that have no usual in-tree form. */
function unusual(given: Plugin): readonly Scenario[] {
  const { badZones, severalRegions } = given;
  const scenarios: Scenario[] = [];
  if (badZones !== undefined)
    scenarios.push({
      ...made(
        given,
        { name: 'bad', title: 'creates no PersistentVolume whose region is unknown' },
        {},
        badZones,
      ),
      ends: all(calls('CreateVolume', 1), refused),
    });
  if (severalRegions !== undefined)
    scenarios.push({
      ...made(
        given,
        { name: 'regions', title: 'writes the region of each zone' },
        {},
        severalRegions.zones,
      ),
      ...(severalRegions.isDeletable
        ? {}
        : {
            afterwards: async (scene) => {
              await scene.remove(`${scene.claims}/data`);
              await event('VolumeFailedDelete')(scene);
            },
          }),
    });
  return scenarios;
}

/** @param zones where the volume is accessible. Default: in the first preferred part */
function answerIn(given: Plugin, zones?: readonly string[]): CallAnswer {
  return (call) => {
    if (call.method !== 'CreateVolume') return undefined;
    const preferred = call.create.accessibilityRequirements?.preferred.slice(0, 1) ?? [];
    const segments =
      zones?.map((zone) => ({ [given.key]: zone })) ?? preferred.map((part) => part.segments);
    return volumeFor(call.create, {
      volumeId: given.handle(call.create.name),
      volumeContext: given.context?.(call.create.name) ?? {},
      accessibleTopology: segments.map((part) => ({ segments: { ...part, ...given.region } })),
    });
  };
}

function allowedZones(key: string, values: readonly string[]) {
  return { allowedTopologies: [{ matchLabelExpressions: [{ key, values }] }] };
}
