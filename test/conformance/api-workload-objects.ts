import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  at,
  listAt,
  namesOf,
  refused,
  textAt,
  unique,
  type Connection,
  type Fields,
  invalid,
} from './connection.ts';
import { claim } from './objects.ts';

const NODES = '/api/v1/nodes';
const CSI_NODES = '/apis/storage.k8s.io/v1/csinodes';
const CSI_DRIVERS = '/apis/storage.k8s.io/v1/csidrivers';
const METADATA = 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io';

/** The rules of nodes, of what drivers register, and of the pods that use claims. */
export function describeWorkloadObjects(api: () => Connection): void {
  describeNodes(api);
  describeCapacities(api);
  describePods(api);
  describeStatefulSets(api);
}

function describeNodes(api: () => Connection): void {
  describe('a node', () => {
    it('is found by its labels, also as metadata alone', async () => {
      const zone = unique('zone');
      const name = unique('node');
      await api().create(NODES, node(name, { 'topology.kubernetes.io/zone': zone }));
      const query = { labelSelector: `topology.kubernetes.io/zone=${zone}` };
      assert.deepEqual(namesOf((await api().get(NODES, query)).body), [name]);
      const { body } = await api().call('GET', NODES, { query, accept: METADATA });
      assert.equal(at(body, 'kind'), 'PartialObjectMetadataList');
      assert.equal(at(body, 'items', 0, 'metadata', 'labels', 'topology.kubernetes.io/zone'), zone);
      assert.equal(at(body, 'items', 0, 'spec'), undefined);
    });

    it('is watched as metadata alone, when its labels change too', async () => {
      const name = unique('node');
      await api().create(NODES, node(name));
      const query = { fieldSelector: `metadata.name=${name}` };
      const watch = await api().watch(NODES, { ...query, resourceVersion: '0' });
      assert.deepEqual(await watch.take(1), [`ADDED ${name}`]);
      await api().patch('merge', `${NODES}/${name}`, { metadata: { labels: { moved: 'yes' } } });
      const changed = await watch.next();
      assert.deepEqual(
        [changed?.type, at(changed?.object, 'metadata', 'labels', 'moved')],
        ['MODIFIED', 'yes'],
      );
    });

    it('keeps the status that it is created with', async () => {
      const conditions = [{ type: 'Ready', status: 'True', reason: 'KubeletReady' }];
      const stored = await api().create(NODES, {
        ...node(unique('node')),
        status: { conditions, nodeInfo: NODE_INFO },
      });
      assert.equal(at(stored, 'status', 'conditions', 0, 'status'), 'True');
    });
  });

  describe('a CSINode', () => {
    it('lists drivers with their node ID and topology keys', async () => {
      const drivers = [
        { name: 'a.sutler.dev', nodeID: 'a', topologyKeys: ['x/zone', 'x/node'] },
        { name: 'b.sutler.dev', nodeID: 'b', topologyKeys: null },
      ];
      const stored = await api().create(CSI_NODES, csiNode(unique('node'), drivers));
      assert.deepEqual(listAt(stored, 'spec', 'drivers'), drivers);
    });

    it('may get and lose drivers', async () => {
      const name = unique('node');
      await api().create(CSI_NODES, csiNode(name, []));
      for (const drivers of [
        [{ name: 'a.sutler.dev', nodeID: 'a', topologyKeys: ['x/zone'] }],
        [],
      ]) {
        const reply = await api().patch('merge', `${CSI_NODES}/${name}`, { spec: { drivers } });
        assert.deepEqual(listAt(reply.body, 'spec', 'drivers'), drivers, reply.text);
      }
    });

    for (const [field, value] of [
      ['topologyKeys', ['x/zone', 'x/rack']],
      ['nodeID', 'b'],
    ] as const)
      it(`has a driver with an immutable ${field}`, async () => {
        const name = unique('node');
        const driver = { name: 'a.sutler.dev', nodeID: 'a', topologyKeys: ['x/zone'] };
        await api().create(CSI_NODES, csiNode(name, [driver]));
        const drivers = [{ ...driver, [field]: value }];
        refused(
          await api().patch('merge', `${CSI_NODES}/${name}`, { spec: { drivers } }),
          invalid(/spec\.drivers: Invalid value: .*: field is immutable/),
        );
      });
  });

  describe('a CSIDriver', () => {
    it('reports no capacity by default', async () => {
      const metadata = { name: `${unique('driver')}.sutler.dev` };
      const stored = await api().create(CSI_DRIVERS, { metadata, spec: {} });
      assert.equal(at(stored, 'spec', 'storageCapacity'), false);
    });
  });
}

