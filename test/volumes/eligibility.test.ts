import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CLONE_PROTECTION } from '#src/kube/keys.ts';
import type { Claim, Class } from '#src/kube/objects.ts';
import { classNameOf, isNew, selectedNodeOf, shouldProvision } from '#src/volumes/eligibility.ts';
import { aClaim, aClass, driver, DRIVER } from './builders.ts';
import { claimFor } from './plans.ts';

const GA = 'volume.kubernetes.io/storage-provisioner';
const BETA = 'volume.beta.kubernetes.io/storage-provisioner';
const MIGRATED_TO = 'pv.kubernetes.io/migrated-to';
const NODE = 'volume.kubernetes.io/selected-node';
const ALPHA_NODE = 'volume.alpha.kubernetes.io/selected-node';
const IN_TREE = 'kubernetes.io/test-disk';

const classOf = (name: string) => (name === 'class' ? aClass() : undefined);
const late = () => aClass({ volumeBindingMode: 'WaitForFirstConsumer' });
const annotated = (annotations: Record<string, string>) => aClaim({ metadata: { annotations } });
const verdict = (claim: Claim, cls: () => Class = aClass) =>
  shouldProvision(claim, driver, cls).kind;
const reason = (claim: Claim, cls: () => Class = aClass) => {
  const found = shouldProvision(claim, driver, cls);
  assert.ok(found.kind === 'ignore', found.kind);
  return found.reason;
};

