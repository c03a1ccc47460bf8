import { forbidden, type Cause } from '../api-error.ts';
import { ageColumn, nameColumn, shortAccessModes, textColumn } from '../columns.ts';
import { forbiddenValue, invalidValue, notSupported, required } from '../field-error.ts';
import {
  cloneJson,
  equalJson,
  isObject,
  memberAt,
  objectAt,
  plainText,
  textAt,
  textsAt,
  type Json,
  type JsonObject,
} from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { subdomainComplaint } from '../names.ts';
import { compareQuantities } from '../quantity.ts';
import type { Resource, RuleContext } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';

const ACCESS_MODES = [
  'ReadWriteOnce',
  'ReadOnlyMany',
  'ReadWriteMany',
  'ReadWriteOncePod',
] as const;
const VOLUME_MODES = ['Block', 'Filesystem'] as const;
export const CLAIM_FINALIZER = 'kubernetes.io/pvc-protection';
const BETA_CLASS = 'volume.beta.kubernetes.io/storage-class';
const DEFAULT_CLASS = [
  'storageclass.kubernetes.io/is-default-class',
  'storageclass.beta.kubernetes.io/is-default-class',
];

/** The class that a claim or volume names; undefined where it names none. The old annotation takes
 * precedence over the field. */
export function classOf(object: KubeObject): string | undefined {
  const name =
    object.metadata.annotations?.[BETA_CLASS] ?? memberAt(object, 'spec', 'storageClassName');
  return typeof name === 'string' ? name : undefined;
}

function applyDefaults(claim: KubeObject): void {
  const spec = objectAt(claim, 'spec');
  spec['volumeMode'] ??= 'Filesystem';
  const status = objectAt(claim, 'status');
  status['phase'] ??= 'Pending';
  // A limit without a request is also the request.
  const resources = objectAt(spec, 'resources');
  const limits = objectAt(resources, 'limits');
  if (Object.keys(limits).length > 0)
    resources['requests'] = { ...limits, ...objectAt(resources, 'requests') };
}

function beforeCreate(claim: KubeObject, context: RuleContext): void {
  claim['status'] = { phase: 'Pending' };
  const spec = objectAt(claim, 'spec');
  copyDataSource(spec);
  if (classOf(claim) === undefined) {
    const name = defaultClass(context);
    if (name !== undefined) spec['storageClassName'] = name;
  }
  claim.metadata.finalizers = [...new Set([...(claim.metadata.finalizers ?? []), CLAIM_FINALIZER])];
}

/** Keeps dataSource and dataSourceRef equal, unless the reference names a namespace. */
function copyDataSource(spec: JsonObject): void {
  const source = spec['dataSource'];
  const reference = spec['dataSourceRef'];
  if (isObject(reference) && reference['namespace'] === undefined && source === undefined)
    spec['dataSource'] = cloneJson(reference);
  else if (isObject(source) && reference === undefined) spec['dataSourceRef'] = cloneJson(source);
}

/** The newest class that is marked as default; of two with the same time, the first by name. */
function defaultClass(context: RuleContext): string | undefined {
  const marked = [...context.list('storageclasses', 'storage.k8s.io')].filter((c) =>
    DEFAULT_CLASS.some((key) => c.metadata.annotations?.[key] === 'true'),
  );
  marked.sort(
    (a, b) =>
      b.metadata.creationTimestamp.localeCompare(a.metadata.creationTimestamp) ||
      a.metadata.name.localeCompare(b.metadata.name),
  );
  return marked[0]?.metadata.name;
}

function validate(claim: KubeObject): Cause[] {
  return [
    ...accessModeCauses(claim, 'at least 1 access mode is required'),
    ...requestCauses(memberAt(claim, 'spec', 'resources', 'requests', 'storage')),
    ...classNameCauses(claim, 'storageClassName'),
    ...volumeModeCauses(claim),
    ...sourceCauses(memberAt(claim, 'spec', 'dataSource')),
    ...classNameCauses(claim, 'volumeAttributesClassName'),
  ];
}

/** The errors in `spec.accessModes` of a claim or volume. */
export function accessModeCauses(object: KubeObject, whenMissing?: string): Cause[] {
  const field = 'spec.accessModes';
  const modes = textsAt(object, 'spec', 'accessModes');
  if (modes.length === 0) return [required(field, whenMissing)];
  const unknown = modes.filter((mode) => !(ACCESS_MODES as readonly string[]).includes(mode));
  const isMixed = modes.includes('ReadWriteOncePod') && modes.length > 1;
  return [
    ...unknown.map((mode) => notSupported(field, mode, ACCESS_MODES)),
    ...(isMixed
      ? [forbiddenValue(field, 'may not use ReadWriteOncePod with other access modes')]
      : []),
  ];
}

/** The errors in `spec.volumeMode` of a claim or volume. */
export function volumeModeCauses(object: KubeObject): Cause[] {
  const mode = textAt(object, 'spec', 'volumeMode');
  return (VOLUME_MODES as readonly string[]).includes(mode)
    ? []
    : [notSupported('spec.volumeMode', mode, VOLUME_MODES)];
}