function describeCapacities(api: () => Connection): void {
  describe('a CSIStorageCapacity', () => {
    const newCapacity = async (fields: Fields = {}) => {
      const path = capacitiesIn(await api().namespace());
      const stored = await api().create(path, capacity(fields));
      return { stored, path: `${path}/${textAt(stored, 'metadata', 'name')}` };
    };

    it('has a generated name and sizes in canonical form', async () => {
      const { stored } = await newCapacity({ capacity: '1024Mi', maximumVolumeSize: '0.5Gi' });
      assert.match(textAt(stored, 'metadata', 'name'), /^csisc-/);
      assert.deepEqual([at(stored, 'capacity'), at(stored, 'maximumVolumeSize')], ['1Gi', '512Mi']);
    });

    it('allows changes of its sizes', async () => {
      const { path } = await newCapacity({ capacity: '1Gi' });
      const { body } = await api().patch('merge', path, { capacity: '0', maximumVolumeSize: '0' });
      assert.deepEqual([at(body, 'capacity'), at(body, 'maximumVolumeSize')], ['0', '0']);
    });

    for (const [field, value] of [
      ['nodeTopology', { matchLabels: { zone: 'other' } }],
      ['storageClassName', 'other'],
    ] as const)
      it(`has an immutable ${field}`, async () => {
        const { path } = await newCapacity();
        const message = new RegExp(`${field}.*field is immutable`);
        refused(await api().patch('merge', path, { [field]: value }), invalid(message));
      });

    for (const [fields, message] of [
      [{ storageClassName: '' }, /storageClassName: Invalid value/],
      [{ capacity: '-1' }, /capacity: Invalid value: "-1": must be greater than or equal to 0/],
    ] as const)
      it(`is refused with ${JSON.stringify(fields)}`, async () => {
        const path = capacitiesIn(await api().namespace());
        const body = capacity(fields);
        refused(await api().call('POST', path, { body }), invalid(message));
      });
  });
}

function describePods(api: () => Connection): void {
  describe('a pod', () => {
    it('is Pending, for the default scheduler, and without a node', async () => {
      const stored = await api().create(podsIn(await api().namespace()), pod('a'));
      assert.equal(at(stored, 'status', 'phase'), 'Pending');
      assert.equal(at(stored, 'spec', 'schedulerName'), 'default-scheduler');
      assert.equal(at(stored, 'spec', 'nodeName'), undefined);
    });

    it('is found by its node', async () => {
      const pods = podsIn(await api().namespace());
      const nodeName = unique('node');
      await api().create(pods, pod('a'));
      await api().create(pods, pod('b', { nodeName }));
      const { body } = await api().get(pods, { fieldSelector: `spec.nodeName=${nodeName}` });
      assert.deepEqual(namesOf(body), ['b']);
    });
  });
}

