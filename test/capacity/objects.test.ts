import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { OwnerReference, StorageCapacity } from '#src/kube/objects.ts';
import { storageCapacities } from '#src/kube/resources.ts';
import {
  capacityPatch,
  chooseObject,
  itemOf,
  minusRequested,
  newCapacityObject,
  readCapacity,
  transformCapacity,
} from '#src/capacity/objects.ts';

const MANAGER = { driver: 'driver', managedBy: 'external-provisioner' };
const OWNER: OwnerReference = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  name: 'jobs',
  uid: 'owner',
  controller: true,
};

function object(change: Partial<StorageCapacity> = {}): StorageCapacity {
  return {
    metadata: { name: 'csisc-1', namespace: 'ns', uid: 'uid', resourceVersion: '7' },
    storageClassName: 'fast',
    nodeTopology: { matchLabels: { zone: 'a' } },
    capacity: '1Gi',
    ...change,
  };
}

const GI = 1n << 30n;
const reported = (availableBytes: bigint, maxVolumeBytes?: bigint) => ({
  availableBytes,
  maxVolumeBytes,
});

/** Why an answer is not published. */
function complaint(answer: Parameters<typeof readCapacity>[0]): string {
  const read = readCapacity(answer);
  return typeof read === 'string' ? read : '';
}

describe('the answer to GetCapacity', () => {
  it('is refused with a negative maximum size', () =>
    assert.match(
      complaint({ availableCapacity: 1n, maximumVolumeSize: -2n }),
      /maximum_volume_size, -2/,
    ));

  it('loses what is in flight, of both numbers', () =>
    assert.deepEqual(minusRequested(reported(5n, 4n), 3n), reported(2n, 1n)));

  it('does not go below zero', () =>
    assert.deepEqual(minusRequested(reported(5n), 6n), reported(0n)));
});

describe('our objects', () => {
  it('are made of item, value and owner', () =>
    assert.deepEqual(
      newCapacityObject(storageCapacities, {
        item: { className: 'fast', segment: [['zone', 'a']] },
        reported: reported(GI, 1000n),
        owner: OWNER,
        manager: MANAGER,
        namespace: 'ns',
        name: 'csisc-1',
      }),
      {
        apiVersion: 'storage.k8s.io/v1',
        kind: 'CSIStorageCapacity',
        metadata: {
          name: 'csisc-1',
          namespace: 'ns',
          labels: {
            'csi.storage.k8s.io/drivername': 'driver',
            'csi.storage.k8s.io/managed-by': 'external-provisioner',
          },
          ownerReferences: [OWNER],
        },
        storageClassName: 'fast',
        nodeTopology: { matchLabels: { zone: 'a' } },
        capacity: '1Gi',
        maximumVolumeSize: '1k',
      },
    ));

  it('get a name of the API server where none is given, and select all nodes for the whole cluster', () => {
    const made = newCapacityObject(
      { ...storageCapacities, version: 'v1beta1' },
      {
        item: { className: 'fast', segment: [] },
        reported: reported(0n),
        owner: undefined,
        manager: MANAGER,
        namespace: 'ns',
        name: undefined,
      },
    );
    const { apiVersion, metadata, nodeTopology, capacity } = made as unknown as StorageCapacity;
    assert.equal(apiVersion, 'storage.k8s.io/v1beta1');
    assert.equal(metadata.generateName, 'csisc-');
    assert.equal(metadata.ownerReferences, undefined);
    assert.deepEqual(nodeTopology, {});
    assert.equal(capacity, '0');
  });

  it('keep of their metadata what is compared', () => {
    const { metadata } = object();
    const raw = { ...object(), metadata: { ...metadata, managedFields: [{}], annotations: {} } };
    assert.deepEqual(transformCapacity(raw), object());
  });
});

describe('the item of an object', () => {
  it('is the whole cluster with an empty selector', () =>
    assert.deepEqual(itemOf(object({ nodeTopology: {} })), { className: 'fast', segment: [] }));

  it('is none with expressions', () => {
    const matchExpressions = [{ key: 'zone', operator: 'Exists' }];
    assert.equal(itemOf(object({ nodeTopology: { matchExpressions } })), undefined);
  });

  it('is none without a selector, which selects no node', () => {
    const { nodeTopology: _, ...bare } = object();
    assert.equal(itemOf(bare), undefined);
  });
});

describe('of several objects for one item', () => {
  const named = (name: string, creationTimestamp?: string): StorageCapacity =>
    object({
      metadata: {
        ...object().metadata,
        name,
        ...(creationTimestamp === undefined ? {} : { creationTimestamp }),
      },
    });
  const chosen = (...objects: StorageCapacity[]) => chooseObject(objects, 'own')?.metadata.name;

  it('the one with our name is kept', () =>
    assert.equal(chosen(named('a', '2020-01-01T00:00:00Z'), named('own')), 'own'));
  it('the oldest is kept', () =>
    assert.equal(
      chosen(named('a', '2020-01-02T00:00:00Z'), named('b', '2020-01-01T00:00:00Z')),
      'b',
    ));
});

describe('the patch of an object', () => {
  const owned = object({ metadata: { ...object().metadata, ownerReferences: [OWNER] } });

  for (const [title, given, value] of [
    ['the value and the owner are there', owned, reported(GI)],
    ['the server spells the value differently', { ...owned, capacity: '1048576Ki' }, reported(GI)],
    ['the maximum size is there', { ...owned, maximumVolumeSize: '1M' }, reported(GI, 1_000_000n)],
  ] as const)
    it(`is none if ${title}`, () => assert.equal(capacityPatch(given, value, OWNER), undefined));

  it('adds the owner beside others', () => {
    const other = { apiVersion: 'v1', kind: 'ConfigMap', name: 'x', uid: 'x' };
    const given = object({ metadata: { ...object().metadata, ownerReferences: [other] } });
    assert.deepEqual(capacityPatch(given, reported(GI), OWNER)?.['metadata'], {
      resourceVersion: '7',
      ownerReferences: [other, OWNER],
    });
  });

  it('replaces a value that can’t be read', () =>
    assert.equal(
      capacityPatch({ ...owned, capacity: 'many' }, reported(GI), OWNER)?.['capacity'],
      '1Gi',
    ));

  it('sets a value that is absent', () => {
    const { capacity: _, ...bare } = owned;
    assert.equal(capacityPatch(bare, reported(0n), OWNER)?.['capacity'], '0');
  });
});
