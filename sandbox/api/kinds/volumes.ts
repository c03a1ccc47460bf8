import type { Cause } from '../api-error.ts';
import { ageColumn, nameColumn, shortAccessModes, textColumn } from '../columns.ts';
import { forbiddenValue, immutable, invalidValue, notSupported, required } from '../field-error.ts';
import {
  equalJson,
  isObject,
  memberAt,
  objectAt,
  plainText,
  textAt,
  type JsonObject,
} from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { compareQuantities } from '../quantity.ts';
import type { Resource, RuleContext } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';
import { timestamp } from '../time.ts';
import { accessModeCauses, classNameCauses, classOf, volumeModeCauses } from './claims.ts';

export const VOLUME_FINALIZER = 'kubernetes.io/pv-protection';
const POLICIES = ['Delete', 'Recycle', 'Retain'] as const;

/** The members of a volume's spec that say where its data is: exactly one must be set. */
const SOURCES = [...schemaOf('PersistentVolumeSpec').fields.values()]
  .filter(({ type }) => type.kind === 'struct' && type.struct.name.endsWith('Source'))
  .map(({ name }) => name);

function applyDefaults(volume: KubeObject): void {
  const spec = objectAt(volume, 'spec');
  spec['volumeMode'] ??= 'Filesystem';
  spec['persistentVolumeReclaimPolicy'] ??= 'Retain';
  const hostPath = spec['hostPath'];
  if (isObject(hostPath)) hostPath['type'] ??= '';
  const status = objectAt(volume, 'status');
  status['phase'] ??= 'Pending';
}

function beforeCreate(volume: KubeObject, context: RuleContext): void {
  volume['status'] = { phase: 'Pending', lastPhaseTransitionTime: timestamp(context.nowMs) };
  volume.metadata.finalizers = [
    ...new Set([...(volume.metadata.finalizers ?? []), VOLUME_FINALIZER]),
  ];
}

function beforeUpdate(volume: KubeObject, old: KubeObject, context: RuleContext): void {
  const status = objectAt(volume, 'status');
  if (textAt(old, 'status', 'phase') !== textAt(status, 'phase'))
    status['lastPhaseTransitionTime'] = timestamp(context.nowMs);
}

function validate(volume: KubeObject): Cause[] {
  const policy = textAt(volume, 'spec', 'persistentVolumeReclaimPolicy');
  return [
    ...accessModeCauses(volume),
    ...capacityCauses(volume),
    ...((POLICIES as readonly string[]).includes(policy)
      ? []
      : [notSupported('spec.persistentVolumeReclaimPolicy', policy, POLICIES)]),
    ...sourceCauses(objectAt(volume, 'spec')),
    ...volumeModeCauses(volume),
    ...classNameCauses(volume, 'storageClassName'),
  ];
}

function capacityCauses(volume: KubeObject): Cause[] {
  const field = 'spec.capacity';
  const capacity = objectAt(volume, 'spec', 'capacity');
  const names = Object.keys(capacity);
  return [
    ...(names.length === 0 ? [required(field)] : []),
    ...(names.length === 1 && names[0] === 'storage'
      ? []
      : [notSupported(field, memberAt(volume, 'spec', 'capacity'), ['storage'])]),
    ...names
      .filter((name) => compareQuantities(plainText(capacity[name]), '0') <= 0)
      .map((name) =>
        invalidValue(`${field}[${name}]`, capacity[name], 'must be greater than zero'),
      ),
  ];
}

function sourceCauses(spec: JsonObject): Cause[] {
  const [first, ...others] = SOURCES.filter((source) => spec[source] !== undefined);
  if (first === undefined) return [required('spec', 'must specify a volume type')];
  return [
    ...others.map((source) =>
      forbiddenValue(`spec.${source}`, 'may not specify more than 1 volume type'),
    ),
    ...(SOURCE_RULES[first]?.(spec) ?? []),
  ];
}