describe('a claim is provisioned', () => {
  it('that names the driver and a class of it (P-46)', () => {
    assert.deepEqual(shouldProvision(aClaim(), driver, classOf), {
      kind: 'provision',
      cls: aClass(),
    });
  });

  it('that names the driver in the beta annotation', () =>
    assert.equal(verdict(annotated({ [BETA]: DRIVER })), 'provision'));

  it('that is being deleted, as in upstream', () => {
    assert.equal(
      verdict(aClaim({ metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' } })),
      'provision',
    );
  });

  it('whose class has no binding mode (R-40)', () => {
    assert.equal('volumeBindingMode' in aClass(), false);
    assert.equal(verdict(aClaim()), 'provision');
  });

  it('whose class waits for a consumer, once a node is selected (P-57)', () => {
    assert.equal(verdict(annotated({ [BETA]: DRIVER, [NODE]: 'node' }), late), 'provision');
  });

  it('with the GA annotation, once a node is selected (P-58)', () => {
    assert.equal(verdict(annotated({ [GA]: DRIVER, [NODE]: 'node' }), late), 'provision');
  });

  it('whatever its volume mode is (P-90, P-91, P-93, P-94, P-96, P-97, P-98)', () => {
    assert.equal(aClaim().spec.volumeMode, undefined);
    for (const claim of [
      aClaim(),
      aClaim({ spec: { volumeMode: 'Filesystem' } }),
      aClaim({ spec: { volumeMode: 'Block' } }),
    ])
      assert.equal(verdict(claim), 'provision');
  });

  it('also as a block device, whatever the driver supports (P-03, P-92, P-95)', () => {
    assert.equal(verdict(aClaim({ spec: { volumeMode: 'Block' } })), 'provision');
  });
});

describe('a claim is new', () => {
  it('while it waits, and nothing shows that a volume was begun', () => {
    assert.equal(isNew(aClaim()), true);
  });

  for (const [title, change] of [
    ['has a volume', { spec: { volumeName: 'v' } }],
    ['is being deleted', { metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' } }],
    ['is being cloned', { metadata: { finalizers: [CLONE_PROTECTION] } }],
  ] as const)
    it(`not if it ${title}`, () => assert.equal(isNew(aClaim(change)), false));

  it('not if it is Bound', () => {
    assert.equal(isNew({ ...aClaim(), status: { phase: 'Bound' } }), false);
  });
});

describe('a claim is ignored', () => {
  it('of another provisioner than the driver (P-01, P-50)', () => {
    assert.equal(reason(annotated({ [GA]: 'other' })), 'the claim is for provisioner other');
  });

  it('of another provisioner in the beta annotation (P-51)', () =>
    assert.equal(verdict(annotated({ [BETA]: 'abc.com/mock-csi' })), 'ignore'));

  it('of another provisioner in the GA annotation (P-53)', () => {
    assert.equal(verdict(annotated({ [GA]: 'abc.com/mock-csi' })), 'ignore');
  });

  it('that already names a volume (P-06, P-48)', () => {
    assert.equal(
      reason(aClaim({ spec: { volumeName: 'volume' } })),
      'the claim already names its volume',
    );
  });

  it('that the volume controller has not annotated (P-52)', () => {
    assert.equal(
      reason(annotated({})),
      'the volume controller has not annotated the claim with a provisioner',
    );
    const { annotations: _, ...metadata } = aClaim().metadata;
    assert.equal(verdict({ ...aClaim(), metadata }), 'ignore');
  });

  it('that is not annotated, even if its class is unknown (P-49)', () => {
    assert.equal(shouldProvision(annotated({}), driver, () => undefined).kind, 'ignore');
  });

  it('whose GA annotation is empty, whatever the beta one says (R-03)', () => {
    assert.equal(verdict(annotated({ [GA]: '', [BETA]: DRIVER })), 'ignore');
  });

  it('whose class waits for a consumer, while no node is selected (P-56)', () => {
    assert.equal(
      reason(aClaim(), late),
      'the class waits for the first consumer and no node is selected yet',
    );
    assert.equal(verdict(annotated({ [GA]: DRIVER, [NODE]: '' }), late), 'ignore');
  });

  it('whose class waits for a consumer, if only the alpha annotation names a node', () => {
    assert.equal(verdict(annotated({ [GA]: DRIVER, [ALPHA_NODE]: 'node' }), late), 'ignore');
  });

  it('whose class now belongs to another provisioner (R-05)', () => {
    assert.equal(
      reason(aClaim(), () => aClass({ provisioner: 'other' })),
      'class class belongs to provisioner other',
    );
  });
});

describe('the class of a claim', () => {
  it('is named in the verdict if it is missing (P-07, R-04)', () => {
    assert.deepEqual(
      shouldProvision(aClaim({ spec: { storageClassName: 'none' } }), driver, classOf),
      {
        kind: 'no-class',
        className: 'none',
      },
    );
  });

  it('is that of the annotation before that of the field', () => {
    const claim = aClaim({
      metadata: { annotations: { 'volume.beta.kubernetes.io/storage-class': 'annotated' } },
      spec: { storageClassName: 'named' },
    });
    assert.equal(classNameOf(claim), 'annotated');
  });

  it('is empty if the claim names none', () => {
    const { storageClassName: _, ...spec } = aClaim().spec;
    assert.equal(classNameOf({ ...aClaim(), spec }), '');
  });
});

describe('the selected node', () => {
  it('is empty without annotations', () => {
    const { annotations: _, ...metadata } = aClaim().metadata;
    assert.equal(selectedNodeOf({ ...aClaim(), metadata }), '');
  });
  it('is that of the GA annotation, even an empty one', () => {
    assert.equal(selectedNodeOf(annotated({ [NODE]: 'a', [ALPHA_NODE]: 'b' })), 'a');
    assert.equal(selectedNodeOf(annotated({ [NODE]: '', [ALPHA_NODE]: 'b' })), '');
  });
  it('is that of the alpha annotation if there is no other', () =>
    assert.equal(selectedNodeOf(annotated({ [ALPHA_NODE]: 'b' })), 'b'));
});

describe('a driver that replaced an in-tree plug-in', () => {
  const successor = { ...driver, inTreeName: IN_TREE };
  const judged = (annotations: Record<string, string>, provisioner: string) =>
    shouldProvision(annotated(annotations), successor, () => aClass({ provisioner })).kind;

  it('provisions a claim of the plug-in that was migrated to it (G-05, P-04, P-47, P-55)', () => {
    assert.equal(judged({ [GA]: IN_TREE, [MIGRATED_TO]: DRIVER }, IN_TREE), 'provision');
  });

  it('ignores a claim of the plug-in that was migrated to another one (G-06, P-54)', () => {
    assert.equal(judged({ [GA]: IN_TREE, [MIGRATED_TO]: 'foo' }, IN_TREE), 'ignore');
  });

  it('ignores a foreign claim that was migrated to another driver (G-07)', () => {
    assert.equal(judged({ [GA]: 'foo', [MIGRATED_TO]: 'foo' }, IN_TREE), 'ignore');
  });

  it('ignores a claim of the plug-in that was not migrated (G-09)', () =>
    assert.equal(judged({ [GA]: IN_TREE }, IN_TREE), 'ignore'));

  it('ignores a foreign claim that was migrated to it', () => {
    assert.equal(judged({ [GA]: 'other', [MIGRATED_TO]: DRIVER }, IN_TREE), 'ignore');
  });

  it('provisions a claim of its own whose class is the plug-in’s', () =>
    assert.equal(judged({ [GA]: DRIVER }, IN_TREE), 'provision'));
});

/* Upstream's table asks two questions for each entry: whether the claim would be provisioned, and
 * what comes of it. A claim that the plan refuses is still this driver's to provision. */
describe('a claim is provisioned even if its plan will be refused:', () => {
  const secretName = { 'csi.storage.k8s.io/provisioner-secret-name': '' };
  const vac = aClaim({ spec: { volumeAttributesClassName: 'gold' } });
  const entries: readonly (readonly [string, Claim, Partial<Class>?])[] = [
    ['a plain one (B-01, B-02, B-04, B-12, B-13, B-14, B-22, B-24, B-25, B-26)', aClaim()],
    [
      'one with two file systems (B-03)',
      aClaim(),
      { parameters: { fstype: 'a', 'csi.storage.k8s.io/fstype': 'b' } },
    ],
    ['RWX (B-05)', claimFor('ReadWriteMany')],
    ['ROX (B-06, B-07)', claimFor('ReadOnlyMany')],
    ['RWO (B-08, B-09)', claimFor('ReadWriteOnce')],
    ['RWOP (B-10)', claimFor('ReadWriteOncePod')],
    ['ROX and RWO (B-11)', claimFor('ReadOnlyMany', 'ReadWriteOnce')],
    ['Filesystem (B-15)', aClaim({ spec: { volumeMode: 'Filesystem' } })],
    ['Block (B-16)', aClaim({ spec: { volumeMode: 'Block' } })],
    ['one with half a secret (B-17, B-20, B-21)', aClaim(), { parameters: secretName }],
    ['one with a selector (B-18)', aClaim({ spec: { selector: {} } })],
    ['one without UID (B-19)', aClaim({ metadata: { uid: '' } })],
    ['one with mount options (B-23)', aClaim(), { mountOptions: ['foo=bar'] }],
    [
      'one for a populator (B-27)',
      aClaim({
        spec: { dataSource: { apiGroup: 'my.example.io', kind: 'MyPopulator', name: 'p' } },
      }),
    ],
    ['one with an attributes class (B-36, B-37, B-38, B-39, B-40)', vac],
    ['one with a selected node (B-41)', annotated({ [GA]: DRIVER, [NODE]: 'bar' })],
  ];
  for (const [title, claim, change] of entries) {
    it(title, () =>
      assert.equal(
        verdict(claim, () => aClass(change ?? {})),
        'provision',
      ),
    );
  }
});

/* A process that serves all nodes. */
describe('whatever node the driver runs on, a claim', () => {
  const onNode = (node: string) => annotated({ [GA]: DRIVER, [NODE]: node });

  it('with a selected node is provisioned (B-28, B-31)', () =>
    assert.equal(verdict(onNode('foo'), late), 'provision'));
  it('of another node is provisioned too (B-30)', () =>
    assert.equal(verdict(onNode('bar'), late), 'provision'));
  it('without a selected node is ignored if its class waits for one (B-29)', () =>
    assert.equal(verdict(aClaim(), late), 'ignore'));
  it('of an Immediate class is provisioned for any node (B-32, B-33, B-34, B-35)', () => {
    const matchLabelExpressions = [{ key: 'key', values: ['bar'] }];
    const immediate = (): Class =>
      aClass({ volumeBindingMode: 'Immediate', allowedTopologies: [{ matchLabelExpressions }] });
    assert.equal(verdict(aClaim(), immediate), 'provision');
  });
});

describe('where each node has a process of its own, a claim', () => {
  const verdictOn = (node: string) => {
    const claim = annotated({ [GA]: DRIVER, [NODE]: node });
    return shouldProvision(claim, { ...driver, ownNode: 'foo' }, late).kind;
  };

  it('of its node is provisioned', () => assert.equal(verdictOn('foo'), 'provision'));
  it('of another node is ignored', () => assert.equal(verdictOn('bar'), 'ignore'));
});
