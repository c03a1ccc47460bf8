import { ageColumn, column, nameColumn, shortAccessModes, statusColumn } from '../columns.ts';
import {
  childOf,
  cloneJson,
  equalJson,
  isObject,
  memberAt,
  objectAt,
  plainText,
  textAt,
  textsAt,
} from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { compareQuantities } from '../quantity.ts';
import { kindOf, type Problem, type RuleContext } from '../resource.ts';
import { classes } from './storage.ts';

const ACCESS_MODES = ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod'];
export const CLAIM_FINALIZER = 'kubernetes.io/pvc-protection';
const BETA_CLASS = 'volume.beta.kubernetes.io/storage-class';
const DEFAULT_CLASS = 'storageclass.kubernetes.io/is-default-class';

/** The class that a claim or volume names; undefined if it names none. The old annotation takes
 * precedence over the field. */
export function classOf(object: KubeObject): string | undefined {
  const name =
    object.metadata.annotations?.[BETA_CLASS] ?? memberAt(object, 'spec', 'storageClassName');
  return typeof name === 'string' ? name : undefined;
}

function beforeCreate(claim: KubeObject, context: RuleContext): void {
  claim['status'] = { phase: 'Pending' };
  const spec = childOf(claim, 'spec');
  const { dataSource, dataSourceRef } = spec;
  // Keeps both equal, unless the reference names a namespace.
  if (isObject(dataSourceRef) && dataSourceRef['namespace'] === undefined)
    spec['dataSource'] ??= cloneJson(dataSourceRef);
  else if (isObject(dataSource)) spec['dataSourceRef'] ??= cloneJson(dataSource);
  if (classOf(claim) === undefined) {
    const name = defaultClass(context);
    if (name !== undefined) spec['storageClassName'] = name;
  }
  claim.metadata.finalizers = [...new Set([...(claim.metadata.finalizers ?? []), CLAIM_FINALIZER])];
}

/** The newest class that is marked as default; of two with the same time, the first by name. */
function defaultClass(context: RuleContext): string | undefined {
  const marked = [...context.list(classes)]
    .map(({ metadata }) => metadata)
    .filter(({ annotations }) => annotations?.[DEFAULT_CLASS] === 'true');
  marked.sort(
    (a, b) =>
      b.creationTimestamp.localeCompare(a.creationTimestamp) || a.name.localeCompare(b.name),
  );
  return marked[0]?.name;
}

function validate(claim: KubeObject): Problem | undefined {
  const size = plainText(memberAt(claim, 'spec', 'resources', 'requests', 'storage'));
  if (compareQuantities(size, '0') <= 0) {
    const why =
      size === '' ? 'Required value' : `Invalid value: "${size}": must be greater than zero`;
    return { field: 'spec.resources[storage]', why };
  }
  return accessModeProblem(claim);
}

/** What is wrong with `spec.accessModes` of a claim or volume. */
export function accessModeProblem(object: KubeObject): Problem | undefined {
  const field = 'spec.accessModes';
  const modes = textsAt(object, 'spec', 'accessModes');
  if (modes.length === 0)
    return { field, why: 'Required value: at least 1 access mode is required' };
  const unknown = modes.find((mode) => !ACCESS_MODES.includes(mode));
  if (unknown === undefined) return undefined;
  return { field, why: `Unsupported value: "${unknown}": supported: ${ACCESS_MODES.join(', ')}` };
}

/** A claim's spec is immutable, except that volumeName and class can be set once, and that a bound
 * claim's request can grow and its attributes class can change. */
function validateUpdate(claim: KubeObject, old: KubeObject): Problem | undefined {
  const was = cloneJson(objectAt(old, 'spec'));
  const is = objectAt(claim, 'spec');
  if (textAt(was, 'volumeName') === '') was['volumeName'] = is['volumeName'];
  if (was['storageClassName'] === undefined) was['storageClassName'] = is['storageClassName'];
  if (textAt(old, 'status', 'phase') === 'Bound') {
    const size = (spec: typeof is) => plainText(memberAt(spec, 'resources', 'requests', 'storage'));
    if (compareQuantities(size(is), size(was)) < 0) {
      const why = 'Forbidden: field can not be less than status.capacity';
      return { field: 'spec.resources.requests.storage', why };
    }
    was['resources'] = is['resources'];
    was['volumeAttributesClassName'] = is['volumeAttributesClassName'];
  }
  if (equalJson(was, is)) return undefined;
  const why =
    'Forbidden: spec is immutable after creation except resources.requests and ' +
    'volumeAttributesClassName for bound claims';
  return { field: 'spec', why };
}

/** PersistentVolumeClaims. */
export const claims = kindOf('v1', ['PersistentVolumeClaim', 'persistentvolumeclaims', 'pvc'], {
  hasStatus: true,
  applyDefaults(claim) {
    childOf(claim, 'spec')['volumeMode'] ??= 'Filesystem';
  },
  beforeCreate,
  validate,
  validateUpdate,
  columns: [
    nameColumn,
    statusColumn,
    column('Volume', 'spec.volumeName'),
    column('Capacity', 'status.capacity.storage'),
    column('Access Modes', (o) => shortAccessModes(o, 'status', 'accessModes')),
    column('StorageClass', (o) => classOf(o) ?? ''),
    ageColumn,
    column('VolumeMode', 'spec.volumeMode', 1),
  ],
});
