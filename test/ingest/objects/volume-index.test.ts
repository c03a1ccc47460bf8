import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { VolumeIndex } from '#src/ingest/objects/volume-index.ts';
import { identityOf } from '#src/volumes/handles.ts';
import type { Volume } from '#src/kube/objects.ts';
import { aVolume, DRIVER } from '../../volumes/builders.ts';

const put = (index: VolumeIndex, volume: Volume) => index.put(volume, identityOf(volume));

describe('whether a claim has a volume, by VolumeIndex,', () => {
  const volume = aVolume({ phase: 'Bound' });
  const { name } = volume.metadata;
  const leaving = aVolume({ metadata: { deletionTimestamp: 'now' } });
  const filled = (): VolumeIndex => {
    const index = new VolumeIndex();
    put(index, volume);
    return index;
  };

  it('is so for the claim that a volume names, until the volume is deleted', () => {
    const index = filled();
    assert.ok(index.hasVolume('testid') && !index.hasVolume('other'));
    put(index, volume);
    assert.ok(index.hasVolume('testid'));
    index.remove(name);
    assert.ok(!index.hasVolume('testid') && index.size === 0);
  });

  it('is not so if the volume is being deleted', () => {
    const index = filled();
    put(index, leaving);
    assert.ok(!index.hasVolume('testid'));
    index.remove(name);
    put(index, volume);
    assert.ok(index.hasVolume('testid'), 'a new volume counts');
  });

  it('is so for a claim that two volumes name, until both are deleted', () => {
    const index = filled();
    put(index, aVolume({ metadata: { name: 'other' } }));
    index.remove('other');
    assert.ok(index.hasVolume('testid'));
    index.remove(name);
    assert.ok(!index.hasVolume('testid'));
  });

  it('follows a volume that names another claim now', () => {
    const index = filled();
    put(index, aVolume({ spec: { claimRef: { uid: 'next' } } }));
    assert.ok(!index.hasVolume('testid') && index.hasVolume('next'));
  });

  it('is so for the claim whose UID is in the name of the volume (R-01, P-02)', () => {
    const index = new VolumeIndex();
    put(index, aVolume({ metadata: { name: 'pvc-u1' }, spec: { claimRef: { uid: 'u2' } } }));
    put(index, aVolume({ metadata: { name: 'pvc-u3' }, spec: { claimRef: { uid: 'u3' } } }));
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

  it('are those of one hash, from the second PV to the last but one', () => {
    const index = new VolumeIndex();
    assert.deepEqual(put(index, withHandle('a', 'h')), { left: [], changesSharing: false });
    assert.deepEqual(put(index, withHandle('b', 'h')), {
      left: [],
      joined: 'a',
      changesSharing: true,
    });
    assert.deepEqual(put(index, withHandle('c', 'h')), { left: [], changesSharing: true });
    assert.deepEqual(put(index, withHandle('c', 'h')), { left: [], changesSharing: false });
    assert.deepEqual([...index.groups()], [new Set(['a', 'b', 'c'])]);
    assert.deepEqual(index.groupOf('b'), new Set(['a', 'b', 'c']));
    assert.deepEqual(put(index, withHandle('a', 'own')), {
      left: ['b', 'c'],
      changesSharing: true,
    });
    assert.deepEqual(index.remove('b'), { left: ['c'], changesSharing: true });
    assert.deepEqual([index.groupOf('c'), [...index.groups()]], [undefined, []]);
    assert.deepEqual(index.remove('c'), { left: [], changesSharing: false });
  });

  it('are none of PVs that are not to be compared', () => {
    const index = new VolumeIndex();
    for (const name of ['a', 'b']) index.put(withHandle(name, 'h'), undefined);
    assert.deepEqual([index.groupOf('a'), [...index.groups()]], [undefined, []]);
  });

  it('are told apart for 100,000 handles', () => {
    const index = new VolumeIndex();
    const shared = Array.from({ length: 100_000 }, (_, i) => i).filter(
      (i) =>
        index.put(aVolume({ metadata: { name: `${i}` }, spec: { claimRef: {} } }), {
          driver: DRIVER,
          id: i % 2 === 0 ? `vol-${i}` : `${i}-0001-0009-rook-ceph-0000000000000001`,
          form: 'csi',
        }).changesSharing,
    );
    assert.deepEqual(shared, []);
  });
});
