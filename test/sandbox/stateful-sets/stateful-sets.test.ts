import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { silentLog } from '#src/runtime/log.ts';
import { type JsonObject, memberAt, objectAt, textAt } from '../../../sandbox/api/json-value.ts';
import { statefulSets } from '../../../sandbox/api/kinds/apps.ts';
import { claims } from '../../../sandbox/api/kinds/claims.ts';
import { pods } from '../../../sandbox/api/kinds/core.ts';
import type { Operations } from '../../../sandbox/api/operations.ts';
import type { Resource } from '../../../sandbox/api/resource.ts';
import {
  startStatefulSets,
  type StatefulSets,
} from '../../../sandbox/stateful-sets/stateful-sets.ts';
import { emptyOperations } from '../empty-operations.ts';

describe('the StatefulSet controller', () => {
  let operations: Operations;
  let controller: StatefulSets;

  beforeEach(() => {
    operations = emptyOperations();
    controller = startStatefulSets({ operations, log: silentLog });
  });
  afterEach(() => controller.close());

  const create = async (spec: JsonObject = {}) => {
    operations.create(statefulSets, 'default', {
      metadata: { name: 'db' },
      spec: {
        replicas: 3,
        selector: { matchLabels: { app: 'db' } },
        template: {
          metadata: { labels: { app: 'db' } },
          spec: { containers: [{ name: 'main' }], volumes: [{ name: 'tmp', emptyDir: {} }] },
        },
        volumeClaimTemplates: [
          {
            metadata: { name: 'data', labels: { kept: 'yes' } },
            spec: {
              accessModes: ['ReadWriteOnce'],
              storageClassName: 'late',
              resources: { requests: { storage: '1Gi' } },
            },
          },
        ],
        ...spec,
      },
    });
    await controller.idle();
  };
  const setPlace = { resource: statefulSets, namespace: 'default', name: 'db' };
  const names = (resource: Resource) =>
    operations.store.collection(resource).sorted.map(({ object }) => object.metadata.name);
  const podPlace = (name: string) => ({ resource: pods, namespace: 'default', name });
  const makeReady = async (name: string) => {
    const status = { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] };
    operations.patch(podPlace(name), 'merge', { status }, { subresource: 'status' });
    await controller.idle();
  };

  it('creates a pod and its claim only when the one before is ready', async () => {
    await create();
    assert.deepEqual([names(pods), names(claims)], [['db-0'], ['data-db-0']]);
    await makeReady('db-0');
    assert.deepEqual(
      [names(pods), names(claims)],
      [
        ['db-0', 'db-1'],
        ['data-db-0', 'data-db-1'],
      ],
    );
    await makeReady('db-1');
    assert.deepEqual(names(pods), ['db-0', 'db-1', 'db-2']);
  });

  it('creates all pods at once with podManagementPolicy Parallel', async () => {
    await create({ podManagementPolicy: 'Parallel' });
    assert.deepEqual(names(pods), ['db-0', 'db-1', 'db-2']);
  });

  it('gives a pod its own claims, labels, name as host name, and the set as its controller', async () => {
    await create();
    const { object } = operations.get(podPlace('db-0'));
    assert.deepEqual(memberAt(object, 'spec', 'volumes'), [
      { name: 'data', persistentVolumeClaim: { claimName: 'data-db-0' } },
      { name: 'tmp', emptyDir: {} },
    ]);
    assert.deepEqual(object.metadata.labels, {
      app: 'db',
      'apps.kubernetes.io/pod-index': '0',
      'statefulset.kubernetes.io/pod-name': 'db-0',
    });
    assert.equal(textAt(object, 'spec', 'hostname'), 'db-0');
    const [owner] = object.metadata.ownerReferences ?? [];
    assert.equal(textAt(owner, 'uid'), operations.get(setPlace).object.metadata.uid);
  });

  it('gives a claim the labels of its template and of the selector', async () => {
    await create();
    const place = { resource: claims, namespace: 'default', name: 'data-db-0' };
    const { object } = operations.get(place);
    assert.deepEqual(object.metadata.labels, { kept: 'yes', app: 'db' });
    assert.equal(textAt(object, 'spec', 'resources', 'requests', 'storage'), '1Gi');
  });

  it('replaces a deleted pod, which gets the claim of before', async () => {
    await create();
    const uid = operations.get(podPlace('db-0')).object.metadata.uid;
    operations.delete(podPlace('db-0'));
    await controller.idle();
    assert.notEqual(operations.get(podPlace('db-0')).object.metadata.uid, uid);
    assert.deepEqual(names(claims), ['data-db-0']);
  });

  it('deletes the last pods of a set that became smaller, and leaves their claims', async () => {
    await create({ podManagementPolicy: 'Parallel' });
    operations.patch(setPlace, 'merge', { spec: { replicas: 1 } });
    await controller.idle();
    assert.deepEqual(names(pods), ['db-0']);
    assert.equal(names(claims).length, 3);
  });

  it('deletes the pods of a deleted set, and leaves its claims', async () => {
    await create({ podManagementPolicy: 'Parallel' });
    operations.delete(setPlace);
    await controller.idle();
    assert.deepEqual([names(pods), names(claims).length], [[], 3]);
  });

  it('counts the pods in the status of the set', async () => {
    await create();
    await makeReady('db-0');
    const { object } = operations.get(setPlace);
    const { replicas, readyReplicas } = objectAt(object, 'status');
    assert.deepEqual([replicas, readyReplicas], [2, 1]);
  });

  it('starts with the ordinal that the set names', async () => {
    await create({ ordinals: { start: 5 }, replicas: 1 });
    assert.deepEqual([names(pods), names(claims)], [['db-5'], ['data-db-5']]);
  });

  it('handles sets that existed before it started', async () => {
    await controller.close();
    await create();
    controller = startStatefulSets({ operations, log: silentLog });
    await controller.idle();
    assert.deepEqual(names(pods), ['db-0']);
  });
});
