import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { OwnerReference, StorageCapacity } from '#src/kube/objects.ts';
import {
  capacityPatch,
  chooseObject,
  itemOf,
  newCapacityObject,
  readCapacity,
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

describe('the answer to GetCapacity', () => {
  it('is refused with a negative maximum size', () =>
    assert.throws(
      () => readCapacity({ availableCapacity: 1n, maximumVolumeSize: -2n }),
      /maximum_volume_size, -2/,
    ));
});

describe('our objects', () => {
  it('are made of item, value and owner', () =>
    assert.deepEqual(
      newCapacityObject({
        item: { className: 'fast', segment: [['zone', 'a']] },
        reported: reported(GI, 1000n),
        owner: OWNER,
        manager: MANAGER,
        namespace: 'ns',
      }),
      {
        apiVersion: 'storage.k8s.io/v1',
        kind: 'CSIStorageCapacity',
        metadata: {
          generateName: 'csisc-',
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
});

describe('the item of an object', () => {
  const { nodeTopology: _, ...bare } = object();
  const matchExpressions = [{ key: 'zone', operator: 'Exists' }];
  for (const [title, given, item] of [
    [
      'is the whole cluster with an empty selector',
      object({ nodeTopology: {} }),
      { className: 'fast', segment: [] },
    ],
    ['is none with expressions', object({ nodeTopology: { matchExpressions } }), undefined],
    ['is none without a selector, which selects no node', bare, undefined],
  ] as const)
    it(title, () => assert.deepEqual(itemOf(given), item));
});

describe('of several objects for one item', () => {
  const named = (name: string, creationTimestamp?: string): StorageCapacity => {
    const { metadata } = object();
    const created = creationTimestamp === undefined ? {} : { creationTimestamp };
    return object({ metadata: { ...metadata, name, ...created } });
  };
  const chosen = (...objects: StorageCapacity[]) => chooseObject(objects)?.metadata.name;

  it('the first is kept of two of one second', () =>
    assert.equal(chosen(named('b'), named('a')), 'b'));
  it('the oldest is kept', () => {
    const objects = [named('a', '2020-01-02T00:00:00Z'), named('b', '2020-01-01T00:00:00Z')];
    assert.equal(chosen(...objects), 'b');
  });
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

  for (const [what, capacity] of [
    ['can’t be read', 'many'],
    ['is absent', undefined],
  ] as const)
    it(`sets a value that ${what}`, () => {
      const { capacity: _, ...bare } = owned;
      const given = capacity === undefined ? bare : { ...bare, capacity };
      assert.equal(capacityPatch(given, reported(0n), OWNER)?.['capacity'], '0');
    });
});
