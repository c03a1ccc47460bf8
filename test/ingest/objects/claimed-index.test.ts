import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ClaimedIndex } from '#src/ingest/objects/claimed-index.ts';
import { aVolume } from '../../volumes/builders.ts';

describe('ClaimedIndex', () => {
  const volume = aVolume({ phase: 'Bound' });
  const leaving = aVolume({ metadata: { deletionTimestamp: 'now' } });
  const filled = (): ClaimedIndex => {
    const index = new ClaimedIndex();
    index.apply({ type: 'added', object: volume });
    return index;
  };

  it('has the claim that a volume names, until the volume is deleted', () => {
    const index = filled();
    assert.ok(index.has('testid') && !index.has('other'));
    index.apply({ type: 'modified', object: volume, previous: volume });
    assert.ok(index.has('testid'));
    index.apply({ type: 'deleted', object: volume, previous: volume });
    assert.ok(!index.has('testid'));
  });

  it('does not count a volume that is being deleted', () => {
    const index = filled();
    index.apply({ type: 'modified', object: leaving, previous: volume });
    assert.ok(!index.has('testid'));
    index.apply({ type: 'deleted', object: leaving, previous: leaving });
    index.apply({ type: 'added', object: volume });
    assert.ok(index.has('testid'), 'a new volume counts');
  });

  it('has a claim that two volumes name, until both are deleted', () => {
    const index = filled();
    const other = aVolume({ metadata: { name: 'other' } });
    index.apply({ type: 'added', object: other });
    index.apply({ type: 'deleted', object: other, previous: other });
    assert.ok(index.has('testid'));
  });

  it('ignores a volume without a claim, and follows a change of its claim', () => {
    const index = filled();
    const { claimRef, ...spec } = volume.spec;
    assert.equal(claimRef?.uid, 'testid');
    index.apply({ type: 'modified', object: { ...volume, spec }, previous: volume });
    assert.ok(!index.has('testid'));
    index.apply({ type: 'modified', object: volume, previous: { ...volume, spec } });
    assert.ok(index.has('testid'));
  });

  it('has the claim whose volume would get the name of this one (R-01, P-02)', () => {
    const index = new ClaimedIndex();
    index.apply({
      type: 'added',
      object: { ...aVolume({ metadata: { name: 'pvc-some-uid' } }), spec: {} },
    });
    assert.ok(index.has('some-uid'));
  });
});
