import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  at,
  invalid,
  listAt,
  namesOf,
  refused,
  textAt,
  unique,
  type Connection,
} from './connection.ts';
import { CLASSES, VOLUMES, claim, paths, secret, storageClass, volume } from './objects.ts';

const NODES = '/api/v1/nodes';
const METADATA = 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io';

/** The rules of single kinds that users and provisioners meet. */
export function describeKinds(api: () => Connection): void {
  const cannotCreate = async (path: string, body: unknown, message: RegExp): Promise<void> =>
    refused(await api().call('POST', path, { body }), invalid(message));
  const newIn = async (collection: string, body: unknown): Promise<string> =>
    `${collection}/${textAt(await api().create(collection, body), 'metadata', 'name')}`;

  describe('a class', () => {
    it('has reclaim policy Delete and binding mode Immediate by default', async () => {
      const stored = await api().create(CLASSES, storageClass(unique('class')));
      assert.equal(at(stored, 'reclaimPolicy'), 'Delete');
      assert.equal(at(stored, 'volumeBindingMode'), 'Immediate');
    });

    for (const [field, value] of [
      ['provisioner', 'other.sutler.dev'],
      ['parameters', { x: 'z' }],
      ['reclaimPolicy', 'Retain'],
      ['volumeBindingMode', 'WaitForFirstConsumer'],
    ] as const)
      it(`has an immutable ${field}`, async () => {
        const path = await newIn(CLASSES, storageClass(unique('class')));
        const reply = await api().patch('merge', path, { [field]: value });
        refused(reply, invalid(new RegExp(field)));
      });
  });

  describe('a claim', () => {
    it('is by default a Pending file system with the protection finalizer', async () => {
      const { claims } = paths(await api().namespace());
      const stored = await api().create(claims, claim('a'));
      assert.equal(at(stored, 'spec', 'volumeMode'), 'Filesystem');
      assert.deepEqual(at(stored, 'status'), { phase: 'Pending' });
      assert.deepEqual(at(stored, 'metadata', 'finalizers'), ['kubernetes.io/pvc-protection']);
    });

    for (const [spec, message] of [
      [requests('0'), /spec\.resources\[storage\]: Invalid value: "0"/],
      [{ resources: {} }, /spec\.resources\[storage\]: Required value/],
      [{ accessModes: [] }, /spec\.accessModes: Required value/],
      [{ accessModes: ['Sometimes'] }, /spec\.accessModes: Unsupported value: "Sometimes"/],
    ] as const)
      it(`is refused with ${JSON.stringify(spec)}`, async () => {
        const { claims } = paths(await api().namespace());
        await cannotCreate(claims, claim('a', { spec }), message);
      });

    it('cannot be changed while it is Pending', async () => {
      const path = await newIn(paths(await api().namespace()).claims, claim('a'));
      for (const spec of [{ storageClassName: 'other' }, requests('2Gi')])
        refused(
          await api().patch('merge', path, { spec }),
          invalid(/spec(\.\w+)?: (Forbidden|Invalid value)/),
        );
    });

    it('gets dataSourceRef from dataSource, and vice versa', async () => {
      const { claims } = paths(await api().namespace());
      const source = { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name: 'b' };
      const one = await api().create(claims, claim('one', { spec: { dataSource: source } }));
      assert.deepEqual(at(one, 'spec', 'dataSourceRef'), source);
      const two = await api().create(claims, claim('two', { spec: { dataSourceRef: source } }));
      assert.deepEqual(at(two, 'spec', 'dataSource'), source);
    });

    it('gets the default class if it has no class name, not if it is empty', async () => {
      const { claims } = paths(await api().namespace());
      const name = unique('class');
      const annotations = { 'storageclass.kubernetes.io/is-default-class': 'true' };
      await api().create(CLASSES, storageClass(name, { metadata: { annotations } }));
      try {
        // A real server reads the class from a cache, which may lag.
        const deadline = Date.now() + 10_000;
        let given: unknown;
        do {
          const spec = { storageClassName: undefined };
          const stored = await api().create(claims, claim(unique('c'), { spec }));
          given = at(stored, 'spec', 'storageClassName');
        } while (given === undefined && Date.now() < deadline);
        assert.equal(given, name);
        const none = await api().create(claims, claim('a', { spec: { storageClassName: '' } }));
        assert.equal(at(none, 'spec', 'storageClassName'), '');
      } finally {
        await api().call('DELETE', `${CLASSES}/${name}`);
      }
    });
  });

  describe('a volume', () => {
    it('is by default a Pending file system with Retain', async () => {
      const stored = await api().create(VOLUMES, volume(unique('pv')));
      assert.equal(at(stored, 'spec', 'volumeMode'), 'Filesystem');
      assert.equal(at(stored, 'spec', 'persistentVolumeReclaimPolicy'), 'Retain');
      assert.equal(at(stored, 'status', 'phase'), 'Pending');
    });

    it('keeps its finalizers in order before the protection finalizer', async () => {
      const ours = 'external-provisioner.volume.kubernetes.io/finalizer';
      const metadata = { finalizers: [ours] };
      const stored = await api().create(VOLUMES, volume(unique('pv'), { metadata }));
      assert.deepEqual(at(stored, 'metadata', 'finalizers'), [ours, 'kubernetes.io/pv-protection']);
    });

    for (const [title, spec, message] of [
      ['a handle', { csi: { driver: 'd', volumeHandle: '' } }, /spec\.csi\.volumeHandle: Required/],
      ['a capacity', { capacity: {} }, /spec\.capacity.*: Required value/],
      ['an access mode', { accessModes: [] }, /spec\.accessModes: Required value/],
      ['a source', { csi: undefined }, /spec: Required value: must specify a volume type/],
    ] as const)
      it(`requires ${title}`, () => cannotCreate(VOLUMES, volume(unique('pv'), { spec }), message));

    it('has an immutable source', async () => {
      const path = await newIn(VOLUMES, volume(unique('pv')));
      const reply = await api().patch('merge', path, { spec: { csi: { volumeHandle: 'other' } } });
      refused(reply, invalid(/persistentvolumesource is immutable after creation/));
    });
  });

  it('a secret has stringData merged into data', async () => {
    const { secrets } = paths(await api().namespace());
    const fields = { data: { x: 'eA==' }, stringData: { y: 'ü' } };
    const stored = await api().create(secrets, secret('a', { fields }));
    assert.deepEqual(at(stored, 'data'), { x: 'eA==', y: 'w7w=' });
    assert.equal(at(stored, 'stringData'), undefined);
  });

  describe('an event', () => {
    it('must be in the namespace of its object, and in default for one of the cluster', async () => {
      const namespace = await api().namespace();
      const { events } = paths(namespace);
      await api().create(events, event(namespace));
      await api().create(paths('default').events, event());
      await cannotCreate(events, event('default'), /does not match event\.namespace/);
      await cannotCreate(events, event(), /does not match event\.namespace/);
    });

    it('can be selected by its object', async () => {
      const namespace = await api().namespace();
      const { events } = paths(namespace);
      const stored = await api().create(events, event(namespace));
      const found = async (name: string) => {
        const fieldSelector = `involvedObject.name=${name},involvedObject.namespace=${namespace}`;
        return namesOf((await api().get(events, { fieldSelector })).body);
      };
      assert.deepEqual(await found('b'), []);
      assert.deepEqual(await found('a'), [textAt(stored, 'metadata', 'name')]);
    });
  });

  it('a node is found by its labels, also as metadata alone', async () => {
    const [zone, name] = [unique('zone'), unique('node')];
    const labels = { 'topology.kubernetes.io/zone': zone };
    await api().create(NODES, { metadata: { name, labels } });
    const query = { labelSelector: `topology.kubernetes.io/zone=${zone}` };
    const { body } = await api().call('GET', NODES, { query, accept: METADATA });
    assert.equal(at(body, 'kind'), 'PartialObjectMetadataList');
    assert.deepEqual(namesOf(body), [name]);
    assert.equal(at(body, 'items', 0, 'spec'), undefined);
  });

  describe('a CSIStorageCapacity', () => {
    const newCapacity = async (): Promise<string> => {
      const namespace = await api().namespace();
      const path = `/apis/storage.k8s.io/v1/namespaces/${namespace}/csistoragecapacities`;
      const nodeTopology = { matchLabels: { zone: 'a' } };
      const metadata = { generateName: 'csisc-' };
      return newIn(path, { metadata, storageClassName: 'any', nodeTopology, capacity: '1Gi' });
    };

    for (const [field, value] of [
      ['nodeTopology', { matchLabels: { zone: 'other' } }],
      ['storageClassName', 'other'],
    ] as const)
      it(`has an immutable ${field}`, async () => {
        const reply = await api().patch('merge', await newCapacity(), { [field]: value });
        refused(reply, invalid(new RegExp(`${field}.*field is immutable`)));
      });
  });

  it('a pod is Pending, for the default scheduler, and found by its node', async () => {
    const pods = `/api/v1/namespaces/${await api().namespace()}/pods`;
    const containers = [{ name: 'main', image: 'none' }];
    const nodeName = unique('node');
    const stored = await api().create(pods, { metadata: { name: 'a' }, spec: { containers } });
    assert.equal(at(stored, 'status', 'phase'), 'Pending');
    assert.equal(at(stored, 'spec', 'schedulerName'), 'default-scheduler');
    await api().create(pods, { metadata: { name: 'b' }, spec: { containers, nodeName } });
    const { body } = await api().get(pods, { fieldSelector: `spec.nodeName=${nodeName}` });
    assert.deepEqual(namesOf(body), ['b']);
  });
}