function describeStatefulSets(api: () => Connection): void {
  describe('a StatefulSet', () => {
    it('has one ordered replica by default, and claims that are retained', async () => {
      const sets = setsIn(await api().namespace());
      const spec = at(await api().create(sets, statefulSet('a')), 'spec');
      assert.equal(at(spec, 'replicas'), 1);
      assert.equal(at(spec, 'podManagementPolicy'), 'OrderedReady');
      assert.equal(at(spec, 'updateStrategy', 'type'), 'RollingUpdate');
      assert.equal(at(spec, 'revisionHistoryLimit'), 10);
      assert.deepEqual(at(spec, 'persistentVolumeClaimRetentionPolicy'), {
        whenDeleted: 'Retain',
        whenScaled: 'Retain',
      });
      assert.equal(at(spec, 'template', 'spec', 'restartPolicy'), 'Always');
    });

    it('has claim templates with the defaults of claims', async () => {
      const { metadata, spec } = claim('data');
      const sets = setsIn(await api().namespace());
      const stored = await api().create(
        sets,
        statefulSet('a', { volumeClaimTemplates: [{ metadata, spec }] }),
      );
      const [template] = listAt(stored, 'spec', 'volumeClaimTemplates');
      assert.equal(at(template, 'kind'), 'PersistentVolumeClaim');
      assert.equal(at(template, 'spec', 'volumeMode'), 'Filesystem');
      assert.equal(at(template, 'status', 'phase'), 'Pending');
    });

    it('may change its replicas, which changes its generation', async () => {
      const sets = setsIn(await api().namespace());
      await api().create(sets, statefulSet('a'));
      const { body } = await api().patch('merge', `${sets}/a`, { spec: { replicas: 3 } });
      assert.deepEqual([at(body, 'spec', 'replicas'), at(body, 'metadata', 'generation')], [3, 2]);
    });

    it('may not change its claim templates or its service', async () => {
      const sets = setsIn(await api().namespace());
      await api().create(sets, statefulSet('a'));
      refused(
        await api().patch('merge', `${sets}/a`, { spec: { serviceName: 'other' } }),
        invalid(/updates to statefulset spec for fields other than 'replicas', .* are forbidden/),
      );
    });

    for (const [spec, message] of [
      [{ selector: {} }, /empty selector is invalid for statefulset/],
      [
        { selector: { matchLabels: { app: 'other' } } },
        /`selector` does not match template `labels`/,
      ],
      [{ replicas: -1 }, /spec.replicas: Invalid value: -1: must be greater than or equal to 0/],
    ] as const)
      it(`is refused with ${JSON.stringify(spec)}`, async () => {
        const sets = setsIn(await api().namespace());
        const reply = await api().call('POST', sets, { body: statefulSet('a', spec) });
        refused(reply, invalid(message));
      });
  });
}

const podsIn = (namespace: string): string => `/api/v1/namespaces/${namespace}/pods`;
const setsIn = (namespace: string): string => `/apis/apps/v1/namespaces/${namespace}/statefulsets`;
const capacitiesIn = (namespace: string): string =>
  `/apis/storage.k8s.io/v1/namespaces/${namespace}/csistoragecapacities`;

const NODE_INFO = {
  machineID: '',
  systemUUID: '',
  bootID: '',
  kernelVersion: '',
  osImage: '',
  containerRuntimeVersion: '',
  kubeletVersion: 'v1.0.0',
  kubeProxyVersion: '',
  operatingSystem: 'linux',
  architecture: 'amd64',
};

function node(name: string, labels: Fields = {}) {
  return { apiVersion: 'v1', kind: 'Node', metadata: { name, labels } };
}

function csiNode(name: string, drivers: readonly Fields[]) {
  return {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'CSINode',
    metadata: { name },
    spec: { drivers },
  };
}

function capacity(fields: Fields) {
  return {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'CSIStorageCapacity',
    metadata: { generateName: 'csisc-' },
    storageClassName: 'any',
    nodeTopology: { matchLabels: { zone: 'a' } },
    ...fields,
  };
}

function podSpec(more: Fields = {}) {
  return { containers: [{ name: 'main', image: 'none' }], ...more };
}

function pod(name: string, spec: Fields = {}) {
  return { apiVersion: 'v1', kind: 'Pod', metadata: { name }, spec: podSpec(spec) };
}

function statefulSet(name: string, spec: Fields = {}) {
  const labels = { app: name };
  return {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: { name },
    spec: {
      selector: { matchLabels: labels },
      serviceName: name,
      template: { metadata: { labels }, spec: podSpec() },
      ...spec,
    },
  };
}
