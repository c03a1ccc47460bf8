import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { inspect } from 'node:util';
import {
  at,
  fieldsAt,
  namesOf,
  refused,
  textAt,
  textsAt,
  unique,
  type Connection,
  type Fields,
  invalid,
} from './connection.ts';
import { CLASSES, VOLUMES, claim, paths, secret, storageClass, volume } from './objects.ts';

/** The rules of claims, volumes, classes, secrets and events. */
export function describeStorageObjects(api: () => Connection): void {
  const cannotCreate = async (path: string, body: unknown, message: RegExp): Promise<void> =>
    refused(await api().call('POST', path, { body }), invalid(message));

  describe('a class', () => {
    it('has reclaim policy Delete and binding mode Immediate by default', async () => {
      const stored = await api().create(CLASSES, storageClass(unique('class')));
      assert.equal(at(stored, 'reclaimPolicy'), 'Delete');
      assert.equal(at(stored, 'volumeBindingMode'), 'Immediate');
      assert.equal(at(stored, 'allowVolumeExpansion'), undefined);
    });

    for (const [field, value] of [
      ['provisioner', 'other.sutler.dev'],
      ['parameters', { x: 'z' }],
      ['reclaimPolicy', 'Retain'],
      ['volumeBindingMode', 'WaitForFirstConsumer'],
    ] as const) {
      it(`has an immutable ${field}`, async () => {
        const name = unique('class');
        await api().create(CLASSES, storageClass(name, { fields: { parameters: { x: 'y' } } }));
        refused(
          await api().patch('merge', `${CLASSES}/${name}`, { [field]: value }),
          invalid(new RegExp(field)),
        );
      });
    }

    it('allows changes of annotations, mount options and allowVolumeExpansion', async () => {
      const name = unique('class');
      await api().create(CLASSES, storageClass(name));
      const patch = {
        metadata: { annotations: { x: 'y' } },
        allowVolumeExpansion: true,
        mountOptions: ['ro'],
      };
      const reply = await api().patch('merge', `${CLASSES}/${name}`, patch);
      assert.equal(reply.status, 200, reply.text);
      assert.equal(at(reply.body, 'allowVolumeExpansion'), true);
    });

    for (const [fields, message] of [
      [{ provisioner: '' }, /provisioner: Required value/],
      [{ reclaimPolicy: 'Keep' }, /reclaimPolicy: Unsupported value: "Keep"/],
      [{ volumeBindingMode: 'Soon' }, /volumeBindingMode: Unsupported value: "Soon"/],
    ] as const)
      it(`is refused with ${JSON.stringify(fields)}`, () =>
        cannotCreate(CLASSES, storageClass(unique('class'), { fields }), message));
  });

  describe('a claim', () => {
    it('is by default a Pending file system with the protection finalizer', async () => {
      const { claims } = paths(await api().namespace());
      const stored = await api().create(claims, claim('a'));
      assert.equal(at(stored, 'spec', 'volumeMode'), 'Filesystem');
      assert.deepEqual(at(stored, 'status'), { phase: 'Pending' });
      assert.deepEqual(at(stored, 'metadata', 'finalizers'), ['kubernetes.io/pvc-protection']);
    });

    it('keeps its finalizers beside the protection finalizer', async () => {
      const { claims } = paths(await api().namespace());
      const stored = await api().create(
        claims,
        claim('a', { metadata: { finalizers: ['sutler.dev/one'] } }),
      );
      assert.deepEqual(textsAt(stored, 'metadata', 'finalizers').toSorted(), [
        'kubernetes.io/pvc-protection',
        'sutler.dev/one',
      ]);
    });

    for (const [given, canonical] of [
      ['1.5Gi', '1536Mi'],
      ['1024Mi', '1Gi'],
      ['1Gi', '1Gi'],
      ['1000000000', '1G'],
      ['1073741824', '1073741824'],
      ['0.5Ti', '512Gi'],
      ['1e9', '1e9'],
      ['1500M', '1500M'],
      ['1000M', '1G'],
      ['100000000000m', '100M'],
      ['1.5', '1500m'],
    ] as const) {
      it(`stores a size of ${given} as ${canonical}`, async () => {
        const { claims } = paths(await api().namespace());
        const stored = await api().create(claims, claim('a', { spec: requests(given) }));
        assert.equal(at(stored, 'spec', 'resources', 'requests', 'storage'), canonical);
      });
    }

    for (const bad of ['', '1 Gi', '1gi', '0x10', 'NaN']) {
      it(`is refused with 400 for a size of '${bad}'`, async () => {
        const { claims } = paths(await api().namespace());
        const reply = await api().call('POST', claims, {
          body: claim('a', { spec: requests(bad) }),
        });
        refused(reply, {
          code: 400,
          reason: 'BadRequest',
          message: /quantities must match the regular expression|unable to parse quantity/,
        });
      });
    }

    for (const [spec, message] of [
      [requests('0'), /spec\.resources\[storage\]: Invalid value: "0"/],
      [requests('-1Gi'), /spec\.resources/],
      [{ resources: {} }, /spec\.resources\[storage\]: Required value/],
      [{ accessModes: [] }, /spec\.accessModes: Required value/],
      [{ accessModes: ['Sometimes'] }, /spec\.accessModes: Unsupported value: "Sometimes"/],
      [{ accessModes: ['ReadWriteOncePod', 'ReadOnlyMany'] }, /ReadWriteOncePod/],
    ] as const)
      it(`is refused with ${JSON.stringify(spec)}`, async () => {
        const { claims } = paths(await api().namespace());
        await cannotCreate(claims, claim('a', { spec }), message);
      });

    it('has immutable class, size, modes and source while it is Pending', async () => {
      const { claims } = paths(await api().namespace());
      await api().create(claims, claim('a'));
      for (const spec of [
        { storageClassName: 'other' },
        { accessModes: ['ReadOnlyMany'] },
        { resources: { requests: { storage: '2Gi' } } },
        { volumeMode: 'Block' },
        { dataSource: { kind: 'PersistentVolumeClaim', name: 'b' } },
      ]) {
        const reply = await api().patch('merge', `${claims}/a`, { spec });
        refused(reply, invalid(/spec(\.\w+)?: (Forbidden|Invalid value)/));
      }
    });

    it('allows its volumeName to be set once', async () => {
      const { claims } = paths(await api().namespace());
      await api().create(claims, claim('a'));
      assert.equal(
        (await api().patch('merge', `${claims}/a`, { spec: { volumeName: 'v' } })).status,
        200,
      );
      refused(
        await api().patch('merge', `${claims}/a`, { spec: { volumeName: 'w' } }),
        invalid(/spec: Forbidden/),
      );
    });

    it('gets dataSourceRef from dataSource, and vice versa', async () => {
      const { claims } = paths(await api().namespace());
      const source = { kind: 'PersistentVolumeClaim', name: 'b' };
      const one = await api().create(claims, claim('one', { spec: { dataSource: source } }));
      assert.deepEqual(at(one, 'spec', 'dataSourceRef'), { apiGroup: null, ...source });
      const two = await api().create(claims, claim('two', { spec: { dataSourceRef: source } }));
      assert.deepEqual(at(two, 'spec', 'dataSource'), { apiGroup: null, ...source });
    });

    it('gets the default class if it has no class name, not if it is empty', async () => {
      const { claims } = paths(await api().namespace());
      const name = unique('class');
      const annotations = { 'storageclass.kubernetes.io/is-default-class': 'true' };
      await api().create(CLASSES, storageClass(name, { metadata: { annotations } }));
      try {
        // The server reads the class from a cache, which may lag.
        const deadline = Date.now() + 10_000;
        let given: unknown;
        do {
          const stored = await api().create(
            claims,
            claim(unique('c'), { spec: { storageClassName: undefined } }),
          );
          given = at(stored, 'spec', 'storageClassName');
        } while (given === undefined && Date.now() < deadline);
        assert.equal(given, name);
        assert.equal(
          at(
            await api().create(claims, claim('none', { spec: { storageClassName: '' } })),
            'spec',
            'storageClassName',
          ),
          '',
        );
      } finally {
        await api().call('DELETE', `${CLASSES}/${name}`);
      }
    });
  });

  describe('a volume', () => {
    it('is by default a file system with Retain and the protection finalizer', async () => {
      const stored = await api().create(VOLUMES, volume(unique('pv')));
      assert.equal(at(stored, 'spec', 'volumeMode'), 'Filesystem');
      assert.equal(at(stored, 'spec', 'persistentVolumeReclaimPolicy'), 'Retain');
      assert.equal(at(stored, 'status', 'phase'), 'Pending');
      assert.deepEqual(at(stored, 'metadata', 'finalizers'), ['kubernetes.io/pv-protection']);
    });

    it('keeps its finalizers in order before the protection finalizer', async () => {
      const ours = 'external-provisioner.volume.kubernetes.io/finalizer';
      const stored = await api().create(
        VOLUMES,
        volume(unique('pv'), { metadata: { finalizers: [ours] } }),
      );
      assert.deepEqual(at(stored, 'metadata', 'finalizers'), [ours, 'kubernetes.io/pv-protection']);
    });

    it('is Pending at creation whatever its status says', async () => {
      const stored = await api().create(VOLUMES, {
        ...volume(unique('pv')),
        status: { phase: 'Released' },
      });
      assert.equal(at(stored, 'status', 'phase'), 'Pending');
    });

    it('keeps its claimRef, attributes, secrets and mount options', async () => {
      const more = {
        claimRef: {
          apiVersion: 'v1',
          kind: 'PersistentVolumeClaim',
          namespace: 'gone',
          name: 'a',
          uid: 'u',
          resourceVersion: '7',
        },
        csi: {
          driver: 'conformance.sutler.dev',
          volumeHandle: 'h',
          fsType: 'ext4',
          volumeAttributes: { x: 'y' },
          nodeStageSecretRef: { name: 's', namespace: 'n' },
        },
        mountOptions: ['ro'],
      };
      const stored = await api().create(VOLUMES, volume(unique('pv'), { spec: more }));
      assert.deepEqual({ ...more, ...fieldsAt(stored, 'spec') }, at(stored, 'spec'));
    });

    it('has its capacity in canonical form', async () => {
      const stored = await api().create(
        VOLUMES,
        volume(unique('pv'), { spec: { capacity: { storage: '1.5Gi' } } }),
      );
      assert.equal(at(stored, 'spec', 'capacity', 'storage'), '1536Mi');
    });

    for (const [spec, message] of [
      [{ csi: { driver: '', volumeHandle: 'h' } }, /spec\.csi\.driver: Required value/],
      [{ csi: { driver: 'd', volumeHandle: '' } }, /spec\.csi\.volumeHandle: Required value/],
      [{ capacity: {} }, /spec\.capacity: Required value/],
      [{ capacity: { storage: '0' } }, /spec\.capacity\[storage\]: Invalid value: "0"/],
      [{ accessModes: [] }, /spec\.accessModes: Required value/],
      [{ csi: undefined }, /spec: Required value: must specify a volume type/],
      [{ nfs: { server: 's', path: '/p' } }, /may not specify more than 1 volume type/],
    ] as const)
      it(`is refused with ${inspect(spec, { breakLength: Infinity })}`, () =>
        cannotCreate(VOLUMES, volume(unique('pv'), { spec }), message));

    it('has an immutable source', async () => {
      const name = unique('pv');
      await api().create(VOLUMES, volume(name));
      const reply = await api().patch('merge', `${VOLUMES}/${name}`, {
        spec: { csi: { volumeHandle: 'other' } },
      });
      refused(
        reply,
        invalid(
          /spec\.persistentvolumesource: Forbidden: spec\.persistentvolumesource is immutable after creation/,
        ),
      );
    });

    it('allows changes of reclaim policy and size', async () => {
      const name = unique('pv');
      await api().create(VOLUMES, volume(name));
      const reply = await api().patch('merge', `${VOLUMES}/${name}`, {
        spec: { persistentVolumeReclaimPolicy: 'Delete', capacity: { storage: '2Gi' } },
      });
      assert.equal(reply.status, 200, reply.text);
      assert.equal(at(reply.body, 'spec', 'persistentVolumeReclaimPolicy'), 'Delete');
      assert.equal(at(reply.body, 'spec', 'capacity', 'storage'), '2Gi');
    });
  });

  describe('a secret', () => {
    it('is Opaque by default', async () => {
      const { secrets } = paths(await api().namespace());
      assert.equal(at(await api().create(secrets, secret('a')), 'type'), 'Opaque');
    });

    it('has stringData merged into data', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(
        secrets,
        secret('a', { fields: { data: { x: 'eA==' }, stringData: { y: 'ü' } } }),
      );
      assert.deepEqual(at(stored, 'data'), { x: 'eA==', y: Buffer.from('ü').toString('base64') });
      assert.equal(at(stored, 'stringData'), undefined);
    });

    it('is refused with 400 for data that is not base64', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().call('POST', secrets, {
        body: secret('a', { fields: { data: { x: '*' } } }),
      });
      refused(reply, { code: 400, reason: 'BadRequest', message: /illegal base64 data/ });
    });

    it('cannot be changed if it is immutable', async () => {
      const { secrets } = paths(await api().namespace());
      await api().create(
        secrets,
        secret('a', { fields: { data: { x: 'eA==' }, immutable: true } }),
      );
      const reply = await api().patch('merge', `${secrets}/a`, { data: { x: 'eQ==' } });
      refused(reply, invalid(/field is immutable when `immutable` is set/));
    });
  });

  describe('an event', () => {
    it('must be in the namespace of its object', async () => {
      const namespace = await api().namespace();
      const { events } = paths(namespace);
      const stored = await api().create(events, event('a.1', aClaim(namespace)));
      assert.equal(at(stored, 'involvedObject', 'name'), 'a');
      const reply = await api().call('POST', events, { body: event('a.2', aClaim('default')) });
      refused(
        reply,
        invalid(
          /involvedObject\.namespace: Invalid value: "default": does not match event\.namespace/,
        ),
      );
    });

    it('of a cluster-scoped object must be in default', async () => {
      const aVolume = { apiVersion: 'v1', kind: 'PersistentVolume', name: unique('pv'), uid: 'u' };
      await api().create(paths('default').events, event(unique('event'), aVolume));
      const { events } = paths(await api().namespace());
      const reply = await api().call('POST', events, { body: event('a', aVolume) });
      refused(
        reply,
        invalid(/involvedObject\.namespace: Invalid value: "": does not match event\.namespace/),
      );
    });

    it('allows a patch of its count', async () => {
      const namespace = await api().namespace();
      const { events } = paths(namespace);
      await api().create(events, event('a.1', aClaim(namespace)));
      const reply = await api().patch('strategic', `${events}/a.1`, {
        count: 2,
        lastTimestamp: '2026-01-02T03:05:05Z',
      });
      assert.equal(at(reply.body, 'count'), 2);
      assert.equal(at(reply.body, 'lastTimestamp'), '2026-01-02T03:05:05Z');
      assert.equal(at(reply.body, 'firstTimestamp'), '2026-01-02T03:04:05Z');
    });

    it('can be selected by object, reason and type', async () => {
      const namespace = await api().namespace();
      const { events } = paths(namespace);
      await api().create(events, event('one', aClaim(namespace, 'a')));
      await api().create(events, event('two', aClaim(namespace, 'b')));
      await api().create(
        events,
        event('three', aClaim(namespace, 'a'), { reason: 'ProvisioningSucceeded', type: 'Normal' }),
      );
      const found = async (fieldSelector: string) =>
        namesOf((await api().get(events, { fieldSelector })).body);
      assert.deepEqual(await found('involvedObject.name=a'), ['one', 'three']);
      assert.deepEqual(
        await found('involvedObject.kind=PersistentVolumeClaim,involvedObject.name=b'),
        ['two'],
      );
      assert.deepEqual(await found('type=Warning,reason=ProvisioningFailed'), ['one', 'two']);
      assert.deepEqual(
        await found(
          `involvedObject.namespace=${namespace},involvedObject.uid=u,reason=ProvisioningSucceeded`,
        ),
        ['three'],
      );
    });

    it('is also served by events.k8s.io, with other field names', async () => {
      const namespace = await api().namespace();
      await api().create(paths(namespace).events, event('a.1', aClaim(namespace)));
      const seen = await api().read(`/apis/events.k8s.io/v1/namespaces/${namespace}/events/a.1`);
      assert.equal(at(seen, 'apiVersion'), 'events.k8s.io/v1');
      assert.equal(textAt(seen, 'note'), 'm');
      assert.equal(at(seen, 'regarding', 'name'), 'a');
    });
  });
}

/** The part of a claim's spec that asks for a size. */
function requests(storage: string) {
  return { resources: { requests: { storage } } };
}

function event(name: string, regarding: Fields, more: Fields = {}) {
  return {
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { name },
    involvedObject: regarding,
    reason: 'ProvisioningFailed',
    message: 'm',
    type: 'Warning',
    source: { component: 'sutler' },
    firstTimestamp: '2026-01-02T03:04:05Z',
    lastTimestamp: '2026-01-02T03:04:05Z',
    count: 1,
    ...more,
  };
}

function aClaim(namespace: string, name = 'a') {
  return { apiVersion: 'v1', kind: 'PersistentVolumeClaim', namespace, name, uid: 'u' };
}