/** The answers to requests that the server does not serve. */
export function describeUnserved(api: () => Connection): void {
  it('what is unknown gets 404, a path of no group in plain text', async () => {
    const reply = await api().get('/apis/absent.sutler.dev/v1/things');
    assert.deepEqual([reply.status, reply.text], [404, '404 page not found\n']);
    refused(await api().get('/apis/storage.k8s.io/v1/nonsense'), { code: 404, reason: 'NotFound' });
  });

  it('discovery lists the kinds of a group', async () => {
    const kinds = listAt(await api().read('/apis/storage.k8s.io/v1'), 'resources');
    const found = kinds.find((each) => at(each, 'name') === 'storageclasses');
    assert.deepEqual([at(found, 'kind'), at(found, 'namespaced')], ['StorageClass', false]);
  });
}

/** The part of a claim's spec that asks for a size. */
function requests(storage: string) {
  return { resources: { requests: { storage } } };
}

/** An event about the claim `a`, or about a volume of that name. */
function event(namespace?: string) {
  const kind = namespace === undefined ? 'PersistentVolume' : 'PersistentVolumeClaim';
  return {
    metadata: { name: unique('event') },
    involvedObject: { kind, namespace, name: 'a', uid: 'u' },
    reason: 'ProvisioningFailed',
    message: 'm',
    type: 'Warning',
  };
}
