import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HandleIndex } from '#src/ingest/handle-index.ts';
import { transformVolume } from '#src/ingest/transforms.ts';
import type { Volume } from '#src/kube/objects.ts';
import { aVolume, DRIVER } from '../volumes/builders.ts';

describe('HandleIndex', () => {
  const first = aVolume();
  const second = aVolume({ metadata: { name: 'other' } });

  it('knows a handle that two PVs have, until one is gone', () => {
    const index = new HandleIndex();
    index.apply({ type: 'added', object: first });
    assert.ok(!index.isShared(first));
    index.apply({ type: 'added', object: second });
    assert.ok(index.isShared(first) && index.isShared(second));
    index.apply({ type: 'deleted', object: second });
    assert.ok(!index.isShared(first));
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
    assert.ok(!index.isShared(first));
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

  it('knows two in-tree PVs of one disk', () => {
    const index = new HandleIndex();
    for (const object of [inTree('a', 'disk'), inTree('b', 'disk'), inTree('c', 'another')])
      index.apply({ type: 'added', object });
    assert.ok(index.isShared(inTree('a', 'disk')));
    assert.ok(!index.isShared(inTree('c', 'another')));
  });

  it('takes disks of one name in two zones for two', () => {
    const index = new HandleIndex();
    const [a, b] = [inTree('a', 'disk', 'us-central1-a'), inTree('b', 'disk', 'us-central1-b')];
    for (const object of [a, b]) index.apply({ type: 'added', object });
    assert.ok(!index.isShared(a));
    index.apply({ type: 'added', object: inTree('c', 'disk') });
    assert.ok(index.isShared(a) && index.isShared(b));
  });

  it('tells to whom a volume is left when another PV of it goes, or changes its source, and not otherwise', () => {
    const index = new HandleIndex();
    for (const object of [first, second]) index.apply({ type: 'added', object });
    assert.deepEqual(index.left({ type: 'modified', object: second, previous: second }), []);
    assert.deepEqual(index.left({ type: 'added', object: second }), []);
    const gone = { type: 'deleted', object: second } as const;
    index.apply(gone);
    assert.deepEqual(index.left(gone), [first.metadata.name]);
    index.apply({ type: 'added', object: second });
    const other = aVolume({
      metadata: { name: 'other' },
      spec: { csi: { driver: DRIVER, volumeHandle: 'new' } },
    });
    const changed = { type: 'modified', object: other, previous: second } as const;
    index.apply(changed);
    assert.deepEqual(index.left(changed), [first.metadata.name]);
  });

  it('passes over an in-tree PV that its driver can’t have', () => {
    const index = new HandleIndex();
    const odd = inTree('a', 'disk', 'nonsense__us-central1-a');
    index.apply({ type: 'added', object: odd });
    assert.ok(!index.isShared(odd));
  });
});
