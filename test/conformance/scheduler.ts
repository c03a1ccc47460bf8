import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  at,
  listAt,
  namesOf,
  textAt,
  unique,
  type ApiServerUnderTest,
  type Connection,
  type Fields,
} from './connection.ts';
import { describeServer } from './describe-server.ts';
import { CLASSES, VOLUMES, claim, paths, storageClass, volume } from './objects.ts';

const NODES = '/api/v1/nodes';
const PROVISIONER = 'volume.kubernetes.io/storage-provisioner';
const SELECTED_NODE = 'volume.kubernetes.io/selected-node';

/** Tests how pods get a node by their volumes. The same suite runs on kube-scheduler and on the
 * sandbox's scheduler; the suite itself acts as the provisioner. */
export function describeScheduler(name: string, open: () => Promise<ApiServerUnderTest>): void {
  describeServer(`scheduler: ${name}`, open, (api) => {
    describeWaitingClaims(api);
  });
}

function describeWaitingClaims(api: () => Connection): void {
  describe('a pod with a claim that waits for a consumer', () => {
    it('has its node selected on the claim, and gets it when the claim is Bound', async () => {
      const scene = await openScene(api(), ['one']);
      const { podPath, claimPath } = await scene.podWithClaim();
      await selectedNode(api(), claimPath, scene.node('one'));
      assert.equal(at(await api().read(podPath), 'spec', 'nodeName'), undefined);
      await scene.provision(claimPath, scene.node('one'));
      await runsOn(api(), podPath, scene.node('one'));
    });

    it('has a node selected again when the selected one is removed', async () => {
      const scene = await openScene(api(), ['one', 'two']);
      const { podPath, claimPath } = await scene.podWithClaim();
      await selectedNode(api(), claimPath);
      await api().until(claimPath, ({ body }) => annotationOf(body, PROVISIONER) !== undefined);
      const removal = { metadata: { annotations: { [SELECTED_NODE]: null } } };
      await api().patch('merge', claimPath, removal);
      const event = await failureOf(api(), podPath, /provisioning failed for PVC/);
      assert.equal(at(event, 'type'), 'Warning');
      const again = await selectedNode(api(), claimPath);
      await scene.provision(claimPath, again);
      await runsOn(api(), podPath, again);
    });

    it('follows its volume to another node than the selected one', async () => {
      const scene = await openScene(api(), ['one', 'two']);
      const { podPath, claimPath } = await scene.podWithClaim();
      const first = await selectedNode(api(), claimPath);
      const other = ['one', 'two'].map(scene.node).find((each) => each !== first) ?? '';
      await scene.provision(claimPath, other);
      await runsOn(api(), podPath, other);
    });

    it('gets only nodes of the class’s allowedTopologies', async () => {
      const scene = await openScene(api(), ['one', 'two', 'three']);
      const expression = { key: 'own', values: [scene.node('two')] };
      const allowedTopologies = [{ matchLabelExpressions: [expression] }];
      const { claimPath } = await scene.podWithClaim({ allowedTopologies });
      await selectedNode(api(), claimPath, scene.node('two'));
    });

    it('says that its volume is elsewhere if it fits on no node', async () => {
      const scene = await openScene(api(), ['one']);
      const { claimPath } = await scene.podWithClaim();
      await selectedNode(api(), claimPath);
      await scene.provision(claimPath, 'another');
      await api().until(claimPath, (reply) => at(reply.body, 'status', 'phase') === 'Bound');
      const podPath = await scene.newPod('a');
      await failureOf(api(), podPath, /node\(s\) didn't match PersistentVolume's node affinity/);
    });
  });
}

