import { allowed, nodes, on } from '../../../harness/differential/cluster-nodes.ts';
import type { Scene } from '../../../harness/differential/scene.ts';
import { VOLUMES, claim } from '../../../conformance/objects.ts';
import type { Fields } from '../../../conformance/connection.ts';
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

/** A zonal driver that replaced an in-tree plug-in. */
export interface Zonal {
  readonly driver: string;
  readonly inTree: string;
  readonly scenarios: readonly Scenario[];
}

/** The five zonal drivers that replaced in-tree plug-ins. */
export const zonal: readonly Zonal[] = [
  plugin({
    driver: 'ebs.csi.aws.com',
    inTree: 'kubernetes.io/aws-ebs',
    key: 'topology.ebs.csi.aws.com/zone',
    zones: ['us-east-1a', 'us-east-1b'],
    handle: (name) => `vol-${name}`,
    source: (name) => ({ awsElasticBlockStore: { volumeID: `vol-${name}` } }),
    hasZoneParameters: true,
    badZones: ['nowhere'],
    severalRegions: { zones: ['us-east-1a', 'eu-west-1a'], isDeletable: true },
  }),
  plugin({
    driver: 'pd.csi.storage.gke.io',
    inTree: 'kubernetes.io/gce-pd',
    key: 'topology.gke.io/zone',
    zones: ['us-central1-a', 'us-central1-b'],
    handle: (name) => `projects/p/zones/us-central1-a/disks/${name}`,
    source: (name) => ({ gcePersistentDisk: { pdName: name } }),
    hasZoneParameters: true,
    badZones: ['nowhere'],
    severalRegions: { zones: ['us-central1-a', 'europe-west1-b'], isDeletable: false },
  }),
  plugin({
    driver: 'disk.csi.azure.com',
    inTree: 'kubernetes.io/azure-disk',
    key: 'topology.disk.csi.azure.com/zone',
    zones: ['eastus-1', '2'],
    handle: (name) => `/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/${name}`,
    source: (name) => ({
      azureDisk: {
        diskName: name,
        diskURI: `/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/${name}`,
        kind: 'Managed',
      },
    }),
    hasZoneParameters: true,
  }),
  plugin({
    driver: 'cinder.csi.openstack.org',
    inTree: 'kubernetes.io/cinder',
    key: 'topology.cinder.csi.openstack.org/zone',
    zones: ['nova', 'b'],
    handle: (name) => name,
    source: (name) => ({ cinder: { volumeID: name } }),
  }),
  plugin({
    driver: 'csi.vsphere.vmware.com',
    inTree: 'kubernetes.io/vsphere-volume',
    key: 'topology.csi.vmware.com/zone',
    zones: ['zone-a', 'zone-b'],
    region: { 'topology.csi.vmware.com/region': 'region-1' },
    handle: (name) => name,
    context: (name) => ({ initialvolumefilepath: `[store] ${name}.vmdk` }),
    source: (name) => ({ vsphereVolume: { volumePath: `[store] ${name}.vmdk` } }),
  }),
];

interface Plugin {
  readonly driver: string;
  readonly inTree: string;
  /** The driver's key of topology. */
  readonly key: string;
  readonly zones: readonly [string, string];
  /** What the driver reports beside the zone. */
  readonly region?: Readonly<Record<string, string>>;
  readonly handle: (name: string) => string;
  readonly context?: (name: string) => Readonly<Record<string, string>>;
  /** The source of a volume that the plug-in created. */
  readonly source: (name: string) => Fields;
  /** The plug-in took zones as parameters of a class. */
  readonly hasZoneParameters?: boolean;
  /** Zones whose region can't be told. */
  readonly badZones?: readonly string[];
  /** Zones of two regions, and whether such a volume can be deleted. */
  readonly severalRegions?: { readonly zones: readonly string[]; readonly isDeletable: boolean };
}

function plugin(given: Plugin): Zonal {
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
    ends: async (scene) => {
      const volume = `static-${scene.className}`;
      await scene.create(VOLUMES, {
        apiVersion: 'v1',
        kind: 'PersistentVolume',
        metadata: {
          name: volume,
          labels,
          annotations: { 'pv.kubernetes.io/provisioned-by': given.inTree },
        },
        spec: {
          accessModes: ['ReadWriteOnce'],
          capacity: { storage: '1Gi' },
          storageClassName: scene.className,
          persistentVolumeReclaimPolicy: 'Delete',
          claimRef: { namespace: scene.namespace, name: 'data' },
          ...given.source(volume),
        },
      });
      const spec = { storageClassName: scene.className, volumeName: volume };
      await scene.create(scene.claims, claim('data', { spec }));
      await scene.untilBound();
      await scene.marker();
    },
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
