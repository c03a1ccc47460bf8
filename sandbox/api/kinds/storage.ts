import type { Cause } from '../api-error.ts';
import { ageColumn, nameColumn, textColumn } from '../columns.ts';
import { forbiddenValue, immutable, invalidValue, notSupported, required } from '../field-error.ts';
import {
  equalJson,
  memberAt,
  objectAt,
  plainText,
  textAt,
  textsAt,
  type JsonObject,
} from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { qualifiedNameComplaint, subdomainComplaint } from '../names.ts';
import { compareQuantities } from '../quantity.ts';
import type { Resource } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';

const GROUP = { group: 'storage.k8s.io', version: 'v1' } as const;

/** The errors for changed members that are immutable after creation. */
function immutableCauses(object: KubeObject, old: KubeObject, members: readonly string[]): Cause[] {
  return members
    .filter((name) => !equalJson(object[name], old[name]))
    .map((name) => immutable(name, object[name]));
}

/** StorageClasses. */
export const classes: Resource = {
  ...GROUP,
  plural: 'storageclasses',
  singular: 'storageclass',
  kind: 'StorageClass',
  shortNames: ['sc'],
  namespaced: false,
  struct: schemaOf('StorageClass'),
  returnsDeleted: true,
  applyDefaults(object) {
    object['reclaimPolicy'] ??= 'Delete';
    object['volumeBindingMode'] ??= 'Immediate';
  },
  validate(object) {
    const causes: Cause[] = [];
    const provisioner = textAt(object, 'provisioner');
    if (provisioner === '') causes.push(required('provisioner'));
    else {
      const complaint = qualifiedNameComplaint(provisioner.toLowerCase());
      if (complaint !== undefined) causes.push(invalidValue('provisioner', provisioner, complaint));
    }
    for (const key of Object.keys(objectAt(object, 'parameters')))
      if (key === '') causes.push(invalidValue('parameters', key, 'field can not be empty.'));
    const policy = textAt(object, 'reclaimPolicy');
    if (policy !== 'Delete' && policy !== 'Retain')
      causes.push(notSupported('reclaimPolicy', policy, ['Delete', 'Retain']));
    const mode = textAt(object, 'volumeBindingMode');
    if (mode !== 'Immediate' && mode !== 'WaitForFirstConsumer') {
      causes.push(notSupported('volumeBindingMode', mode, ['Immediate', 'WaitForFirstConsumer']));
    }
    return causes;
  },
  validateUpdate: (object, old) =>
    immutableCauses(object, old, [
      'parameters',
      'provisioner',
      'reclaimPolicy',
      'volumeBindingMode',
    ]),
  columns: [
    {
      ...nameColumn,
      cell: (o) => {
        const isDefault =
          o.metadata.annotations?.['storageclass.kubernetes.io/is-default-class'] === 'true';
        return isDefault ? `${o.metadata.name} (default)` : o.metadata.name;
      },
    },
    textColumn('Provisioner', (o) => textAt(o, 'provisioner')),
    textColumn('ReclaimPolicy', (o) => textAt(o, 'reclaimPolicy')),
    textColumn('VolumeBindingMode', (o) => textAt(o, 'volumeBindingMode')),
    textColumn('AllowVolumeExpansion', (o) => String(o['allowVolumeExpansion'] === true)),
    ageColumn,
  ],
};

function driversOf(csiNode: KubeObject): readonly JsonObject[] {
  return (memberAt(csiNode, 'spec', 'drivers') as JsonObject[] | undefined) ?? [];
}

/** CSINodes: the drivers of a node, with its ID and topology keys. A driver can be added and
 * removed; its entry can't be changed. */
export const csiNodes: Resource = {
  ...GROUP,
  plural: 'csinodes',
  singular: 'csinode',
  kind: 'CSINode',
  namespaced: false,
  struct: schemaOf('CSINode'),
  returnsDeleted: true,
  needsResourceVersion: true,
  applyDefaults(object) {
    objectAt(object, 'spec')['drivers'] ??= [];
  },
  validateUpdate(object, old) {
    const known = new Map(driversOf(old).map((driver) => [textAt(driver, 'name'), driver]));
    return driversOf(object)
      .filter((driver) => {
        const before = known.get(textAt(driver, 'name'));
        return before !== undefined && !equalJson(driver, before);
      })
      .map((driver) => immutable('spec.drivers', driver));
  },
  columns: [
    nameColumn,
    {
      name: 'Drivers',
      type: 'integer',
      cell: (o) => driversOf(o).length,
    },
    ageColumn,
  ],
};

