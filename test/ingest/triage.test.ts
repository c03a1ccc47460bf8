import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  judgeClaimChange,
  judgeVolumeChange,
  triageClaim,
  triageVolume,
} from '#src/ingest/triage.ts';
import type { TriageDriver } from '#src/ingest/triage.ts';
import type { Claim, Class, Volume } from '#src/kube/objects.ts';
import { aClaim, aClass, aVolume, DRIVER } from '../volumes/builders.ts';

const GA = 'volume.kubernetes.io/storage-provisioner';
const BETA = 'volume.beta.kubernetes.io/storage-provisioner';
const MIGRATED_TO = 'pv.kubernetes.io/migrated-to';
const NODE = 'volume.kubernetes.io/selected-node';
const IN_TREE = 'kubernetes.io/in-tree';
const CLONE_PROTECTION = 'provisioner.storage.kubernetes.io/cloning-protection';

const driver: TriageDriver = {
  name: DRIVER,
  inTreeName: IN_TREE,
  controllerCapabilities: new Set(['CREATE_DELETE_VOLUME']),
};
const cloning: TriageDriver = {
  ...driver,
  controllerCapabilities: new Set(['CREATE_DELETE_VOLUME', 'CLONE_VOLUME']),
};
const late = aClass({ volumeBindingMode: 'WaitForFirstConsumer' });

interface Case {
  readonly annotations?: Record<string, string>;
  readonly spec?: Partial<Claim['spec']>;
  /** null = the class is not there. */
  readonly cls?: Class | null;
  readonly hasVolume?: boolean;
}

function verdictOn({
  annotations = { [GA]: DRIVER },
  spec = {},
  cls = aClass(),
  hasVolume = false,
}: Case): string {
  const around = { classOf: () => cls ?? undefined, hasVolume: () => hasVolume };
  const triage = triageClaim(aClaim({ metadata: { annotations }, spec }), driver, around);
  return triage.kind === 'job' ? 'job' : triage.reason;
}

describe('triageClaim', () => {
  const around = { classOf: () => aClass(), hasVolume: () => false };

  it('makes a job of the claim’s key and nothing else', () => {
    assert.deepEqual(triageClaim(aClaim(), driver, around), {
      kind: 'job',
      key: { kind: 'claim', uid: 'testid', namespace: 'space', name: 'claim' },
    });
  });

  const accepted: Readonly<Record<string, Case>> = {
    'of our name (P-46)': {},
    'of the in-tree name that was migrated to us (P-04, P-47, P-55)': {
      annotations: { [GA]: IN_TREE, [MIGRATED_TO]: DRIVER },
    },
    'of our name whose class has the in-tree name (P-04)': {
      cls: aClass({ provisioner: IN_TREE }),
    },
    'that waits for its consumer and has a node, with the beta annotation (P-57)': {
      annotations: { [BETA]: DRIVER, [NODE]: 'n' },
      cls: late,
    },
    'that waits for its consumer and has a node, with the GA annotation (P-58)': {
      annotations: { [GA]: DRIVER, [NODE]: 'n' },
      cls: late,
    },
    'whose class has no binding mode (R-40)': { cls: aClass() },
  };
  for (const [title, given] of Object.entries(accepted))
    it(`takes a claim ${title}`, () => assert.equal(verdictOn(given), 'job'));

  const left: Readonly<Record<string, Case & { readonly reason: RegExp }>> = {
    'that names its volume (P-06, P-48)': {
      spec: { volumeName: 'pv' },
      reason: /already names its volume/,
    },
    'without annotation and class, and says nothing of the class (P-49)': {
      annotations: {},
      cls: null,
      reason: /not annotated/,
    },
    'of another provisioner (P-01, P-50)': {
      annotations: { [GA]: 'other' },
      reason: /for provisioner other/,
    },
    'of another provisioner by the beta annotation (P-51)': {
      annotations: { [BETA]: 'other' },
      reason: /for provisioner other/,
    },
    'without annotation (P-52)': { annotations: {}, reason: /not annotated/ },
    'of another provisioner by the GA annotation, whatever the beta one says (P-53)': {
      annotations: { [GA]: 'other', [BETA]: DRIVER },
      reason: /for provisioner other/,
    },
    'of the in-tree name that was not migrated (P-54)': {
      annotations: { [GA]: IN_TREE },
      reason: /for provisioner kubernetes.io\/in-tree/,
    },
    'of the in-tree name that was migrated to another driver (P-54)': {
      annotations: { [GA]: IN_TREE, [MIGRATED_TO]: 'other' },
      reason: /for provisioner kubernetes.io\/in-tree/,
    },
    'of another provisioner, even if it says that it was migrated to us': {
      annotations: { [GA]: 'other', [MIGRATED_TO]: DRIVER },
      reason: /for provisioner other/,
    },
    'that waits for its consumer and has no node (P-56)': {
      cls: late,
      reason: /no node is selected/,
    },
    'that waits for its consumer and has an empty node': {
      annotations: { [GA]: DRIVER, [NODE]: '' },
      cls: late,
      reason: /no node/,
    },
    'whose GA annotation is empty, whatever the beta one says (R-03)': {
      annotations: { [GA]: '', [BETA]: DRIVER },
      reason: /for provisioner $/,
    },
    'whose class is missing, and says so (P-07, R-04)': {
      cls: null,
      reason: /^storageClass "class" not found$/,
    },
    'whose class went to another driver (R-05)': {
      cls: aClass({ provisioner: 'other' }),
      reason: /belongs to provisioner other/,
    },
    'whose volume is there (P-02, R-01)': {
      hasVolume: true,
      reason: /volume of the claim is there/,
    },
  };
  for (const [title, { reason, ...given }] of Object.entries(left))
    it(`leaves a claim ${title}`, () => assert.match(verdictOn(given), reason));

  const sourceOfClones = (change: Partial<Claim['metadata']>): Claim =>
    aClaim({
      metadata: { annotations: {}, finalizers: [CLONE_PROTECTION], ...change },
      spec: { volumeName: 'pv' },
    });
  const leaving = { deletionTimestamp: '2026-01-01T00:00:00Z' };

  it('takes the source of clones that is being deleted, for a driver that clones (K-07)', () => {
    assert.equal(triageClaim(sourceOfClones(leaving), cloning, around).kind, 'job');
    assert.equal(triageClaim(sourceOfClones(leaving), driver, around).kind, 'ignore');
  });

  it('leaves the source of clones that stays (K-08)', () => {
    assert.equal(triageClaim(sourceOfClones({}), cloning, around).kind, 'ignore');
  });

  it('leaves a claim that is being deleted and that we do not hold (K-06)', () => {
    assert.equal(
      triageClaim(
        sourceOfClones({ ...leaving, finalizers: ['kubernetes.io/pvc-protection'] }),
        cloning,
        around,
      ).kind,
      'ignore',
    );
  });

  it('takes a claim that carries the finalizer of a record, whatever became of it', () => {
    const claim = aClaim({
      metadata: { annotations: {}, finalizers: ['sutler.dev/volume-record'] },
      spec: { volumeName: 'pv' },
    });
    assert.equal(triageClaim(claim, driver, { ...around, hasVolume: () => true }).kind, 'job');
  });
});

