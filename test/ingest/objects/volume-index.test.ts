import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fc from 'fast-check';
import { VolumeIndex } from '#src/ingest/objects/volume-index.ts';
import type { Volume } from '#src/kube/objects.ts';
import { aVolume, DRIVER } from '../../volumes/builders.ts';

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
    assert.equal(index.remove('b'), true);
    assert.deepEqual(names(index), []);
    assert.equal(index.remove('c'), false);
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
