import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isGranted } from '#src/volumes/data-source.ts';
import { aGrant, type GrantChange, SNAPSHOT_GROUP } from './source-builders.ts';

/* The other cases of grants are in snapshot-source.test.ts and clone-source.test.ts. */

type Source = Parameters<typeof isGranted>[1];
const ofClaim = { apiGroup: '', kind: 'PersistentVolumeClaim', namespace: 'ns1', name: 'source' };
const ofSnapshot = { ...ofClaim, apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot' };
const ofHello = { ...ofClaim, apiGroup: 'hello.k8s.io/v1alpha1', kind: 'Hello' };
const HELLO = { group: 'hello.k8s.io/v1alpha1', kind: 'Hello' };
const SNAPSHOTS = { group: SNAPSHOT_GROUP, kind: 'VolumeSnapshot' };
/** Whether claims of the namespace `ns2` may use a source. */
const mayUse = (grants: Parameters<typeof isGranted>[0], source: Source = ofClaim): boolean =>
  isGranted(grants, source, 'ns2');

describe('isGranted', () => {
  const cases: readonly (readonly [string, Source, GrantChange, boolean])[] = [
    ['allows an arbitrary kind (J-07)', ofHello, { to: HELLO }, true],
    ['denies a grant to snapshots for a claim (J-18)', ofClaim, { to: SNAPSHOTS }, false],
    [
      'denies a snapshot without a group (J-19)',
      { ...ofSnapshot, apiGroup: undefined },
      { to: SNAPSHOTS },
      false,
    ],
    ['denies a grant to claims for a snapshot (J-20)', ofSnapshot, {}, false],
    ['denies a grant whose `from` is empty (J-21)', ofClaim, { from: null }, false],
    ['denies a grant whose `to` is empty (J-22)', ofClaim, { to: null }, false],
  ];
  for (const [title, source, grant, expected] of cases)
    it(title, () => assert.equal(mayUse([aGrant(grant)], source), expected));

  it('denies an arbitrary kind without any grant (J-10)', () =>
    assert.equal(mayUse([], ofHello), false));
  it('accepts one grant of several', () =>
    assert.equal(mayUse([aGrant({ to: null }), aGrant()]), true));
  it('does not combine `from` and `to` of different grants', () =>
    assert.equal(mayUse([aGrant({ to: null }), aGrant({ from: null })]), false));

  it('denies an empty grant and one without `from` or `to`', () => {
    const { metadata, spec } = aGrant();
    const { from, to } = spec;
    const grants = [{ metadata }, { metadata, spec: { from } }, { metadata, spec: { to } }];
    assert.equal(mayUse(grants), false);
  });

  it('checks every entry of a grant', () => {
    const { spec, ...grant } = aGrant();
    const from = [{ group: 'wrong', kind: 'Pod', namespace: 'ns9' }, ...spec.from];
    const to = [{ group: 'wrong', kind: 'Pod' }, ...spec.to];
    assert.equal(mayUse([{ ...grant, spec: { from, to } }]), true);
  });
});
