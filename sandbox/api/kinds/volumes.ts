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
  textsAt,
  type JsonObject,
} from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { subdomainComplaint } from '../names.ts';
import { compareQuantities } from '../quantity.ts';
import type { Resource, RuleContext } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';
import { timestamp } from '../time.ts';
import { ACCESS_MODES, classOf, VOLUME_MODES } from './claims.ts';

export const VOLUME_FINALIZER = 'kubernetes.io/pv-protection';
const POLICIES = ['Delete', 'Recycle', 'Retain'] as const;

/** The members of a volume's spec that say where the data is: exactly one must be set. */
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
  const causes: Cause[] = [];
  const modes = textsAt(volume, 'spec', 'accessModes');
  if (modes.length === 0) causes.push(required('spec.accessModes'));
  for (const mode of modes) {
    if (!(ACCESS_MODES as readonly string[]).includes(mode))
      causes.push(notSupported('spec.accessModes', mode, ACCESS_MODES));
  }
  if (modes.includes('ReadWriteOncePod') && modes.length > 1) {
    causes.push(
      forbiddenValue('spec.accessModes', 'may not use ReadWriteOncePod with other access modes'),
    );
  }
  const capacity = objectAt(volume, 'spec', 'capacity');
  if (Object.keys(capacity).length === 0) causes.push(required('spec.capacity'));
  if (capacity['storage'] === undefined || Object.keys(capacity).length > 1) {
    causes.push(notSupported('spec.capacity', memberAt(volume, 'spec', 'capacity'), ['storage']));
  }
  for (const [key, size] of Object.entries(capacity)) {
    if (compareQuantities(plainText(size), '0') <= 0)
      causes.push(invalidValue(`spec.capacity[${key}]`, size, 'must be greater than zero'));
  }
  const policy = textAt(volume, 'spec', 'persistentVolumeReclaimPolicy');
  if (!(POLICIES as readonly string[]).includes(policy))
    causes.push(notSupported('spec.persistentVolumeReclaimPolicy', policy, POLICIES));
  causes.push(...sourceCauses(objectAt(volume, 'spec')));
  const mode = textAt(volume, 'spec', 'volumeMode');
  if (!(VOLUME_MODES as readonly string[]).includes(mode))
    causes.push(notSupported('spec.volumeMode', mode, VOLUME_MODES));
  const className = textAt(volume, 'spec', 'storageClassName');
  const complaint = className === '' ? undefined : subdomainComplaint(className);
  if (complaint !== undefined)
    causes.push(invalidValue('spec.storageClassName', className, complaint));
  return causes;
}

function sourceCauses(spec: JsonObject): Cause[] {
  const [first, ...others] = SOURCES.filter((source) => spec[source] !== undefined);
  if (first === undefined) return [required('spec', 'must specify a volume type')];
  const causes = others.map((source) =>
    forbiddenValue(`spec.${source}`, 'may not specify more than 1 volume type'),
  );
  if (first === 'csi') {
    if (textAt(spec, 'csi', 'driver') === '') causes.push(required('spec.csi.driver'));
    if (textAt(spec, 'csi', 'volumeHandle') === '') causes.push(required('spec.csi.volumeHandle'));
    for (const name of [
      'controllerPublishSecretRef',
      'controllerExpandSecretRef',
      'nodePublishSecretRef',
      'nodeStageSecretRef',
      'nodeExpandSecretRef',
    ]) {
      const reference = memberAt(spec, 'csi', name);
      if (!isObject(reference)) continue;
      if (textAt(reference, 'name') === '') causes.push(required(`spec.csi.${name}.name`));
      if (textAt(reference, 'namespace') === '')
        causes.push(required(`spec.csi.${name}.namespace`));
    }
  }
  if (first === 'hostPath' && textAt(spec, 'hostPath', 'path') === '')
    causes.push(required('spec.hostPath.path'));
  if (first === 'local' && spec['nodeAffinity'] === undefined) {
    causes.push(required('spec.nodeAffinity', 'Local volume requires node affinity'));
  }
  return causes;
}

function validateUpdate(volume: KubeObject, old: KubeObject, part: 'main' | 'status'): Cause[] {
  if (part === 'status') return [];
  const is = objectAt(volume, 'spec');
  const was = objectAt(old, 'spec');
  const causes: Cause[] = [];
  if (
    SOURCES.some(
      (source) => !equalJson(withoutExpandSecret(is[source]), withoutExpandSecret(was[source])),
    )
  ) {
    causes.push(
      forbiddenValue(
        'spec.persistentvolumesource',
        'spec.persistentvolumesource is immutable after creation',
      ),
    );
  }
  if (is['volumeMode'] !== was['volumeMode'])
    causes.push(immutable('spec.volumeMode', is['volumeMode']));
  if (was['nodeAffinity'] !== undefined && !equalJson(is['nodeAffinity'], was['nodeAffinity'])) {
    causes.push(immutable('spec.nodeAffinity', is['nodeAffinity']));
  }
  return causes;
}

/** The expansion secrets may be set later. */
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
