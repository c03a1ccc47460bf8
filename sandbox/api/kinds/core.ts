import { ageColumn, column, nameColumn, statusColumn } from '../columns.ts';
import { childOf, memberAt, objectAt, plainText, setMember, textAt } from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { kindOf } from '../resource.ts';

/** The cell of a column that counts the entries of some members. */
const entriesOf =
  (...members: readonly string[]) =>
  (object: KubeObject) =>
    String(members.reduce((sum, member) => sum + Object.keys(objectAt(object, member)).length, 0));

/** Namespaces. Deleting one deletes its contents first. */
export const namespaces = kindOf('v1', ['Namespace', 'namespaces', 'ns'], {
  namespaced: false,
  hasStatus: true,
  applyDefaults({ metadata }) {
    metadata.labels = { ...metadata.labels, 'kubernetes.io/metadata.name': metadata.name };
  },
  beforeCreate(object) {
    object['spec'] = { finalizers: ['kubernetes'] };
    object['status'] = { phase: 'Active' };
  },
  columns: [nameColumn, column('Status', 'status.phase'), ageColumn],
});

/** Secrets. stringData is merged into data and never returned. */
export const secrets = kindOf('v1', ['Secret', 'secrets'], {
  applyDefaults(object) {
    for (const [key, text] of Object.entries(objectAt(object, 'stringData')))
      setMember(childOf(object, 'data'), key, Buffer.from(plainText(text)).toString('base64'));
    delete object['stringData'];
    object['type'] ??= 'Opaque';
  },
  columns: [nameColumn, column('Type', 'type'), column('Data', entriesOf('data')), ageColumn],
});

export const configMaps = kindOf('v1', ['ConfigMap', 'configmaps', 'cm'], {
  columns: [nameColumn, column('Data', entriesOf('data', 'binaryData')), ageColumn],
});

export const serviceAccounts = kindOf('v1', ['ServiceAccount', 'serviceaccounts', 'sa']);

function nodeStatus(node: KubeObject): string {
  const conditions = memberAt(node, 'status', 'conditions');
  const ready = Array.isArray(conditions)
    ? conditions.find((each) => textAt(each, 'type') === 'Ready')
    : undefined;
  const status =
    ready === undefined ? 'Unknown' : textAt(ready, 'status') === 'True' ? 'Ready' : 'NotReady';
  return memberAt(node, 'spec', 'unschedulable') === true ? `${status},SchedulingDisabled` : status;
}

/** Nodes. The sandbox runs nothing on them. */
export const nodes = kindOf('v1', ['Node', 'nodes', 'no'], {
  namespaced: false,
  hasStatus: true,
  columns: [nameColumn, column('Status', nodeStatus), ageColumn],
});

function readyContainers(pod: KubeObject): string {
  const listAt = (...path: readonly string[]) => {
    const list = memberAt(pod, ...path);
    return Array.isArray(list) ? list : [];
  };
  const ready = listAt('status', 'containerStatuses').filter(
    (each) => memberAt(each, 'ready') === true,
  );
  return `${ready.length}/${listAt('spec', 'containers').length}`;
}

/** Pods, complete enough to be the consumer of a claim. No kubelet runs them, so a deletion takes
 * effect at once. */
export const pods = kindOf('v1', ['Pod', 'pods', 'po'], {
  hasStatus: true,
  applyDefaults(object) {
    const spec = childOf(object, 'spec');
    spec['restartPolicy'] ??= 'Always';
    spec['terminationGracePeriodSeconds'] ??= 30;
    spec['schedulerName'] ??= 'default-scheduler';
  },
  beforeCreate(object) {
    object['status'] = { phase: 'Pending' };
  },
  columns: [
    nameColumn,
    column('Ready', readyContainers),
    statusColumn,
    column('Restarts', () => '0'),
    ageColumn,
    column('Node', (o) => textAt(o, 'spec', 'nodeName') || '<none>', 1),
  ],
});

export const leases = kindOf('coordination.k8s.io/v1', ['Lease', 'leases'], {
  createsOnUpdate: true,
  columns: [nameColumn, column('Holder', 'spec.holderIdentity'), ageColumn],
});

/** EndpointSlices: where the pods of a Service listen. Nothing here makes them from Services. */
export const endpointSlices = kindOf('discovery.k8s.io/v1', ['EndpointSlice', 'endpointslices']);
