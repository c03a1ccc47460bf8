import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Class } from '#src/kube/objects.ts';
import { aClaim, aClass, DRIVER } from './builders.ts';
import { created, planned, volumeOf, withTopology } from './plans.ts';

const NODE = 'volume.kubernetes.io/selected-node';
const onNode = (node: string) =>
  aClaim({
    metadata: { annotations: { 'volume.kubernetes.io/storage-provisioner': DRIVER, [NODE]: node } },
  });
const allowing: Partial<Class> = {
  allowedTopologies: [{ matchLabelExpressions: [{ key: 'zone', values: ['zone1'] }] }],
};
const zone = (name: string) => ({ segments: { zone: name } });
const affinity = (accessibleTopology: { segments: Record<string, string> }[]) =>
  volumeOf({ driver: withTopology }, { accessibleTopology }).spec.nodeAffinity;
const isIn = (key: string, value: string) => ({ key, operator: 'In', values: [value] });

describe('where a volume can be reached from', () => {
  it('is not said of a driver without topology, whatever it answers (E-03)', () => {
    assert.equal(
      volumeOf({}, { accessibleTopology: [zone('zone1')] }).spec.nodeAffinity,
      undefined,
    );
  });

  it('is not said, and no node is looked at, where the gate is off (E-04)', () => {
    const given = { driver: withTopology, gates: { Topology: false }, claim: onNode('some-node') };
    assert.deepEqual(planned(given).steps, []);
    assert.equal(
      volumeOf(given, { accessibleTopology: [zone('zone1')] }).spec.nodeAffinity,
      undefined,
    );
  });

  it('is not said where the answer names no place (H-01, H-02)', () =>
    assert.equal(affinity([]), undefined));

  it('is one term for one place (H-03)', () => {
    assert.deepEqual(affinity([zone('zone1')]), {
      required: { nodeSelectorTerms: [{ matchExpressions: [isIn('zone', 'zone1')] }] },
    });
  });

  it('is one expression for each of its parts (H-04)', () => {
    assert.deepEqual(affinity([{ segments: { zone: 'zone1', rack: 'rack2' } }]), {
      required: {
        nodeSelectorTerms: [{ matchExpressions: [isIn('zone', 'zone1'), isIn('rack', 'rack2')] }],
      },
    });
  });

  it('is one term for each of several places (H-05)', () => {
    assert.deepEqual(affinity([zone('zone1'), zone('zone2')]), {
      required: {
        nodeSelectorTerms: [
          { matchExpressions: [isIn('zone', 'zone1')] },
          { matchExpressions: [isIn('zone', 'zone2')] },
        ],
      },
    });
  });

  it('has no term for a place without parts', () => {
    assert.deepEqual(affinity([{ segments: {} }, zone('zone1')]), {
      required: { nodeSelectorTerms: [{ matchExpressions: [isIn('zone', 'zone1')] }] },
    });
  });
});

describe('where a volume is wanted', () => {
  const asked = (cls: Class, claim = aClaim(), facts = withTopology) =>
    created({ cls, claim, driver: facts }).request.accessibilityRequirements;

  it('is not said for a class that says nothing (P-42)', () =>
    assert.equal(asked(aClass()), undefined));

  /* Requirements come with topology; until then the driver chooses the place. */
  it('is not said yet for a class with allowed topologies (P-43)', () =>
    assert.equal(asked(aClass(allowing)), undefined));
  it('is not said yet for a selected node (P-44)', () =>
    assert.equal(asked(aClass(), onNode('node')), undefined));
  it('is not said yet for both (P-45)', () =>
    assert.equal(asked(aClass(allowing), onNode('node')), undefined));
  it('is not said yet for a node that the cluster does not know, nor is that looked at (B-41, R-08)', () => {
    assert.deepEqual(planned({ claim: onNode('bar'), driver: withTopology }).steps, []);
  });
});
