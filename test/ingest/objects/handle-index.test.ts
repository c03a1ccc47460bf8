import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HandleIndex } from '#src/ingest/objects/handle-index.ts';
import { transformVolume } from '#src/ingest/objects/transforms.ts';
import type { Volume } from '#src/kube/objects.ts';
import { aVolume, DRIVER } from '../../volumes/builders.ts';

describe('HandleIndex', () => {
  const first = aVolume();
  const second = aVolume({ metadata: { name: 'other' } });

  it('finds a handle that two PVs share, until one is deleted', () => {
    const index = new HandleIndex();
    index.apply({ type: 'added', object: first });
    assert.ok(index.findOther(first) === undefined);
    index.apply({ type: 'added', object: second });
    assert.equal(index.findOther(first), second.metadata.name);
    assert.equal(index.findOther(second), first.metadata.name);
    index.apply({ type: 'deleted', object: second });
    assert.ok(index.findOther(first) === undefined);
  });

  it('follows a PV whose handle changes', () => {
    const index = new HandleIndex();
    index.apply({ type: 'added', object: first });
    index.apply({ type: 'added', object: second });
    index.apply({
      type: 'modified',
      object: aVolume({
        metadata: { name: 'other' },
        spec: { csi: { driver: DRIVER, volumeHandle: 'new' } },
      }),
      previous: second,
    });
    assert.ok(index.findOther(first) === undefined);
  });

  const inTree = (name: string, pdName: string, zones?: string): Volume =>
    transformVolume({
      ...aVolume({
        metadata: {
          name,
          ...(zones === undefined ? {} : { labels: { 'topology.kubernetes.io/zone': zones } }),
        },
      }),
      spec: { gcePersistentDisk: { pdName } },
    });

  it('finds two in-tree PVs of one disk', () => {
    const index = new HandleIndex();
    for (const object of [inTree('a', 'disk'), inTree('b', 'disk'), inTree('c', 'another')])
      index.apply({ type: 'added', object });
    assert.equal(index.findOther(inTree('a', 'disk')), 'b');
    assert.ok(index.findOther(inTree('c', 'another')) === undefined);
  });

  it('tells apart disks of the same name in two zones', () => {
    const index = new HandleIndex();
    const [a, b] = [inTree('a', 'disk', 'us-central1-a'), inTree('b', 'disk', 'us-central1-b')];
    for (const object of [a, b]) index.apply({ type: 'added', object });
    assert.ok(index.findOther(a) === undefined);
    index.apply({ type: 'added', object: inTree('c', 'disk') });
    assert.deepEqual([index.findOther(a), index.findOther(b)], ['c', 'c']);
  });

  it('names the PVs left with a handle when another is deleted or changes its handle', () => {
    const index = new HandleIndex();
    for (const object of [first, second]) index.apply({ type: 'added', object });
    assert.deepEqual(index.othersOf({ type: 'modified', object: second, previous: second }), []);
    assert.deepEqual(index.othersOf({ type: 'added', object: second }), []);
    const gone = { type: 'deleted', object: second } as const;
    index.apply(gone);
    assert.deepEqual(index.othersOf(gone), [first.metadata.name]);
    index.apply({ type: 'added', object: second });
    const other = aVolume({
      metadata: { name: 'other' },
      spec: { csi: { driver: DRIVER, volumeHandle: 'new' } },
    });
    const changed = { type: 'modified', object: other, previous: second } as const;
    index.apply(changed);
    assert.deepEqual(index.othersOf(changed), [first.metadata.name]);
  });

  it('tells when a change begins or ends the sharing of a handle', () => {
    const index = new HandleIndex();
    assert.ok(!index.apply({ type: 'added', object: first }));
    assert.ok(index.apply({ type: 'added', object: second }));
    assert.ok(!index.apply({ type: 'modified', object: second, previous: second }));
    assert.ok(index.apply({ type: 'deleted', object: second, previous: second }));
    assert.ok(!index.apply({ type: 'deleted', object: first, previous: first }));
  });

  it('lists the shared handles of one driver', () => {
    const index = new HandleIndex();
    const csi = { driver: 'other.example', volumeHandle: 'theirs' };
    const foreign = ['x', 'y'].map((name) => aVolume({ metadata: { name }, spec: { csi } }));
    const unshared = aVolume({
      metadata: { name: 'third' },
      spec: { csi: { driver: DRIVER, volumeHandle: 'new' } },
    });
    for (const object of [first, second, unshared, ...foreign])
      index.apply({ type: 'added', object });
    const names = [first.metadata.name, second.metadata.name];
    assert.deepEqual([...index.sharedOf(DRIVER)], [[first.spec.csi?.volumeHandle, names]]);
  });

  it('ignores an in-tree PV that is invalid for its driver', () => {
    const index = new HandleIndex();
    const invalid = inTree('a', 'disk', 'nonsense__us-central1-a');
    index.apply({ type: 'added', object: invalid });
    assert.ok(index.findOther(invalid) === undefined);
  });
});
