import type { Cause } from '../api-error.ts';
import { ageColumn, nameColumn, textColumn } from '../columns.ts';
import { forbiddenValue, invalidValue, required } from '../field-error.ts';
import {
  cloneJson,
  equalJson,
  memberAt,
  objectAt,
  textAt,
  type Json,
  type JsonObject,
} from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import type { Resource } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';

/** Members of the spec that an update may change. */
const CHANGEABLE = [
  'replicas',
  'ordinals',
  'template',
  'updateStrategy',
  'revisionHistoryLimit',
  'persistentVolumeClaimRetentionPolicy',
  'minReadySeconds',
] as const;

function applyDefaults(set: KubeObject): void {
  const spec = objectAt(set, 'spec');
  addMissing(spec, {
    replicas: 1,
    podManagementPolicy: 'OrderedReady',
    revisionHistoryLimit: 10,
    persistentVolumeClaimRetentionPolicy: { whenDeleted: 'Retain', whenScaled: 'Retain' },
  });
  const strategy = objectAt(spec, 'updateStrategy');
  addMissing(strategy, { type: 'RollingUpdate' });
  if (strategy['type'] === 'RollingUpdate')
    addMissing(strategy, { rollingUpdate: { partition: 0 } });
  addMissing(objectAt(spec, 'template', 'spec'), {
    restartPolicy: 'Always',
    terminationGracePeriodSeconds: 30,
    schedulerName: 'default-scheduler',
  });
  for (const template of templatesOf(set)) {
    addMissing(objectAt({ template }, 'template'), {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
    });
    addMissing(objectAt(template, 'spec'), { volumeMode: 'Filesystem' });
    addMissing(objectAt(template, 'status'), { phase: 'Pending' });
  }
  addMissing(objectAt(set, 'status'), { replicas: 0, availableReplicas: 0 });
}

function addMissing(target: JsonObject, defaults: JsonObject): void {
  for (const [name, value] of Object.entries(defaults)) target[name] ??= cloneJson(value);
}

/** The templates of the claims that each pod gets. */
function templatesOf(set: KubeObject): readonly Json[] {
  const templates = memberAt(set, 'spec', 'volumeClaimTemplates');
  return Array.isArray(templates) ? templates : [];
}

function validate(set: KubeObject): Cause[] {
  const causes: Cause[] = [];
  const replicas = memberAt(set, 'spec', 'replicas');
  if (typeof replicas === 'number' && replicas < 0) {
    const detail = 'must be greater than or equal to 0';
    causes.push(invalidValue('spec.replicas', replicas, detail));
  }
  const labels = objectAt(set, 'spec', 'template', 'metadata', 'labels');
  const wanted = objectAt(set, 'spec', 'selector', 'matchLabels');
  if (Object.keys(objectAt(set, 'spec', 'selector')).length === 0) {
    const detail = 'empty selector is invalid for statefulset';
    causes.push(invalidValue('spec.selector', memberAt(set, 'spec', 'selector') ?? {}, detail));
  } else if (Object.entries(wanted).some(([key, value]) => labels[key] !== value)) {
    const detail = '`selector` does not match template `labels`';
    causes.push(invalidValue('spec.template.metadata.labels', labels, detail));
  }
  const containers = memberAt(set, 'spec', 'template', 'spec', 'containers');
  if (!Array.isArray(containers) || containers.length === 0)
    causes.push(required('spec.template.spec.containers'));
  return causes;
}

function validateUpdate(set: KubeObject, old: KubeObject, part: 'main' | 'status'): Cause[] {
  if (part === 'status') return [];
  const changeable = Object.fromEntries(CHANGEABLE.map((name) => [name, undefined]));
  const fixed = (object: KubeObject) => ({ ...objectAt(object, 'spec'), ...changeable });
  if (equalJson(fixed(set), fixed(old))) return [];
  const names = CHANGEABLE.map((name) => `'${name}'`);
  const list = `${names.slice(0, -1).join(', ')} and ${names.at(-1) ?? ''}`;
  const detail = `updates to statefulset spec for fields other than ${list} are forbidden`;
  return [forbiddenValue('spec', detail)];
}

const numberAt = (object: KubeObject, ...path: readonly string[]) =>
  Number(memberAt(object, ...path) ?? 0);

const containersOf = (object: KubeObject, member: string) => {
  const containers = memberAt(object, 'spec', 'template', 'spec', 'containers');
  return Array.isArray(containers) ? containers.map((each) => textAt(each, member)).join(',') : '';
};

/** StatefulSets. The sandbox's own controller creates their claims and pods (stateful-sets/). */
export const statefulSets: Resource = {
  group: 'apps',
  version: 'v1',
  plural: 'statefulsets',
  singular: 'statefulset',
  kind: 'StatefulSet',
  shortNames: ['sts'],
  categories: ['all'],
  namespaced: true,
  struct: schemaOf('StatefulSet'),
  hasStatus: true,
  hasGeneration: true,
  applyDefaults,
  beforeCreate(set) {
    set['status'] = { replicas: 0, availableReplicas: 0 };
  },
  validate,
  validateUpdate,
  columns: [
    nameColumn,
    textColumn(
      'Ready',
      (o) => `${numberAt(o, 'status', 'readyReplicas')}/${numberAt(o, 'spec', 'replicas')}`,
    ),
    ageColumn,
    textColumn('Containers', (o) => containersOf(o, 'name'), 1),
    textColumn('Images', (o) => containersOf(o, 'image'), 1),
  ],
};
