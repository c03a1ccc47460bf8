import { ageColumn, column, nameColumn } from '../columns.ts';
import { childOf, equalJson, memberAt, textAt, textsAt } from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { subdomainComplaint } from '../names.ts';
import { kindOf, type Problem } from '../resource.ts';

const STORAGE = 'storage.k8s.io/v1';

/** Refuses a change of one of these members. */
const immutable =
  (...members: readonly string[]) =>
  (object: KubeObject, old: KubeObject): Problem | undefined => {
    const field = members.find((name) => !equalJson(object[name], old[name]));
    return field === undefined ? undefined : { field, why: 'Invalid value: field is immutable' };
  };

/** Refuses an object without this member. */
const required =
  (field: string) =>
  (object: KubeObject): Problem | undefined =>
    textAt(object, field) === '' ? { field, why: 'Required value' } : undefined;

/** StorageClasses. */
export const classes = kindOf(STORAGE, ['StorageClass', 'storageclasses', 'sc'], {
  namespaced: false,
  applyDefaults(object) {
    object['reclaimPolicy'] ??= 'Delete';
    object['volumeBindingMode'] ??= 'Immediate';
  },
  validate: required('provisioner'),
  validateUpdate: immutable('parameters', 'provisioner', 'reclaimPolicy', 'volumeBindingMode'),
  columns: [
    {
      ...nameColumn,
      cell: ({ metadata: { name, annotations } }) =>
        annotations?.['storageclass.kubernetes.io/is-default-class'] === 'true'
          ? `${name} (default)`
          : name,
    },
    column('Provisioner', 'provisioner'),
    column('ReclaimPolicy', 'reclaimPolicy'),
    column('VolumeBindingMode', 'volumeBindingMode'),
    column('AllowVolumeExpansion', (o) => String(o['allowVolumeExpansion'] === true)),
    ageColumn,
  ],
});

/** CSINodes: the drivers of a node, with its ID and topology keys. */
export const csiNodes = kindOf(STORAGE, ['CSINode', 'csinodes'], {
  namespaced: false,
  applyDefaults(object) {
    childOf(object, 'spec')['drivers'] ??= [];
  },
  columns: [
    nameColumn,
    {
      name: 'Drivers',
      type: 'integer',
      cell: (o) => {
        const drivers = memberAt(o, 'spec', 'drivers');
        return Array.isArray(drivers) ? drivers.length : 0;
      },
    },
    ageColumn,
  ],
});

export const csiDrivers = kindOf(STORAGE, ['CSIDriver', 'csidrivers'], {
  namespaced: false,
  applyDefaults(object) {
    const spec = childOf(object, 'spec');
    spec['attachRequired'] ??= true;
    spec['storageCapacity'] ??= false;
    spec['volumeLifecycleModes'] ??= ['Persistent'];
  },
  columns: [
    nameColumn,
    column('AttachRequired', 'spec.attachRequired'),
    column('StorageCapacity', 'spec.storageCapacity'),
    column('Modes', (o) => textsAt(o, 'spec', 'volumeLifecycleModes').join(',')),
    ageColumn,
  ],
});

/** VolumeAttachments: volumes that are attached to a node, or should be. */
export const volumeAttachments = kindOf(STORAGE, ['VolumeAttachment', 'volumeattachments'], {
  namespaced: false,
  hasStatus: true,
  beforeCreate(object) {
    object['status'] = { attached: false };
  },
  columns: [
    nameColumn,
    column('Attacher', 'spec.attacher'),
    column('PV', 'spec.source.persistentVolumeName'),
    column('Node', 'spec.nodeName'),
    column('Attached', 'status.attached'),
    ageColumn,
  ],
});

export const volumeAttributesClasses = kindOf(
  STORAGE,
  ['VolumeAttributesClass', 'volumeattributesclasses', 'vac'],
  {
    namespaced: false,
    validate: required('driverName'),
    validateUpdate: immutable('driverName', 'parameters'),
    columns: [nameColumn, column('DriverName', 'driverName'), ageColumn],
  },
);

export const storageCapacities = kindOf(STORAGE, ['CSIStorageCapacity', 'csistoragecapacities'], {
  validate(object) {
    const complaint = subdomainComplaint(textAt(object, 'storageClassName'));
    return complaint === undefined
      ? undefined
      : { field: 'storageClassName', why: `Invalid value: ${complaint}` };
  },
  validateUpdate: immutable('nodeTopology', 'storageClassName'),
  columns: [
    nameColumn,
    column('StorageClassName', 'storageClassName'),
    column('Capacity', 'capacity'),
    ageColumn,
  ],
});
