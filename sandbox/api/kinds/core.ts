import { forbidden, type Cause } from '../api-error.ts';
import { ageColumn, nameColumn, textColumn } from '../columns.ts';
import { forbiddenValue, immutable, invalidValue } from '../field-error.ts';
import {
  equalJson,
  memberAt,
  objectAt,
  plainText,
  setMember,
  textAt,
  type Json,
  type JsonObject,
} from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { configKeyComplaint, labelComplaint } from '../names.ts';
import type { Resource } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';

const GROUP = { group: '', version: 'v1' } as const;

/** The cell of a column that counts the entries of some members. */
const entriesOf =
  (...members: readonly string[]) =>
  (object: KubeObject) =>
    members.reduce((sum, member) => sum + Object.keys(objectAt(object, member)).length, 0);

/** Namespaces. Deleting one deletes its contents first (namespace-sweep.ts). */
export const namespaces: Resource = {
  ...GROUP,
  plural: 'namespaces',
  singular: 'namespace',
  kind: 'Namespace',
  shortNames: ['ns'],
  namespaced: false,
  struct: schemaOf('Namespace'),
  deletedOneByOne: true,
  hasStatus: true,
  returnsDeleted: true,
  nameComplaint: labelComplaint,
  applyDefaults(object) {
    objectAt(object, 'status')['phase'] ??= 'Active';
    object.metadata.labels = {
      ...object.metadata.labels,
      'kubernetes.io/metadata.name': object.metadata.name,
    };
  },
  beforeCreate(object) {
    object['spec'] = { finalizers: ['kubernetes'] };
    object['status'] = { phase: 'Active' };
  },
  columns: [nameColumn, textColumn('Status', (o) => textAt(o, 'status', 'phase')), ageColumn],
};

/** Namespaces that may not be deleted. */
export const PERMANENT_NAMESPACES: ReadonlySet<string> = new Set([
  'default',
  'kube-system',
  'kube-public',
]);

/** 403 for a namespace that may not be deleted. */
export function namespaceStays(name: string) {
  return forbidden(namespaces, name, 'this namespace may not be deleted');
}

function dataCauses(object: KubeObject, members: readonly string[]): Cause[] {
  return members.flatMap((member) =>
    Object.keys(objectAt(object, member)).flatMap((key) => {
      const complaint = configKeyComplaint(key);
      return complaint === undefined ? [] : [invalidValue(`${member}[${key}]`, key, complaint)];
    }),
  );
}

function frozenCauses(object: KubeObject, old: KubeObject, members: readonly string[]): Cause[] {
  if (old['immutable'] !== true) return [];
  const causes = members
    .filter((member) => !equalJson(object[member], old[member]))
    .map((member) => forbiddenValue(member, 'field is immutable when `immutable` is set'));
  if (object['immutable'] !== true)
    causes.unshift(forbiddenValue('immutable', 'field is immutable when `immutable` is set'));
  return causes;
}

/** Secrets. stringData is merged into data and never returned. */
export const secrets: Resource = {
  ...GROUP,
  plural: 'secrets',
  singular: 'secret',
  kind: 'Secret',
  namespaced: true,
  struct: schemaOf('Secret'),
  fieldLabels: { type: (o) => textAt(o, 'type') },
  applyDefaults(object) {
    const plain = object['stringData'];
    if (plain !== undefined) {
      const data: JsonObject = { ...objectAt(object, 'data') };
      for (const [key, text] of Object.entries(objectAt(object, 'stringData')))
        setMember(data, key, Buffer.from(plainText(text)).toString('base64'));
      delete object['stringData'];
      const type = object['type'];
      delete object['type'];
      object['data'] = data;
      if (type !== undefined) object['type'] = type;
    }
    object['type'] ??= 'Opaque';
  },
  validate: (object) => dataCauses(object, ['data']),
  validateUpdate: (object, old) => [
    ...(object['type'] === old['type'] ? [] : [immutable('type', object['type'])]),
    ...frozenCauses(object, old, ['data']),
  ],
  columns: [
    nameColumn,
    textColumn('Type', (o) => textAt(o, 'type')),
    { name: 'Data', type: 'string', cell: entriesOf('data') },
    ageColumn,
  ],
};

/** ConfigMaps. */
export const configMaps: Resource = {
  ...GROUP,
  plural: 'configmaps',
  singular: 'configmap',
  kind: 'ConfigMap',
  shortNames: ['cm'],
  namespaced: true,
  struct: schemaOf('ConfigMap'),
  validate: (object) => dataCauses(object, ['data', 'binaryData']),
  validateUpdate: (object, old) => frozenCauses(object, old, ['data', 'binaryData']),
  columns: [
    nameColumn,
    { name: 'Data', type: 'string', cell: entriesOf('data', 'binaryData') },
    ageColumn,
  ],
};

/** ServiceAccounts. */
export const serviceAccounts: Resource = {
  ...GROUP,
  plural: 'serviceaccounts',
  singular: 'serviceaccount',
  kind: 'ServiceAccount',
  shortNames: ['sa'],
  namespaced: true,
  struct: schemaOf('ServiceAccount'),
  returnsDeleted: true,
  columns: [nameColumn, ageColumn],
};

