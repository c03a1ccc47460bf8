import type { Fields } from '../../../conformance/connection.ts';
import { makeSnapshot } from '../../../harness/differential/snapshot-objects.ts';
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
  calls,
  refused,
  scenario,
  type Scenario,
} from '../../../harness/differential/scenario.ts';
import { type CallAnswer, volumeFor } from '../../../harness/differential/scripted-driver.ts';

/** The seven drivers that replaced in-tree plug-ins, those of the clouds first: in two lists, for
 * two test files that run in parallel. */
export const ofClouds: readonly Migrated[] = [
  plugin({
    ...EBS,
    parameters: { Type: 'io1', iopsPerGB: '10', fsType: 'ext4' },
    untranslatable: () => ({ volumeContext: { partition: '' } }),
    hasZones: true,
  }),
  plugin({
    ...PD,
    parameters: { type: 'pd-ssd', 'replication-type': 'none', fstype: 'ext4' },
    untranslatable: (name) => ({ volumeId: `two/${name}` }),
    hasZones: true,
  }),
  plugin({
    ...AZURE_DISK,
    parameters: { storageaccounttype: 'Premium_LRS', kind: 'Managed', fsType: 'ext4' },
    untranslatable: (name) => ({ volumeId: `no-uri-${name}` }),
    hasZones: true,
  }),
  plugin({
    driver: 'file.csi.azure.com',
    inTree: 'kubernetes.io/azure-file',
    parameters: { skuName: 'Standard_LRS', fstype: 'cifs' },
    handle: (name) => `group#account#${name}#`,
    source: (name) => ({
      azureFile: {
        secretName: 'azure-storage-account-acc-secret',
        secretNamespace: 'default',
        shareName: name,
      },
    }),
    untranslatable: (name) => ({ volumeId: `no-parts-${name}` }),
  }),
];

export const ofOthers: readonly Migrated[] = [
  plugin({
    ...CINDER,
    parameters: { type: 'fast', availability: 'nova', fstype: 'ext4' },
  }),
  plugin({
    ...VSPHERE,
    parameters: { diskformat: 'thin', storagePolicyName: 'gold', fstype: 'ext4', unknown: 'x' },
  }),
  plugin({
    driver: 'pxd.portworx.com',
    inTree: 'kubernetes.io/portworx-volume',
    parameters: { repl: '2', fs: 'ext4' },
    handle: (name) => name,
    source: (name) => ({ portworxVolume: { volumeID: name, fsType: 'xfs' } }),
  }),
];

interface Plugin extends InTree {
  /** Parameters of a class. */
  readonly parameters: Readonly<Record<string, string>>;
  /** Changes of the driver's answer after which the volume has no in-tree form. */
  readonly untranslatable?: (name: string) => Fields;
  readonly hasZones?: boolean;
}

function plugin(given: Plugin): Migrated {
  const answer: CallAnswer = (call) =>
    call.method === 'CreateVolume'
      ? volumeFor(call.create, picture(given, call.create.name))
      : undefined;
  const inTree = { provisioner: given.inTree };
  const scenarios: Scenario[] = [
    scenario('mig-plain', 'creates the volume of an in-tree class (G-02)', {
      class: { ...inTree, parameters: given.parameters },
      answer,
    }),
    scenario('mig-bare', 'creates the volume of an in-tree class without parameters', {
      class: inTree,
      answer,
    }),
    scenario('mig-native', 'does not translate a class of its own (G-04)', {
      class: { provisioner: given.driver, parameters: given.parameters },
      answer,
    }),
    scenario('mig-block', 'creates a Block volume of an in-tree class', {
      class: { ...inTree, mountOptions: ['a'] },
      claim: { spec: { volumeMode: 'Block', accessModes: ['ReadWriteOnce', 'ReadOnlyMany'] } },
      answer,
    }),
    scenario('mig-secrets', 'keeps the annotations of secrets', {
      class: (scene) => ({
        ...inTree,
        parameters: {
          'csi.storage.k8s.io/secret-name': 'creds',
          'csi.storage.k8s.io/secret-namespace': scene.namespace,
        },
      }),
      prepare: (scene) => scene.makeSecret('creds', { user: 'anna' }),
      answer,
    }),
    scenario('mig-snapshot', 'restores into an in-tree class that its translation names (R-41)', {
      class: inTree,
      prepare: (scene) => makeSnapshot(scene, 'snap'),
      claim: {
        spec: {
          dataSource: {
            apiGroup: 'snapshot.storage.k8s.io',
            kind: 'VolumeSnapshot',
            name: 'snap',
          },
        },
      },
      answer,
      ends: (scene) =>
        scene.until('it is decided', () =>
          ['ProvisioningFailed', 'ProvisioningSucceeded'].some((reason) => scene.hasEvent(reason)),
        ),
    }),
    scenario('mig-static', 'deletes a volume that the plug-in created (G-10)', {
      class: inTree,
      claim: null,
      ends: (scene) => inTreeVolume(scene, given),
      afterwards: async (scene) => {
        await scene.deleteAll();
        await calls('DeleteVolume', 1)(scene);
      },
    }),
    scenario('mig-topologies', 'accepts topologies of a class for a driver without topology', {
      class: {
        ...inTree,
        allowedTopologies: [
          {
            matchLabelExpressions: [{ key: 'topology.kubernetes.io/zone', values: ['us-east-1a'] }],
          },
        ],
      },
      answer,
    }),
  ];
  if (given.hasZones === true) {
    scenarios.push(
      scenario('mig-zone', 'keeps the zone from the driver', {
        class: { ...inTree, parameters: { zone: 'us-east-1a' } },
        answer,
      }),
      scenario('mig-zones-twice', 'refuses zones by parameter and by topology', {
        class: {
          ...inTree,
          parameters: { zones: 'us-east-1a,us-east-1b' },
          allowedTopologies: [
            {
              matchLabelExpressions: [
                { key: 'topology.kubernetes.io/zone', values: ['us-east-1a'] },
              ],
            },
          ],
        },
        ends: refused,
      }),
    );
  }
  const { untranslatable } = given;
  if (untranslatable !== undefined) {
    scenarios.push(
      scenario('mig-untranslatable', 'creates no PersistentVolume without an in-tree form', {
        class: inTree,
        answer: (call) =>
          call.method === 'CreateVolume'
            ? volumeFor(call.create, {
                ...picture(given, call.create.name),
                ...untranslatable(call.create.name),
              })
            : undefined,
        ends: all(calls('CreateVolume', 1), refused),
      }),
    );
  }
  return { driver: given.driver, inTree: given.inTree, scenarios };
}

function picture(
  given: Plugin,
  name: string,
): { readonly volumeId: string; readonly volumeContext: Readonly<Record<string, string>> } {
  return { volumeId: given.handle(name), volumeContext: given.context?.(name) ?? {} };
}
