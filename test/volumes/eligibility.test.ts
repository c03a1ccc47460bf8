import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CLONE_PROTECTION } from '#src/kube/keys.ts';
import type { Claim, Class } from '#src/kube/objects.ts';
import { classNameOf, isNew, selectedNodeOf, shouldProvision } from '#src/volumes/eligibility.ts';
import { aClaim, aClass, driver, DRIVER } from './builders.ts';

const GA = 'volume.kubernetes.io/storage-provisioner';
const BETA = 'volume.beta.kubernetes.io/storage-provisioner';
const MIGRATED_TO = 'pv.kubernetes.io/migrated-to';
const NODE = 'volume.kubernetes.io/selected-node';
const ALPHA_NODE = 'volume.alpha.kubernetes.io/selected-node';
const IN_TREE = 'kubernetes.io/test-disk';

const late = () => aClass({ volumeBindingMode: 'WaitForFirstConsumer' });
const annotated = (annotations: Record<string, string>) => aClaim({ metadata: { annotations } });
const onNode = (node: string) => annotated({ [GA]: DRIVER, [NODE]: node });
const { annotations: _, ...unannotated } = aClaim().metadata;
const verdict = (claim: Claim, cls: () => Class = aClass) =>
  shouldProvision(claim, driver, cls).kind;
const reason = (claim: Claim, cls: () => Class = aClass) => {
  const found = shouldProvision(claim, driver, cls);
  assert.ok(found.kind === 'ignore', found.kind);
  return found.reason;
};

describe('a claim is provisioned', () => {
  const deletionTimestamp = '2026-01-01T00:00:00Z';
  const allowing = (): Class =>
    aClass({
      volumeBindingMode: 'Immediate',
      allowedTopologies: [{ matchLabelExpressions: [{ key: 'key', values: ['bar'] }] }],
    });
  const block = aClaim({ spec: { volumeMode: 'Block' } });
  const cases: readonly (readonly [string, Claim, (() => Class)?])[] = [
    ['that names the driver and a class of it (P-46)', aClaim()],
    ['that names the driver in the beta annotation', annotated({ [BETA]: DRIVER })],
    ['that is being deleted, as in upstream', aClaim({ metadata: { deletionTimestamp } })],
    ['whose class has no binding mode (R-40)', aClaim()],
    [
      'whose class waits for a consumer, once a node is selected (P-57)',
      annotated({ [BETA]: DRIVER, [NODE]: 'node' }),
      late,
    ],
    ['with the GA annotation, once a node is selected (P-58)', onNode('node'), late],
    ['also as a block device, whatever the driver supports (P-03, P-92, P-95)', block],
    ['with a selected node, wherever the driver runs (B-28, B-31)', onNode('foo'), late],
    ['of another node than the driver’s, too (B-30)', onNode('bar'), late],
    ['of an Immediate class, for any node (B-32, B-33, B-34, B-35)', aClaim(), allowing],
  ];
  for (const [title, claim, cls] of cases)
    it(title, () => assert.equal(verdict(claim, cls), 'provision'));

  it('whatever its volume mode is (P-90, P-91, P-93, P-94, P-96, P-97, P-98)', () => {
    const filesystem = aClaim({ spec: { volumeMode: 'Filesystem' } });
    for (const claim of [aClaim(), filesystem, block]) assert.equal(verdict(claim), 'provision');
  });
});

describe('a claim is new', () => {
  it('while it waits, and nothing shows that a volume was begun', () =>
    assert.equal(isNew(aClaim()), true));

  for (const [title, claim] of [
    ['has a volume', aClaim({ spec: { volumeName: 'v' } })],
    ['is being deleted', aClaim({ metadata: { deletionTimestamp: '2026-01-01T00:00:00Z' } })],
    ['is being cloned', aClaim({ metadata: { finalizers: [CLONE_PROTECTION] } })],
    ['is Bound', { ...aClaim(), status: { phase: 'Bound' } }],
  ] as const)
    it(`not if it ${title}`, () => assert.equal(isNew(claim), false));
});

