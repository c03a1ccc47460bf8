import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fc from 'fast-check';
import { VolumeIndex } from '#src/ingest/objects/volume-index.ts';
import type { Volume } from '#src/kube/objects.ts';
import { aVolume, DRIVER } from '../../volumes/builders.ts';

describe('whether a claim has a volume, by VolumeIndex,', () => {
  const volume = aVolume({ phase: 'Bound' });
  const { name } = volume.metadata;
  const leaving = aVolume({ metadata: { deletionTimestamp: 'now' } });
  const filled = (): VolumeIndex => {
    const index = new VolumeIndex();
    index.put(volume);
    return index;
  };

  it('is so for the claim that a volume names, until the volume is deleted', () => {
    const index = filled();
    assert.ok(index.hasVolume('testid') && !index.hasVolume('other'));
    index.put(volume);
    assert.ok(index.hasVolume('testid'));
    index.remove(name);
    assert.ok(!index.hasVolume('testid') && index.size === 0);
  });

  it('is not so if the volume is being deleted', () => {
    const index = filled();
    index.put(leaving);
    assert.ok(!index.hasVolume('testid'));
    index.remove(name);
    index.put(volume);
    assert.ok(index.hasVolume('testid'), 'a new volume counts');
  });

  it('is so for a claim that two volumes name, until both are deleted', () => {
    const index = filled();
    index.put(aVolume({ metadata: { name: 'other' } }));
    index.remove('other');
    assert.ok(index.hasVolume('testid'));
    index.remove(name);
    assert.ok(!index.hasVolume('testid'));
  });

  it('follows a volume that names another claim now', () => {
    const index = filled();
    index.put(aVolume({ spec: { claimRef: { uid: 'next' } } }));
    assert.ok(!index.hasVolume('testid') && index.hasVolume('next'));
  });

  it('is so for the claim whose UID is in the name of the volume (R-01, P-02)', () => {
    const index = new VolumeIndex();
    index.put(aVolume({ metadata: { name: 'pvc-u1' }, spec: { claimRef: { uid: 'u2' } } }));
    index.put(aVolume({ metadata: { name: 'pvc-u3' }, spec: { claimRef: { uid: 'u3' } } }));
    assert.deepEqual(
      ['u1', 'u2', 'u3', 'u4'].map((uid) => index.hasVolume(uid)),
      [true, true, true, false],
    );
    index.remove('pvc-u1');
    index.remove('pvc-u3');
    assert.ok(!['u1', 'u2', 'u3'].some((uid) => index.hasVolume(uid)));
  });
});

describe('handles that may be shared, by VolumeIndex,', () => {
  const withHandle = (name: string, volumeHandle: string): Volume =>
    aVolume({ metadata: { name }, spec: { csi: { driver: DRIVER, volumeHandle } } });

  const names = (index: VolumeIndex) =>
    [...index.sharedHandles().values()].map((each) => each.toSorted().join());

  it('are those of one hash, from the second PV to the last but one', () => {
    const index = new VolumeIndex();
    assert.equal(index.put(withHandle('a', 'h')), false);
    assert.equal(index.put(withHandle('b', 'h')), true);
    assert.equal(index.put(withHandle('c', 'h')), true);
    assert.equal(index.put(withHandle('c', 'h')), false);
    assert.deepEqual(names(index), ['a,b,c']);
    assert.equal(index.put(withHandle('a', 'own')), true);
    assert.deepEqual(names(index), ['b,c']);
    assert.equal(index.remove('b').changesSharing, true);
    assert.deepEqual(names(index), []);
    assert.equal(index.remove('c').changesSharing, false);
  });

  it('are not those of two drivers, and none of PVs without a handle', () => {
    const index = new VolumeIndex();
    const csi = { driver: 'other.example', volumeHandle: 'h' };
    index.put(withHandle('a', 'h'));
    index.put(aVolume({ metadata: { name: 'b' }, spec: { csi } }));
    for (const name of ['c', 'd'])
      index.put({ metadata: { name, uid: name, resourceVersion: '1' }, spec: {} });
    assert.deepEqual(names(index), []);
  });

  it('are told apart for 100,000 handles', () => {
    const index = new VolumeIndex();
    const handleOf = (i: number): string =>
      i % 2 === 0 ? `vol-${i}` : `${i}-0001-0009-rook-ceph-0000000000000001`;
    const isShared = (i: number): boolean => index.put(withHandle(`${i}`, handleOf(i)));
    assert.deepEqual(Array.from({ length: 100_000 }, (_, i) => i).filter(isShared), []);
  });

  it('are those of all PVs, after any events and lists', () => {
    const step = fc.tuple(fc.constantFrom('put', 'remove', 'list'), fc.nat(3), fc.nat(2));
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const index = new VolumeIndex();
        const stored = new Map<string, Volume>();
        for (const [what, which, handle] of steps) {
          const name = `pv-${which}`;
          const volume = withHandle(name, `h${handle}`);
          if (what === 'put') {
            stored.set(name, volume);
            index.put(volume);
          } else if (what === 'remove') {
            stored.delete(name);
            index.remove(name);
          } else {
            // It was deleted, or replaced, while no watch was open.
            if (handle === 0) stored.delete(name);
            else if (handle === 1) stored.set(name, withHandle(name, 'late'));
            index.beginList();
            for (const each of stored.values()) index.put(each);
            for (const gone of index.endList()) index.remove(gone);
          }
        }
        const expected = ['h0', 'h1', 'h2', 'late']
          .map((handle) =>
            [...stored.values()]
              .filter(({ spec }) => spec.csi?.volumeHandle === handle)
              .map(({ metadata }) => metadata.name)
              .toSorted(),
          )
          .filter(({ length }) => length > 1);
        assert.deepEqual(names(index).toSorted(), expected.map((each) => each.join()).toSorted());
        assert.equal(index.size, stored.size);
      }),
    );
  });
});