/** CSIDrivers. */
export const csiDrivers: Resource = {
  ...GROUP,
  plural: 'csidrivers',
  singular: 'csidriver',
  kind: 'CSIDriver',
  namespaced: false,
  struct: schemaOf('CSIDriver'),
  returnsDeleted: true,
  needsResourceVersion: true,
  applyDefaults(object) {
    const spec = objectAt(object, 'spec');
    spec['attachRequired'] ??= true;
    spec['podInfoOnMount'] ??= false;
    spec['storageCapacity'] ??= false;
    spec['fsGroupPolicy'] ??= 'ReadWriteOnceWithFSType';
    spec['volumeLifecycleModes'] ??= ['Persistent'];
    spec['requiresRepublish'] ??= false;
    spec['seLinuxMount'] ??= false;
  },
  columns: [
    nameColumn,
    {
      name: 'AttachRequired',
      type: 'boolean',
      cell: (o) => memberAt(o, 'spec', 'attachRequired') === true,
    },
    {
      name: 'PodInfoOnMount',
      type: 'boolean',
      cell: (o) => memberAt(o, 'spec', 'podInfoOnMount') === true,
    },
    {
      name: 'StorageCapacity',
      type: 'boolean',
      cell: (o) => memberAt(o, 'spec', 'storageCapacity') === true,
    },
    textColumn('TokenRequests', (o) => {
      const requests = memberAt(o, 'spec', 'tokenRequests');
      return Array.isArray(requests)
        ? requests.map((each) => textAt(each, 'audience')).join(',')
        : '<unset>';
    }),
    {
      name: 'RequiresRepublish',
      type: 'boolean',
      cell: (o) => memberAt(o, 'spec', 'requiresRepublish') === true,
    },
    textColumn('Modes', (o) => textsAt(o, 'spec', 'volumeLifecycleModes').join(',')),
    ageColumn,
  ],
};

/** VolumeAttachments: volumes that are, or are to be, attached to a node. */
export const volumeAttachments: Resource = {
  ...GROUP,
  plural: 'volumeattachments',
  singular: 'volumeattachment',
  kind: 'VolumeAttachment',
  namespaced: false,
  struct: schemaOf('VolumeAttachment'),
  hasStatus: true,
  statusLeavesMetadata: true,
  returnsDeleted: true,
  needsResourceVersion: true,
  applyDefaults(object) {
    objectAt(object, 'status')['attached'] ??= false;
  },
  beforeCreate(object) {
    object['status'] = { attached: false };
  },
  validate(object) {
    const causes: Cause[] = [];
    if (textAt(object, 'spec', 'attacher') === '') causes.push(required('spec.attacher'));
    if (textAt(object, 'spec', 'nodeName') === '') causes.push(required('spec.nodeName'));
    const source = objectAt(object, 'spec', 'source');
    if (source['persistentVolumeName'] === undefined && source['inlineVolumeSpec'] === undefined) {
      causes.push(
        required(
          'spec.source',
          'must specify exactly one of inlineVolumeSpec and persistentVolumeName',
        ),
      );
    }
    return causes;
  },
  validateUpdate: (object, old, part) =>
    part === 'main' && !equalJson(object['spec'], old['spec'])
      ? [immutable('spec', object['spec'])]
      : [],
  columns: [
    nameColumn,
    textColumn('Attacher', (o) => textAt(o, 'spec', 'attacher')),
    textColumn('PV', (o) => textAt(o, 'spec', 'source', 'persistentVolumeName')),
    textColumn('Node', (o) => textAt(o, 'spec', 'nodeName')),
    { name: 'Attached', type: 'boolean', cell: (o) => memberAt(o, 'status', 'attached') === true },
    ageColumn,
  ],
};

/** VolumeAttributesClasses. */
export const volumeAttributesClasses: Resource = {
  ...GROUP,
  plural: 'volumeattributesclasses',
  singular: 'volumeattributesclass',
  kind: 'VolumeAttributesClass',
  shortNames: ['vac'],
  namespaced: false,
  struct: schemaOf('VolumeAttributesClass'),
  returnsDeleted: true,
  validate: (object) => (textAt(object, 'driverName') === '' ? [required('driverName')] : []),
  validateUpdate: (object, old) => [
    ...(object['driverName'] === old['driverName']
      ? []
      : [forbiddenValue('driverName', 'updates to driverName are forbidden.')]),
    ...(equalJson(object['parameters'], old['parameters'])
      ? []
      : [forbiddenValue('parameters', 'updates to parameters are forbidden.')]),
  ],
  columns: [nameColumn, textColumn('DriverName', (o) => textAt(o, 'driverName')), ageColumn],
};

/** CSIStorageCapacities. */
export const storageCapacities: Resource = {
  ...GROUP,
  plural: 'csistoragecapacities',
  singular: 'csistoragecapacity',
  kind: 'CSIStorageCapacity',
  namespaced: true,
  struct: schemaOf('CSIStorageCapacity'),
  validate(object) {
    const causes: Cause[] = [];
    const className = textAt(object, 'storageClassName');
    const complaint = subdomainComplaint(className);
    if (complaint !== undefined)
      causes.push(invalidValue('storageClassName', className, complaint));
    const { capacity } = object;
    if (capacity !== undefined && compareQuantities(plainText(capacity), '0') < 0)
      causes.push(invalidValue('capacity', capacity, 'must be greater than or equal to 0'));
    return causes;
  },
  validateUpdate: (object, old) =>
    immutableCauses(object, old, ['nodeTopology', 'storageClassName']),
  columns: [
    nameColumn,
    textColumn('StorageClassName', (o) => textAt(o, 'storageClassName')),
    textColumn('Capacity', (o) => textAt(o, 'capacity')),
    ageColumn,
  ],
};
