import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { transformClaim, transformClass, transformVolume } from '#src/ingest/objects/transforms.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { shouldDelete } from '#src/volumes/deletion.ts';
import { shouldProvision } from '#src/volumes/eligibility.ts';
import { identityOf } from '#src/volumes/handles.ts';
import { isPending, isTerminatingCloneSource, restoredSnapshot } from '#src/volumes/data-source.ts';
import { aClaim, aClass, aVolume, driver, DRIVER } from '../../volumes/builders.ts';

const dataSource = { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name: 's' };
const finalizers = [
  'kubernetes.io/pvc-protection',
  'provisioner.storage.kubernetes.io/cloning-protection',
];

const annotated = (annotations: Readonly<Record<string, string>>): Claim =>
  aClaim({ metadata: { annotations } });
const claims: Readonly<Record<string, Claim>> = {
  'an eligible claim': aClaim(),
  'a bound claim': aClaim({ spec: { volumeName: 'pv' } }),
  'a foreign claim': annotated({ 'volume.kubernetes.io/storage-provisioner': 'other' }),
  'a claim with the beta annotations': annotated({
    'volume.beta.kubernetes.io/storage-provisioner': DRIVER,
    'volume.beta.kubernetes.io/storage-class': 'class',
  }),
  'a claim with a node': annotated({ 'volume.kubernetes.io/selected-node': 'n' }),
  'a claim that is restored': { ...aClaim({ spec: { dataSource } }), status: { phase: 'Pending' } },
  'a claim that is restored from another namespace': {
    ...aClaim({ spec: { dataSourceRef: { ...dataSource, namespace: 'other' } } }),
    status: { phase: 'Pending' },
  },
  'a source of clones that is being deleted': aClaim({
    metadata: { finalizers, deletionTimestamp: 'now' },
  }),
  'a source of clones that stays': aClaim({ metadata: { finalizers } }),
};

const volumes: Readonly<Record<string, Volume>> = {
  'a Released volume': aVolume(),
  'a Bound volume': aVolume({ phase: 'Bound' }),
  'an unprotected volume': aVolume({ phase: 'Bound', metadata: { finalizers: ['other'] } }),
  'a retained volume': aVolume({ spec: { persistentVolumeReclaimPolicy: 'Retain' } }),
  'a migrated volume': aVolume({
    metadata: {
      annotations: {
        'pv.kubernetes.io/provisioned-by': 'x',
        'pv.kubernetes.io/migrated-to': DRIVER,
      },
    },
  }),
  'a volume that is being deleted': aVolume({
    metadata: { deletionTimestamp: 'now', finalizers: [] },
  }),
};

describe('transforms', () => {
  for (const [title, claim] of Object.entries(claims)) {
    it(`do not change what the rules say about ${title}`, () => {
      const verdicts = (cached: Claim) => [
        shouldProvision(cached, driver, () => aClass()).kind,
        isPending(cached),
        restoredSnapshot(cached),
        isTerminatingCloneSource(cached),
      ];
      assert.deepEqual(verdicts(transformClaim(claim)), verdicts(claim));
    });
  }

  for (const [title, volume] of Object.entries(volumes)) {
    it(`do not change what the rules say about ${title}`, () => {
      assert.deepEqual(shouldDelete(transformVolume(volume), driver), shouldDelete(volume, driver));
    });
  }

  it('keep what identifies an in-tree volume, such as the claim’s namespace', () => {
    const azureFile = { secretName: 'secret', shareName: 'share', secretNamespace: null };
    const volume: Volume = {
      ...aVolume(),
      spec: { azureFile, claimRef: { uid: 'u', namespace: 'space', name: 'claim' } },
    };
    assert.deepEqual(identityOf(transformVolume(volume)), identityOf(volume));
    assert.match(identityOf(volume)?.id ?? '', /space.*secret.*share/);
  });

  it('keep the parameters of classes, which the journal needs', () => {
    const parameters = { a: 'b' };
    assert.deepEqual(transformClass(aClass({ parameters })).parameters, parameters);
  });

  it('drop foreign annotations, labels and finalizers', () => {
    const metadata = {
      annotations: { note: 'long text' },
      labels: { long: 'label' },
      finalizers: ['foreign'],
    };
    const claim = JSON.stringify(transformClaim(aClaim({ metadata })));
    const volume = JSON.stringify(transformVolume(aVolume({ metadata })));
    for (const text of [claim, volume]) assert.ok(!/long|foreign/.test(text), text);
  });

  it('refuse an object without a spec, so that it is skipped', () => {
    for (const transform of [transformClaim, transformVolume])
      assert.throws(() => transform({ metadata: { name: 'a' } }), /no spec/);
  });
});