/** The errors in a field of the spec that names a class, if it does. */
export function classNameCauses(object: KubeObject, field: string): Cause[] {
  const name = textAt(object, 'spec', field);
  const complaint = name === '' ? undefined : subdomainComplaint(name);
  return complaint === undefined ? [] : [invalidValue(`spec.${field}`, name, complaint)];
}

function requestCauses(size: Json | undefined): Cause[] {
  const field = 'spec.resources[storage]';
  if (size === undefined) return [required(field)];
  return compareQuantities(plainText(size), '0') > 0
    ? []
    : [invalidValue(field, size, 'must be greater than zero')];
}

/** Without an API group a data source can only be a claim. */
function sourceCauses(source: Json | undefined): Cause[] {
  if (!isObject(source) || textAt(source, 'apiGroup') !== '') return [];
  const kind = textAt(source, 'kind');
  return kind === 'PersistentVolumeClaim' ? [] : [invalidValue('spec.dataSource', kind, '')];
}

/** A claim's spec is immutable, except that volumeName and class can be set once, and that a bound
 * claim's request can grow and its attributes class can change. */
function validateUpdate(claim: KubeObject, old: KubeObject, part: 'main' | 'status'): Cause[] {
  if (part === 'status') return [];
  const was = cloneJson(objectAt(old, 'spec'));
  const is = cloneJson(objectAt(claim, 'spec'));
  const causes: Cause[] = [];
  if (textAt(was, 'volumeName') === '') was['volumeName'] = is['volumeName'];
  if (was['storageClassName'] === undefined) was['storageClassName'] = is['storageClassName'];
  if (textAt(old, 'status', 'phase') === 'Bound') {
    const wasSize = textAt(was, 'resources', 'requests', 'storage');
    const size = textAt(is, 'resources', 'requests', 'storage');
    const capacity = textAt(old, 'status', 'capacity', 'storage');
    if (
      compareQuantities(size, wasSize) < 0 &&
      compareQuantities(size, capacity === '' ? wasSize : capacity) < 0
    ) {
      causes.push(
        forbiddenValue(
          'spec.resources.requests.storage',
          'field can not be less than status.capacity',
        ),
      );
    }
    const requests = objectAt(was, 'resources', 'requests');
    if (requests['storage'] !== undefined) requests['storage'] = size;
    was['volumeAttributesClassName'] = is['volumeAttributesClassName'];
  }
  if (!equalJson(was, is)) {
    const detail =
      'spec is immutable after creation except resources.requests and ' +
      'volumeAttributesClassName for bound claims';
    causes.push(forbiddenValue('spec', detail));
  }
  return causes;
}

function admit(claim: KubeObject, old: KubeObject | undefined, context: RuleContext) {
  if (old === undefined) return undefined;
  const size = textAt(claim, 'spec', 'resources', 'requests', 'storage');
  const was = textAt(old, 'spec', 'resources', 'requests', 'storage');
  if (textAt(old, 'status', 'phase') !== 'Bound' || compareQuantities(size, was) <= 0)
    return undefined;
  const className = classOf(claim) ?? '';
  const found = [...context.list('storageclasses', 'storage.k8s.io')].find(
    (each) => each.metadata.name === className,
  );
  if (found?.['allowVolumeExpansion'] === true) return undefined;
  const why =
    'only dynamically provisioned pvc can be resized and ' +
    'the storageclass that provisions the pvc must support resize';
  return forbidden(claims, claim.metadata.name, why);
}

const volumeNameOf = (claim: KubeObject) => textAt(claim, 'spec', 'volumeName');

/** PersistentVolumeClaims. */
export const claims: Resource = {
  group: '',
  version: 'v1',
  plural: 'persistentvolumeclaims',
  singular: 'persistentvolumeclaim',
  kind: 'PersistentVolumeClaim',
  shortNames: ['pvc'],
  namespaced: true,
  struct: schemaOf('PersistentVolumeClaim'),
  hasStatus: true,
  returnsDeleted: true,
  applyDefaults,
  beforeCreate,
  validate,
  validateUpdate,
  admit,
  columns: [
    nameColumn,
    textColumn('Status', (o) =>
      o.metadata.deletionTimestamp === undefined ? textAt(o, 'status', 'phase') : 'Terminating',
    ),
    textColumn('Volume', volumeNameOf),
    textColumn('Capacity', (o) =>
      volumeNameOf(o) === '' ? '' : textAt(o, 'status', 'capacity', 'storage'),
    ),
    textColumn('Access Modes', (o) =>
      volumeNameOf(o) === '' ? '' : shortAccessModes(o, 'status', 'accessModes'),
    ),
    textColumn('StorageClass', (o) => classOf(o) ?? ''),
    textColumn(
      'VolumeAttributesClass',
      (o) => textAt(o, 'spec', 'volumeAttributesClassName') || '<unset>',
    ),
    ageColumn,
    textColumn('VolumeMode', (o) => textAt(o, 'spec', 'volumeMode') || '<unset>', 1),
  ],
};
