import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isGranted } from '#src/volumes/data-source.ts';
import { aGrant, type GrantChange, SNAPSHOT_GROUP } from './source-builders.ts';

type Source = Parameters<typeof isGranted>[1];
const name = 'test-dataSource';
const ofClaim = { apiGroup: '', kind: 'PersistentVolumeClaim', namespace: 'ns1', name };
const ofSnapshot = { ...ofClaim, apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot' };
const ofHello = { ...ofClaim, apiGroup: 'hello.k8s.io/v1alpha1', kind: 'Hello' };
const HELLO = { group: 'hello.k8s.io/v1alpha1', kind: 'Hello' };
const SNAPSHOTS = { group: SNAPSHOT_GROUP, kind: 'VolumeSnapshot' };
/** Whether claims of the namespace `ns2` may use a source. */
const mayUse = (grants: Parameters<typeof isGranted>[0], source: Source = ofClaim): boolean =>
  isGranted(grants, source, 'ns2');

type Cases = Readonly<Record<string, readonly [source: Source, grant: GrantChange]>>;
const allowed: Cases = {
  'a claim for claims of that namespace (J-01)': [ofClaim, {}],
  'a claim by name (J-02)': [ofClaim, { to: { name } }],
  'a reference without a group to the core group (J-03)': [{ ...ofClaim, apiGroup: undefined }, {}],
  'any claim if the grant names none (J-04)': [ofClaim, { to: {} }],
  'any claim if the name is empty (J-05)': [ofClaim, { to: { name: '' } }],
  'a snapshot (J-06)': [ofSnapshot, { to: SNAPSHOTS }],
  'an arbitrary kind (J-07)': [ofHello, { to: HELLO }],
};
const denied: Cases = {
  'a grant of another namespace (J-11)': [ofClaim, { namespace: 'ns3' }],
  'a grant from another group (J-12)': [ofClaim, { from: { group: 'wrong' } }],
  'a grant from another kind (J-13)': [ofClaim, { from: { kind: 'Pod' } }],
  'a grant from another namespace (J-14)': [ofClaim, { from: { namespace: 'ns3' } }],
  'a grant to another group (J-15)': [ofClaim, { to: { group: 'wrong' } }],
  'a grant to another kind (J-16)': [ofClaim, { to: { kind: 'Pod' } }],
  'a grant to another name (J-17)': [ofClaim, { to: { name: 'other' } }],
  'a grant to snapshots for a claim (J-18)': [ofClaim, { to: SNAPSHOTS }],
  'a snapshot without a group (J-19)': [{ ...ofSnapshot, apiGroup: undefined }, { to: SNAPSHOTS }],
  'a grant to claims for a snapshot (J-20)': [ofSnapshot, {}],
  'a grant whose `from` is empty (J-21)': [ofClaim, { from: null }],
  'a grant whose `to` is empty (J-22)': [ofClaim, { to: null }],
  'a grant whose `from` and `to` are empty (J-23)': [ofClaim, { from: null, to: null }],
};

describe('isGranted', () => {
  for (const [title, [source, grant]] of Object.entries(allowed))
    it(`allows ${title}`, () => assert.equal(mayUse([aGrant(grant)], source), true));
  for (const [title, [source, grant]] of Object.entries(denied))
    it(`denies ${title}`, () => assert.equal(mayUse([aGrant(grant)], source), false));

  const ungranted = {
    'a claim (J-08)': ofClaim,
    'a snapshot (J-09)': ofSnapshot,
    'an arbitrary kind (J-10)': ofHello,
  };
  for (const [title, source] of Object.entries(ungranted))
    it(`denies ${title} without any grant`, () => assert.equal(mayUse([], source), false));

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