const addressOf = (node: KubeObject, type: string) => {
  const addresses = memberAt(node, 'status', 'addresses');
  const found = Array.isArray(addresses)
    ? addresses.find((each) => textAt(each, 'type') === type)
    : undefined;
  return textAt(found, 'address') || '<none>';
};

function nodeStatus(node: KubeObject): string {
  const conditions = memberAt(node, 'status', 'conditions');
  const ready = Array.isArray(conditions)
    ? conditions.find((each) => textAt(each, 'type') === 'Ready')
    : undefined;
  const status =
    ready === undefined ? 'Unknown' : textAt(ready, 'status') === 'True' ? 'Ready' : 'NotReady';
  return memberAt(node, 'spec', 'unschedulable') === true ? `${status},SchedulingDisabled` : status;
}

function nodeRoles(node: KubeObject): string {
  const prefix = 'node-role.kubernetes.io/';
  const roles = Object.keys(node.metadata.labels ?? {})
    .filter((label) => label.startsWith(prefix))
    .map((label) => label.slice(prefix.length));
  return roles.join(',') || '<none>';
}

/** Nodes. The sandbox runs nothing on them. */
export const nodes: Resource = {
  ...GROUP,
  plural: 'nodes',
  singular: 'node',
  kind: 'Node',
  shortNames: ['no'],
  namespaced: false,
  struct: schemaOf('Node'),
  hasStatus: true,
  fieldLabels: {
    'spec.unschedulable': (o) => String(memberAt(o, 'spec', 'unschedulable') === true),
  },
  columns: [
    nameColumn,
    textColumn('Status', nodeStatus),
    textColumn('Roles', nodeRoles),
    ageColumn,
    textColumn('Version', (o) => textAt(o, 'status', 'nodeInfo', 'kubeletVersion')),
    textColumn('Internal-IP', (o) => addressOf(o, 'InternalIP'), 1),
    textColumn('External-IP', (o) => addressOf(o, 'ExternalIP'), 1),
    textColumn('OS-Image', (o) => textAt(o, 'status', 'nodeInfo', 'osImage') || '<unknown>', 1),
    textColumn(
      'Kernel-Version',
      (o) => textAt(o, 'status', 'nodeInfo', 'kernelVersion') || '<unknown>',
      1,
    ),
    textColumn(
      'Container-Runtime',
      (o) => textAt(o, 'status', 'nodeInfo', 'containerRuntimeVersion') || '<unknown>',
      1,
    ),
  ],
};

function readyContainers(pod: KubeObject): string {
  const listAt = (...path: readonly string[]) =>
    (memberAt(pod, ...path) as Json[] | undefined) ?? [];
  const ready = listAt('status', 'containerStatuses').filter(
    (each) => memberAt(each, 'ready') === true,
  );
  return `${ready.length}/${listAt('spec', 'containers').length}`;
}

/** Pods, complete enough to be the consumer of a claim. No kubelet runs them, so a deletion takes
 * effect at once. */
export const pods: Resource = {
  ...GROUP,
  plural: 'pods',
  singular: 'pod',
  kind: 'Pod',
  shortNames: ['po'],
  categories: ['all'],
  namespaced: true,
  struct: schemaOf('Pod'),
  hasStatus: true,
  returnsDeleted: true,
  fieldLabels: {
    'spec.nodeName': (o) => textAt(o, 'spec', 'nodeName'),
    'spec.restartPolicy': (o) => textAt(o, 'spec', 'restartPolicy'),
    'spec.schedulerName': (o) => textAt(o, 'spec', 'schedulerName'),
    'spec.serviceAccountName': (o) => textAt(o, 'spec', 'serviceAccountName'),
    'status.phase': (o) => textAt(o, 'status', 'phase'),
    'status.podIP': (o) => textAt(o, 'status', 'podIP'),
    'status.nominatedNodeName': (o) => textAt(o, 'status', 'nominatedNodeName'),
  },
  applyDefaults(object) {
    const spec = objectAt(object, 'spec');
    spec['restartPolicy'] ??= 'Always';
    spec['terminationGracePeriodSeconds'] ??= 30;
    spec['schedulerName'] ??= 'default-scheduler';
    objectAt(object, 'status')['phase'] ??= 'Pending';
  },
  beforeCreate(object) {
    object['status'] = { phase: 'Pending' };
  },
  columns: [
    nameColumn,
    textColumn('Ready', readyContainers),
    textColumn('Status', (o) =>
      o.metadata.deletionTimestamp === undefined ? textAt(o, 'status', 'phase') : 'Terminating',
    ),
    textColumn('Restarts', () => '0'),
    ageColumn,
    textColumn('IP', (o) => textAt(o, 'status', 'podIP') || '<none>', 1),
    textColumn('Node', (o) => textAt(o, 'spec', 'nodeName') || '<none>', 1),
    textColumn('Nominated Node', (o) => textAt(o, 'status', 'nominatedNodeName') || '<none>', 1),
    textColumn('Readiness Gates', () => '<none>', 1),
  ],
};
