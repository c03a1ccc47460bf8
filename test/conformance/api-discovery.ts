import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { at, fieldsAt, listAt, refused, textsAt, type Connection } from './connection.ts';
import { paths } from './objects.ts';

const VERBS = ['create', 'delete', 'deletecollection', 'get', 'list', 'patch', 'update', 'watch'];

/** Discovery documents, and the answers to requests that the server does not serve. */
export function describeDiscovery(api: () => Connection): void {
  describe('discovery', () => {
    it('lists the versions of the core group', async () => {
      const body = await api().read('/api');
      assert.equal(at(body, 'kind'), 'APIVersions');
      assert.deepEqual(at(body, 'versions'), ['v1']);
    });

    it('lists the groups', async () => {
      const body = await api().read('/apis');
      assert.equal(at(body, 'kind'), 'APIGroupList');
      const versions = new Map(
        listAt(body, 'groups').map((group) => [
          at(group, 'name'),
          at(group, 'preferredVersion', 'groupVersion'),
        ]),
      );
      assert.equal(versions.get('storage.k8s.io'), 'storage.k8s.io/v1');
      assert.equal(versions.get('coordination.k8s.io'), 'coordination.k8s.io/v1');
    });

    it('describes one group', async () => {
      const body = await api().read('/apis/storage.k8s.io');
      assert.equal(at(body, 'kind'), 'APIGroup');
      assert.equal(at(body, 'preferredVersion', 'version'), 'v1');
    });

    for (const { path, name, kind, namespaced, shortNames } of [
      {
        path: '/api/v1',
        name: 'persistentvolumeclaims',
        kind: 'PersistentVolumeClaim',
        namespaced: true,
        shortNames: ['pvc'],
      },
      {
        path: '/api/v1',
        name: 'persistentvolumes',
        kind: 'PersistentVolume',
        namespaced: false,
        shortNames: ['pv'],
      },
      { path: '/api/v1', name: 'secrets', kind: 'Secret', namespaced: true, shortNames: undefined },
      { path: '/api/v1', name: 'events', kind: 'Event', namespaced: true, shortNames: ['ev'] },
      {
        path: '/apis/storage.k8s.io/v1',
        name: 'storageclasses',
        kind: 'StorageClass',
        namespaced: false,
        shortNames: ['sc'],
      },
      { path: '/api/v1', name: 'nodes', kind: 'Node', namespaced: false, shortNames: ['no'] },
      { path: '/api/v1', name: 'pods', kind: 'Pod', namespaced: true, shortNames: ['po'] },
      {
        path: '/apis/storage.k8s.io/v1',
        name: 'csinodes',
        kind: 'CSINode',
        namespaced: false,
        shortNames: undefined,
      },
      {
        path: '/apis/storage.k8s.io/v1',
        name: 'csistoragecapacities',
        kind: 'CSIStorageCapacity',
        namespaced: true,
        shortNames: undefined,
      },
      {
        path: '/apis/apps/v1',
        name: 'statefulsets',
        kind: 'StatefulSet',
        namespaced: true,
        shortNames: ['sts'],
      },
      {
        path: '/apis/coordination.k8s.io/v1',
        name: 'leases',
        kind: 'Lease',
        namespaced: true,
        shortNames: undefined,
      },
    ]) {
      it(`describes ${name} for kubectl`, async () => {
        const body = await api().read(path);
        assert.equal(at(body, 'kind'), 'APIResourceList');
        const resource = listAt(body, 'resources').find((entry) => at(entry, 'name') === name);
        assert.equal(at(resource, 'kind'), kind);
        assert.equal(at(resource, 'namespaced'), namespaced);
        assert.equal(at(resource, 'singularName'), kind.toLowerCase());
        assert.deepEqual(at(resource, 'shortNames'), shortNames);
        assert.deepEqual(textsAt(resource, 'verbs').toSorted(), VERBS);
      });
    }

    it('lists the status subresource of claims and volumes', async () => {
      const names = listAt(await api().read('/api/v1'), 'resources').map((entry) =>
        at(entry, 'name'),
      );
      assert.ok(names.includes('persistentvolumeclaims/status'));
      assert.ok(names.includes('persistentvolumes/status'));
    });

    it('reports a version with a minor number that kubectl can parse', async () => {
      const body = await api().read('/version');
      assert.equal(at(body, 'major'), '1');
      assert.match(String(at(body, 'minor')), /^\d+\+?$/);
    });

    it('has an OpenAPI document with group, version and kind of the resources', async () => {
      const body = await api().read('/openapi/v2');
      const kinds = Object.values(fieldsAt(body, 'definitions')).flatMap((definition) =>
        listAt(definition, 'x-kubernetes-group-version-kind').map((entry) => at(entry, 'kind')),
      );
      for (const kind of [
        'PersistentVolumeClaim',
        'PersistentVolume',
        'StorageClass',
        'Secret',
        'Lease',
      ])
        assert.ok(kinds.includes(kind), kind);
    });

    for (const path of ['/healthz', '/readyz', '/livez']) {
      it(`answers ok at ${path}`, async () => {
        const reply = await api().get(path);
        assert.deepEqual([reply.status, reply.text], [200, 'ok']);
      });
    }
  });

  describe('a request that is not served', () => {
    it('gets 404 for an unknown path', async () => {
      const reply = await api().get('/apis/absent.sutler.dev/v1/things');
      assert.deepEqual([reply.status, reply.text], [404, '404 page not found\n']);
    });

    it('gets 404 for an unknown kind of a known group', async () => {
      assert.equal((await api().get('/api/v1/namespaces/default/nonsense')).status, 404);
    });

    it('gets 405 for a POST to an object', async () => {
      const { secrets } = paths('default');
      refused(await api().call('POST', `${secrets}/a`, { body: {} }), {
        code: 405,
        reason: 'MethodNotAllowed',
      });
    });

    it('gets 405 for a PUT to a collection', async () => {
      const { secrets } = paths('default');
      refused(await api().call('PUT', secrets, { body: {} }), {
        code: 405,
        reason: 'MethodNotAllowed',
      });
    });

    it('gets 401 for an unknown token', async () => {
      const reply = await api().call('GET', paths('default').claims, { token: 'not-a-token' });
      refused(reply, { code: 401, reason: 'Unauthorized', message: /^Unauthorized$/ });
    });

    it('leaves the connection usable after a refused delete with a body', async () => {
      const { secrets } = paths(await api().namespace());
      for (let round = 0; round < 5; round++) {
        const reply = await api().call('DELETE', `${secrets}/absent`, {
          body: { kind: 'DeleteOptions', apiVersion: 'v1', preconditions: { uid: 'u' } },
        });
        assert.equal(reply.status, 404);
        assert.equal((await api().get(secrets)).status, 200);
      }
    });
  });
}
