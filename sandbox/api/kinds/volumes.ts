import { ageColumn, column, nameColumn, shortAccessModes, statusColumn } from '../columns.ts';
import {
  childOf,
  equalJson,
  isObject,
  memberAt,
  objectAt,
  plainText,
  textAt,
} from '../json-value.ts';
import type { Json, JsonObject } from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { compareQuantities } from '../quantity.ts';
import { kindOf, type Problem, type RuleContext } from '../resource.ts';
import { timestamp } from '../time.ts';
import { accessModeProblem, classOf } from './claims.ts';

export const VOLUME_FINALIZER = 'kubernetes.io/pv-protection';

/** The members of a volume's spec that do not say where its data is. */
const NO_SOURCES = new Set([
  'capacity',
  'accessModes',
  'claimRef',
  'persistentVolumeReclaimPolicy',
  'storageClassName',
  'mountOptions',
  'volumeMode',
  'nodeAffinity',
  'volumeAttributesClassName',
]);

/** The member of a spec that says where the data is, with its name. */
function sourceOf(spec: JsonObject): readonly [name: string, source: Json | undefined] | undefined {
  return Object.entries(spec).find(([name, value]) => value !== undefined && !NO_SOURCES.has(name));
}

function beforeCreate(volume: KubeObject, { nowMs }: RuleContext): void {
  volume['status'] = { phase: 'Pending', lastPhaseTransitionTime: timestamp(nowMs) };
  volume.metadata.finalizers = [
    ...new Set([...(volume.metadata.finalizers ?? []), VOLUME_FINALIZER]),
  ];
}

function beforeUpdate(volume: KubeObject, old: KubeObject, { nowMs }: RuleContext): void {
  const status = objectAt(volume, 'status');
  if (textAt(old, 'status', 'phase') !== textAt(status, 'phase'))
    status['lastPhaseTransitionTime'] = timestamp(nowMs);
}

function validate(volume: KubeObject): Problem | undefined {
  const spec = objectAt(volume, 'spec');
  const size = plainText(memberAt(spec, 'capacity', 'storage'));
  if (compareQuantities(size, '0') <= 0)
    return { field: 'spec.capacity[storage]', why: 'Required value: must be greater than zero' };
  const [name] = sourceOf(spec) ?? [];
  if (name === undefined)
    return { field: 'spec', why: 'Required value: must specify a volume type' };
  const missing = ['driver', 'volumeHandle'].find((each) => textAt(spec, 'csi', each) === '');
  if (name === 'csi' && missing !== undefined)
    return { field: `spec.csi.${missing}`, why: 'Required value' };
  return accessModeProblem(volume);
}

function validateUpdate(volume: KubeObject, old: KubeObject): Problem | undefined {
  const is = objectAt(volume, 'spec');
  const was = objectAt(old, 'spec');
  const source = 'spec.persistentvolumesource';
  if (!equalJson(withoutExpandSecret(sourceOf(is)), withoutExpandSecret(sourceOf(was))))
    return { field: source, why: `Forbidden: ${source} is immutable after creation` };
  const changed = ['volumeMode', 'nodeAffinity'].find(
    (name) => was[name] !== undefined && !equalJson(is[name], was[name]),
  );
  return changed === undefined
    ? undefined
    : { field: `spec.${changed}`, why: 'Invalid value: field is immutable' };
}

/** The secrets for expansion may be set later. */
function withoutExpandSecret(entry: ReturnType<typeof sourceOf>): Json[] {
  const [name = '', source] = entry ?? [];
  const rest = isObject(source) ? { ...source } : {};
  return [name, { ...rest, controllerExpandSecretRef: undefined, nodeExpandSecretRef: undefined }];
}

function claimName(volume: KubeObject): string {
  const reference = memberAt(volume, 'spec', 'claimRef');
  return isObject(reference)
    ? `${textAt(reference, 'namespace')}/${textAt(reference, 'name')}`
    : '';
}

/** PersistentVolumes. */
export const volumes = kindOf('v1', ['PersistentVolume', 'persistentvolumes', 'pv'], {
  namespaced: false,
  hasStatus: true,
  applyDefaults(volume) {
    const spec = childOf(volume, 'spec');
    spec['volumeMode'] ??= 'Filesystem';
    spec['persistentVolumeReclaimPolicy'] ??= 'Retain';
  },
  beforeCreate,
  beforeUpdate,
  validate,
  validateUpdate,
  columns: [
    nameColumn,
    column('Capacity', 'spec.capacity.storage'),
    column('Access Modes', (o) => shortAccessModes(o, 'spec', 'accessModes')),
    column('Reclaim Policy', 'spec.persistentVolumeReclaimPolicy'),
    statusColumn,
    column('Claim', claimName),
    column('StorageClass', (o) => classOf(o) ?? ''),
    column('Reason', 'status.reason'),
    ageColumn,
    column('VolumeMode', 'spec.volumeMode', 1),
  ],
});