describe('newsOfClaim', () => {
  const held = aClaim({ metadata: { finalizers: [CLONE_PROTECTION] } });
  const leaving = aClaim({
    metadata: { finalizers: [CLONE_PROTECTION], deletionTimestamp: '2026-01-01T00:00:00Z' },
  });
  const edited = (change: Parameters<typeof aClaim>[0] = {}): Claim => {
    const claim = aClaim(change);
    return { ...claim, metadata: { ...claim.metadata, resourceVersion: 'next' } };
  };
  const of = (claim: Claim, previous = aClaim()) =>
    judgeClaimChange(claim, previous, { wasJob: true, driver });

  it('is a verdict where the claim had no job before', () => {
    assert.equal(
      judgeClaimChange(aClaim(), aClaim({ metadata: { annotations: {} } }), {
        wasJob: false,
        driver,
      }),
      'verdict',
    );
  });

  it('is that it is back where the volume controller had asked for it before: a job may wait still', () => {
    assert.equal(judgeClaimChange(aClaim(), aClaim(), { wasJob: false, driver }), 'back');
  });

  it('is an edit where anything of a waiting claim changed, seen by us or not', () => {
    assert.equal(of(edited({ metadata: { annotations: { [GA]: DRIVER, [NODE]: 'n' } } })), 'edit');
    assert.equal(of(edited()), 'edit');
  });

  it('is nothing where the claim was only listed again', () => assert.equal(of(aClaim()), 'none'));

  it('is nothing where a finalizer of ours came', () => {
    assert.equal(of(edited({ metadata: { finalizers: [CLONE_PROTECTION] } })), 'none');
  });

  it('is nothing where the volume controller binds the claim', () => {
    assert.equal(of(edited({ spec: { volumeName: 'pv' } })), 'none');
    assert.equal(of({ ...edited(), status: { phase: 'Bound' } }), 'none');
  });

  it('is a verdict where a source of clones is deleted and the driver clones', () => {
    assert.equal(judgeClaimChange(leaving, held, { wasJob: true, driver: cloning }), 'verdict');
  });

  it('is an edit where a waiting claim is deleted: a finalizer of ours must not keep it', () => {
    assert.equal(of(edited({ metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' } })), 'edit');
  });
});

describe('newsOfVolume', () => {
  const released = aVolume();
  const edited = (change: Parameters<typeof aVolume>[0] = {}): Volume => {
    const volume = aVolume(change);
    return { ...volume, metadata: { ...volume.metadata, resourceVersion: 'next' } };
  };

  it('is a verdict where the policy changes what is to be done', () => {
    assert.equal(
      judgeVolumeChange(
        edited({ spec: { persistentVolumeReclaimPolicy: 'Retain' } }),
        released,
        driver,
      ),
      'verdict',
    );
  });

  it('is an edit where anything else of it changed: an annotation may name another secret now', () => {
    assert.equal(judgeVolumeChange(edited(), released, driver), 'edit');
  });

  it('is that it is going where its deletion begins, or it changes after that', () => {
    const going = edited({ metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' } });
    assert.equal(judgeVolumeChange(going, released, driver), 'going');
    const later = { ...going, metadata: { ...going.metadata, resourceVersion: 'later' } };
    assert.equal(judgeVolumeChange(later, going, driver), 'going');
  });

  it('is nothing where it was only listed again', () =>
    assert.equal(judgeVolumeChange(aVolume(), released, driver), 'none'));
});

describe('triageVolume', () => {
  it('makes a job of a volume that is to be deleted', () => {
    assert.deepEqual(
      triageVolume(aVolume(), driver, () => false),
      {
        kind: 'job',
        key: { kind: 'volume', uid: 'volume-uid', namespace: '', name: 'test-testi' },
      },
    );
  });

  it('refuses two PVs of one handle', () => {
    const verdict = triageVolume(aVolume(), driver, () => true);
    assert.ok(verdict.kind === 'refuse' && verdict.reason.includes('test-volume-id'));
  });
});