/** Nodes that only the pods of one test may use. */
async function openScene(api: Connection, names: readonly string[]) {
  const id = unique('scene');
  const namespace = await api.namespace();
  const node = (name: string): string => `${id}-${name}`;
  for (const name of names) await newNode(api, node(name), id);
  const { claims } = paths(namespace);
  const newClass = async (fields: Fields = {}): Promise<string> => {
    const name = unique('class');
    const late = { volumeBindingMode: 'WaitForFirstConsumer', ...fields };
    await api.create(CLASSES, storageClass(name, { fields: late }));
    return name;
  };
  /** Creates a pod that uses a claim.
   * @returns its path */
  const newPod = async (claimName: string): Promise<string> => {
    const name = unique('pod');
    const volumes = [{ name: 'data', persistentVolumeClaim: { claimName } }];
    await api.create(`/api/v1/namespaces/${namespace}/pods`, {
      metadata: { name },
      spec: { nodeSelector: { id }, containers: [{ name: 'main', image: 'none' }], volumes },
    });
    return `/api/v1/namespaces/${namespace}/pods/${name}`;
  };
  const podOf = async (className: string) => {
    await api.create(claims, claim('a', { spec: { storageClassName: className } }));
    return { claimPath: `${claims}/a`, podPath: await newPod('a') };
  };
  return {
    namespace,
    node,
    newClass,
    newPod,
    podOf,
    podWithClaim: async (fields: Fields = {}) => podOf(await newClass(fields)),
    /** Creates the volume of a claim on a node. */
    async provision(claimPath: string, nodeName: string): Promise<void> {
      const { metadata, spec } = (await api.read(claimPath)) as Record<'metadata' | 'spec', Fields>;
      const claimRef = { namespace, name: metadata['name'], uid: metadata['uid'] };
      const storageClassName = spec['storageClassName'];
      const own = { storageClassName, claimRef, ...affinityTo(nodeName) };
      await api.create(VOLUMES, volume(unique('pv'), { spec: own }));
    },
  };
}

function affinityTo(node: string): { readonly nodeAffinity: Fields } {
  const matchExpressions = [{ key: 'own', operator: 'In', values: [node] }];
  return { nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions }] } } };
}

/** Creates a node that pods can be bound to. The server gives new nodes a taint until a kubelet
 * reports them as ready. */
async function newNode(api: Connection, name: string, id: string): Promise<void> {
  const resources = { cpu: '8', memory: '8Gi', pods: '100' };
  await api.create(NODES, {
    metadata: { name, labels: { id, own: name } },
    status: { capacity: resources, allocatable: resources },
  });
  const reply = await api.patch('merge', `${NODES}/${name}`, { spec: { taints: null } });
  assert.equal(reply.status, 200, reply.text);
}

function annotationOf(body: unknown, key: string): unknown {
  return at(body, 'metadata', 'annotations', key);
}

/** Waits until a node is selected on a claim.
 * @returns the node */
async function selectedNode(api: Connection, claimPath: string, node?: string): Promise<string> {
  const { body } = await api.until(
    claimPath,
    (reply) => annotationOf(reply.body, SELECTED_NODE) !== undefined,
  );
  const selected = textAt(body, 'metadata', 'annotations', SELECTED_NODE);
  if (node !== undefined) assert.equal(selected, node);
  return selected;
}

async function runsOn(api: Connection, podPath: string, node: string): Promise<void> {
  const { body } = await api.until(podPath, (r) => at(r.body, 'spec', 'nodeName') !== undefined);
  assert.equal(at(body, 'spec', 'nodeName'), node);
}

/** Waits for a FailedScheduling event of a pod with such a message. */
async function failureOf(api: Connection, podPath: string, message: RegExp): Promise<unknown> {
  const [, namespace = '', name] = /namespaces\/([^/]+)\/pods\/(.+)/.exec(podPath) ?? [];
  const eventOf = (body: unknown): unknown =>
    listAt(body, 'items').find((each) => message.test(textAt(each, 'message')));
  const fieldSelector = `reason=FailedScheduling,involvedObject.name=${name}`;
  const { body } = await api.until(
    paths(namespace).events,
    (reply) => namesOf(reply.body).length > 0 && eventOf(reply.body) !== undefined,
    { fieldSelector },
  );
  return eventOf(body);
}
