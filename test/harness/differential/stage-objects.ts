import { at } from '../../conformance/connection.ts';
import { CLASSES, VOLUMES, paths, storageClass } from '../../conformance/objects.ts';
import type { Seen } from './observer.ts';
import type { Scene, Stage } from './scene.ts';

/** How the provisioners and the driver run, as far as objects of the cluster depend on it. */
export interface StageNeeds {
  /** The driver reports topology. */
  readonly hasTopology: boolean;
  /** Create the pod that the provisioner runs in. */
  readonly hasPod: boolean;
  /** The nodes with a driver of their own. */
  readonly nodes: readonly StageNode[];
}

/** A node with a driver of its own. */
export interface StageNode {
  readonly name: string;
  /** Its labels, whose keys the driver registered. */
  readonly topology: Readonly<Record<string, string>>;
}

const POD = 'provisioner';
export const NODES = '/api/v1/nodes';
export const CSI_NODES = '/apis/storage.k8s.io/v1/csinodes';
export const SELECTED_NODE = 'volume.kubernetes.io/selected-node';

/** Creates what claims without a scenario need, and the provisioner's pod.
 * @returns the provisioner's environment */
export async function createStageObjects(
  stage: Stage,
  needs: StageNeeds,
): Promise<Readonly<Record<string, string>>> {
  const { api, markerNamespace } = stage;
  await api.create('/api/v1/namespaces', {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: markerNamespace },
  });
  await createMarkerClass(stage, needs);
  for (const node of needs.nodes) await createNode(stage, node);
  if (!needs.hasPod) return {};
  await createPod(stage);
  return { NAMESPACE: markerNamespace, POD_NAME: POD };
}

async function createNode(
  { api, driverName }: Stage,
  { name, topology }: StageNode,
): Promise<void> {
  await api.create(NODES, { apiVersion: 'v1', kind: 'Node', metadata: { name, labels: topology } });
  const topologyKeys = Object.keys(topology);
  await api.create(CSI_NODES, {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'CSINode',
    metadata: { name },
    spec: { drivers: [{ name: driverName, nodeID: name, topologyKeys }] },
  });
}

/** A class whose claims are provisioned whatever nodes there are. */
async function createMarkerClass(stage: Stage, { hasTopology, nodes }: StageNeeds): Promise<void> {
  const key = `${stage.markerClass}/anywhere`;
  const fields = {
    provisioner: stage.driverName,
    ...(nodes.length > 0 ? { volumeBindingMode: 'WaitForFirstConsumer' } : {}),
    ...(hasTopology && nodes.length === 0
      ? { allowedTopologies: [{ matchLabelExpressions: [{ key, values: ['yes'] }] }] }
      : {}),
  };
  await stage.api.create(CLASSES, storageClass(stage.markerClass, { fields }));
}

/** Creates a pod of a ReplicaSet of a Deployment. */
async function createPod({ api, markerNamespace, observer }: Stage): Promise<void> {
  const labels = { app: POD };
  const template = {
    metadata: { labels },
    spec: { containers: [{ name: 'provisioner', image: 'none' }] },
  };
  const spec = { selector: { matchLabels: labels }, template };
  const base = `/apis/apps/v1/namespaces/${markerNamespace}`;
  // Pods are refused until a controller has created this account.
  const account = `/api/v1/namespaces/${markerNamespace}/serviceaccounts/default`;
  await api.until(account, ({ status }) => status === 200);
  const create = async (path: string, kind: string, object: object): Promise<object> => {
    const stored = (await api.create(path, { kind, ...object })) as {
      readonly apiVersion: string;
      readonly metadata: { readonly name: string; readonly uid: string };
    };
    observer.remember(kind, stored);
    const { name, uid } = stored.metadata;
    const apiVersion = kind === 'Pod' ? 'v1' : 'apps/v1';
    return { ownerReferences: [{ apiVersion, kind, name, uid, controller: true }] };
  };
  const deployment = await create(`${base}/deployments`, 'Deployment', {
    apiVersion: 'apps/v1',
    metadata: { name: POD },
    spec,
  });
  const replicaSet = await create(`${base}/replicasets`, 'ReplicaSet', {
    apiVersion: 'apps/v1',
    metadata: { name: POD, ...deployment },
    spec,
  });
  await create(`/api/v1/namespaces/${markerNamespace}/pods`, 'Pod', {
    apiVersion: 'v1',
    metadata: { name: POD, labels, ...replicaSet },
    spec: template.spec,
  });
}

/** Deletes claims and volumes in spite of finalizers: the next provisioner may have a driver of the
 * same name. */
export async function cleanUp(
  scenes: readonly Scene[],
  stage: Stage,
  { nodes }: Pick<StageNeeds, 'nodes'>,
): Promise<void> {
  await stage.observer.next();
  const all = [
    ...nodes.flatMap(({ name }) => [`${NODES}/${name}`, `${CSI_NODES}/${name}`]),
    ...scenes.flatMap(objectsOfScene),
    ...markerObjects(stage),
    ...scenes.map((scene) => `/api/v1/namespaces/${scene.namespace}`),
  ];
  for (const path of all) {
    const { body } = await stage.api.call('DELETE', path);
    if (Array.isArray(at(body, 'metadata', 'finalizers')))
      await stage.api.patch('merge', path, { metadata: { finalizers: null } });
  }
}

function objectsOfScene(scene: Scene): readonly string[] {
  return [
    ...scene
      .ownClaims()
      .map(({ metadata }) => `${paths(metadata.namespace ?? '').claims}/${metadata.name}`),
    ...scene.volumes().map(({ metadata }) => `${VOLUMES}/${metadata.name}`),
    `${CLASSES}/${scene.className}`,
    ...scene.others,
  ];
}

function markerObjects({ observer, markerNamespace }: Stage): readonly string[] {
  const { volumes, claims, capacities } = observer.objects;
  const isHere = ({ metadata }: Seen): boolean => metadata.namespace === markerNamespace;
  const capacityPath = `/apis/storage.k8s.io/v1/namespaces/${markerNamespace}/csistoragecapacities`;
  return [
    ...volumes
      .filter(({ spec }) => at(spec, 'claimRef', 'namespace') === markerNamespace)
      .map(({ metadata }) => `${VOLUMES}/${metadata.name}`),
    ...claims
      .filter(isHere)
      .map(({ metadata }) => `${paths(markerNamespace).claims}/${metadata.name}`),
    ...capacities.filter(isHere).map(({ metadata }) => `${capacityPath}/${metadata.name}`),
  ];
}