/** What is required of a source beyond its fields' types. */
const SOURCE_RULES: Readonly<Record<string, (spec: JsonObject) => Cause[]>> = {
  csi: (spec) => [
    ...missingTexts(spec, 'csi', ['driver', 'volumeHandle']),
    ...CSI_SECRETS.filter((name) => isObject(memberAt(spec, 'csi', name))).flatMap((name) =>
      missingTexts(spec, `csi.${name}`, ['name', 'namespace']),
    ),
  ],
  hostPath: (spec) => missingTexts(spec, 'hostPath', ['path']),
  local: (spec) =>
    spec['nodeAffinity'] === undefined
      ? [required('spec.nodeAffinity', 'Local volume requires node affinity')]
      : [],
};

const CSI_SECRETS = [
  'controllerPublishSecretRef',
  'controllerExpandSecretRef',
  'nodePublishSecretRef',
  'nodeStageSecretRef',
  'nodeExpandSecretRef',
];

function missingTexts(spec: JsonObject, path: string, names: readonly string[]): Cause[] {
  return names
    .filter((name) => textAt(spec, ...path.split('.'), name) === '')
    .map((name) => required(`spec.${path}.${name}`));
}

function validateUpdate(volume: KubeObject, old: KubeObject, part: 'main' | 'status'): Cause[] {
  if (part === 'status') return [];
  const is = objectAt(volume, 'spec');
  const was = objectAt(old, 'spec');
  const causes: Cause[] = [];
  const hasNewSource = SOURCES.some(
    (source) => !equalJson(withoutExpandSecret(is[source]), withoutExpandSecret(was[source])),
  );
  if (hasNewSource) {
    const field = 'spec.persistentvolumesource';
    causes.push(forbiddenValue(field, `${field} is immutable after creation`));
  }
  if (is['volumeMode'] !== was['volumeMode'])
    causes.push(immutable('spec.volumeMode', is['volumeMode']));
  if (was['nodeAffinity'] !== undefined && !equalJson(is['nodeAffinity'], was['nodeAffinity'])) {
    causes.push(immutable('spec.nodeAffinity', is['nodeAffinity']));
  }
  return causes;
}

/** The secrets for expansion may be set later, so updates don't compare them. */
function withoutExpandSecret(source: JsonObject[string]): JsonObject[string] {
  if (!isObject(source)) return source;
  return { ...source, controllerExpandSecretRef: undefined, nodeExpandSecretRef: undefined };
}

/** PersistentVolumes. */
export const volumes: Resource = {
  group: '',
  version: 'v1',
  plural: 'persistentvolumes',
  singular: 'persistentvolume',
  kind: 'PersistentVolume',
  shortNames: ['pv'],
  namespaced: false,
  struct: schemaOf('PersistentVolume'),
  hasStatus: true,
  returnsDeleted: true,
  applyDefaults,
  beforeCreate,
  beforeUpdate,
  validate,
  validateUpdate,
  columns: [
    nameColumn,
    textColumn('Capacity', (o) => textAt(o, 'spec', 'capacity', 'storage')),
    textColumn('Access Modes', (o) => shortAccessModes(o, 'spec', 'accessModes')),
    textColumn('Reclaim Policy', (o) => textAt(o, 'spec', 'persistentVolumeReclaimPolicy')),
    textColumn('Status', (o) =>
      o.metadata.deletionTimestamp === undefined ? textAt(o, 'status', 'phase') : 'Terminating',
    ),
    textColumn('Claim', (o) => {
      const reference = memberAt(o, 'spec', 'claimRef');
      return isObject(reference)
        ? `${textAt(reference, 'namespace')}/${textAt(reference, 'name')}`
        : '';
    }),
    textColumn('StorageClass', (o) => classOf(o) ?? ''),
    textColumn(
      'VolumeAttributesClass',
      (o) => textAt(o, 'spec', 'volumeAttributesClassName') || '<unset>',
    ),
    textColumn('Reason', (o) => textAt(o, 'status', 'reason')),
    ageColumn,
    textColumn('VolumeMode', (o) => textAt(o, 'spec', 'volumeMode') || '<unset>', 1),
  ],
};