describe('a claim is ignored', () => {
  const WAITS = 'the class waits for the first consumer and no node is selected yet';
  const NOT_ANNOTATED = 'the volume controller has not annotated the claim with a provisioner';
  const alien = 'the claim is for provisioner other';
  const cases: readonly (readonly [string, Claim, string, (() => Class)?])[] = [
    ['of another provisioner than the driver (P-01, P-50)', annotated({ [GA]: 'other' }), alien],
    ['of another one in the beta annotation (P-51)', annotated({ [BETA]: 'other' }), alien],
    ['of another one in the GA annotation (P-53)', annotated({ [GA]: 'other' }), alien],
    [
      'that already names a volume (P-06, P-48)',
      aClaim({ spec: { volumeName: 'volume' } }),
      'the claim already names its volume',
    ],
    ['that the volume controller has not annotated (P-52)', annotated({}), NOT_ANNOTATED],
    ['that has no annotations', { ...aClaim(), metadata: unannotated }, NOT_ANNOTATED],
    [
      'whose GA annotation is empty, whatever the beta one says (R-03)',
      annotated({ [GA]: '', [BETA]: DRIVER }),
      'the claim is for provisioner ',
    ],
    ['whose class waits, while no node is selected (P-56, B-29)', aClaim(), WAITS, late],
    ['whose class waits, if the node is empty', onNode(''), WAITS, late],
    [
      'whose class waits, if only the alpha annotation names a node',
      annotated({ [GA]: DRIVER, [ALPHA_NODE]: 'node' }),
      WAITS,
      late,
    ],
    [
      'whose class now belongs to another provisioner (R-05)',
      aClaim(),
      'class class belongs to provisioner other',
      () => aClass({ provisioner: 'other' }),
    ],
  ];
  for (const [title, claim, expected, cls] of cases)
    it(title, () => assert.equal(reason(claim, cls), expected));

  it('that is not annotated, even if its class is unknown (P-49)', () =>
    assert.equal(shouldProvision(annotated({}), driver, () => undefined).kind, 'ignore'));
});

describe('the class of a claim', () => {
  it('is named in the verdict if it is missing (P-07, R-04)', () => {
    const claim = aClaim({ spec: { storageClassName: 'none' } });
    const found = shouldProvision(claim, driver, (name) =>
      name === 'none' ? undefined : aClass(),
    );
    assert.deepEqual(found, { kind: 'no-class', className: 'none' });
  });

  it('is that of the annotation before that of the field', () => {
    const claim = annotated({ 'volume.beta.kubernetes.io/storage-class': 'annotated' });
    assert.equal(classNameOf(claim), 'annotated');
  });

  it('is empty if the claim names none', () => {
    const { storageClassName: _, ...spec } = aClaim().spec;
    assert.equal(classNameOf({ ...aClaim(), spec }), '');
  });
});

describe('the selected node', () => {
  it('is empty without annotations', () =>
    assert.equal(selectedNodeOf({ ...aClaim(), metadata: unannotated }), ''));
  it('is that of the GA annotation, even an empty one', () => {
    assert.equal(selectedNodeOf(annotated({ [NODE]: 'a', [ALPHA_NODE]: 'b' })), 'a');
    assert.equal(selectedNodeOf(annotated({ [NODE]: '', [ALPHA_NODE]: 'b' })), '');
  });
  it('is that of the alpha annotation if there is no other', () =>
    assert.equal(selectedNodeOf(annotated({ [ALPHA_NODE]: 'b' })), 'b'));
});

describe('a driver that replaced an in-tree plug-in', () => {
  const successor = { ...driver, inTreeName: IN_TREE };
  const cases: readonly (readonly [string, Record<string, string>, 'provision' | 'ignore'])[] = [
    [
      'a claim of the plug-in that was migrated to it (G-05, P-04, P-47, P-55)',
      { [GA]: IN_TREE, [MIGRATED_TO]: DRIVER },
      'provision',
    ],
    [
      'a claim of the plug-in that was migrated to another one (G-06, P-54)',
      { [GA]: IN_TREE, [MIGRATED_TO]: 'foo' },
      'ignore',
    ],
    [
      'a foreign claim that was migrated to another driver (G-07)',
      { [GA]: 'foo', [MIGRATED_TO]: 'foo' },
      'ignore',
    ],
    ['a claim of the plug-in that was not migrated (G-09)', { [GA]: IN_TREE }, 'ignore'],
    ['a foreign claim that was migrated to it', { [GA]: 'other', [MIGRATED_TO]: DRIVER }, 'ignore'],
    ['a claim of its own whose class is the plug-in’s', { [GA]: DRIVER }, 'provision'],
  ];
  for (const [what, annotations, kind] of cases)
    it(`${kind}s ${what}`, () => {
      const cls = () => aClass({ provisioner: IN_TREE });
      assert.equal(shouldProvision(annotated(annotations), successor, cls).kind, kind);
    });
});
