import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HandleIndex } from '#src/ingest/handle-index.ts';
import { projectClaim, projectClass, projectVolume } from '#src/ingest/projection.ts';
import { triageClaim, triageVolume } from '#src/ingest/triage.ts';
import type { Claim, Class, Volume } from '#src/kube/objects.ts';
import { judgeVolume } from '#src/volumes/deletion.ts';
import { judgeClaim } from '#src/volumes/eligibility.ts';
import { aClaim, aClass, aVolume, driver, DRIVER } from '../volumes/builders.ts';

const classOf = (): Class => aClass();

describe('triageClaim', () => {
  it('makes a job of the claim’s key and nothing else', () => {
    assert.deepEqual(triageClaim(aClaim(), driver, classOf), {
      kind: 'job',
      key: { kind: 'claim', uid: 'testid', namespace: 'space', name: 'claim' },
    });
  });

  it('enqueues nothing for a claim whose class is missing, and says so', () => {
    assert.deepEqual(
      triageClaim(aClaim(), driver, () => undefined),
      { kind: 'ignore', reason: 'storageClass "class" not found' },
    );
  });
});

describe('triageVolume', () => {
  it('makes a job of a volume that is to be deleted', () => {
    assert.deepEqual(
      triageVolume(aVolume(), driver, () => false),
      { kind: 'job', key: { kind: 'volume', uid: 'volume-uid', namespace: '', name: 'test-testi' } },
    );
  });

  it('leaves two PVs of one handle alone', () => {
    const verdict = triageVolume(aVolume(), driver, () => true);
    assert.ok(verdict.kind === 'ignore' && verdict.reason.includes('test-volume-id'));
  });
});

describe('projection', () => {
  const claims: Record<string, Claim> = {
    'an eligible claim': aClaim(),
    'a bound claim': aClaim({ spec: { volumeName: 'pv' } }),
    'a foreign claim': aClaim({ metadata: { annotations: { 'volume.kubernetes.io/storage-provisioner': 'other' } } }),
    'a claim with the beta annotations': aClaim({
      metadata: {
        annotations: { 'volume.beta.kubernetes.io/storage-provisioner': DRIVER, 'volume.beta.kubernetes.io/storage-class': 'class' },
      },
    }),
    'a claim that waits for its node': aClaim({ metadata: { annotations: { 'volume.kubernetes.io/selected-node': 'n' } } }),
  };
  for (const [title, claim] of Object.entries(claims)) {
    it(`changes no verdict on ${title}`, () => {
      assert.equal(judgeClaim(projectClaim(claim), driver, classOf).kind, judgeClaim(claim, driver, classOf).kind);
    });
  }

  const volumes: Record<string, Volume> = {
    'a Released volume': aVolume(),
    'a Bound volume': aVolume({ phase: 'Bound' }),
    'an unprotected volume': aVolume({ phase: 'Bound', metadata: { finalizers: ['other'] } }),
    'a retained volume': aVolume({ spec: { persistentVolumeReclaimPolicy: 'Retain' } }),
    'a migrated volume': aVolume({
      metadata: { annotations: { 'pv.kubernetes.io/provisioned-by': 'x', 'pv.kubernetes.io/migrated-to': DRIVER } },
    }),
    'a volume that goes away': aVolume({ metadata: { deletionTimestamp: 'now', finalizers: [] } }),
  };
  for (const [title, volume] of Object.entries(volumes)) {
    it(`changes no verdict on ${title}`, () => {
      assert.deepEqual(judgeVolume(projectVolume(volume), driver), judgeVolume(volume, driver));
    });
  }

  it('keeps neither parameters of classes nor foreign annotations', () => {
    const cls = JSON.stringify(projectClass(aClass({ parameters: { password: 'x' } })));
    const claim = JSON.stringify(projectClaim(aClaim({ metadata: { annotations: { note: 'long text' } } })));
    assert.ok(!cls.includes('password') && !claim.includes('long text'));
  });
});

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
      object: aVolume({ metadata: { name: 'other' }, spec: { csi: { driver: DRIVER, volumeHandle: 'new' } } }),
      previous: second,
    });
    assert.ok(!index.isShared(first));
  });
});
