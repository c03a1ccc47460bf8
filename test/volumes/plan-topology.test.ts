import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Class } from '#src/kube/objects.ts';
import { aClaim, aClass, DRIVER } from './builders.ts';
import { planCreation, runPlan, completePv, withTopology } from './plans.ts';

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
  completePv({ driver: withTopology }, { accessibleTopology }).spec.nodeAffinity;
const isIn = (key: string, value: string) => ({ key, operator: 'In', values: [value] });

describe('the node affinity of a PV', () => {
  it('is absent for a driver without topology, whatever it answers (E-03)', () => {
    assert.equal(
      completePv({}, { accessibleTopology: [zone('zone1')] }).spec.nodeAffinity,
      undefined,
    );
  });

  it('is absent without the feature gate, and no node is read (E-04)', () => {
    const given = { driver: withTopology, gates: { Topology: false }, claim: onNode('some-node') };
    assert.deepEqual(runPlan(given).steps, []);
    assert.equal(
      completePv(given, { accessibleTopology: [zone('zone1')] }).spec.nodeAffinity,
      undefined,
    );
  });

  it('is absent if the answer names no topology (H-01, H-02)', () =>
    assert.equal(affinity([]), undefined));

  it('has one term for one topology (H-03)', () => {
    assert.deepEqual(affinity([zone('zone1')]), {
      required: { nodeSelectorTerms: [{ matchExpressions: [isIn('zone', 'zone1')] }] },
    });
  });

  it('has one expression for each segment (H-04)', () => {
    assert.deepEqual(affinity([{ segments: { zone: 'zone1', rack: 'rack2' } }]), {
      required: {
        nodeSelectorTerms: [{ matchExpressions: [isIn('zone', 'zone1'), isIn('rack', 'rack2')] }],
      },
    });
  });

  it('has one term for each of several topologies (H-05)', () => {
    assert.deepEqual(affinity([zone('zone1'), zone('zone2')]), {
      required: {
        nodeSelectorTerms: [
          { matchExpressions: [isIn('zone', 'zone1')] },
          { matchExpressions: [isIn('zone', 'zone2')] },
        ],
      },
    });
  });

  it('has no term for a topology without segments', () => {
    assert.deepEqual(affinity([{ segments: {} }, zone('zone1')]), {
      required: { nodeSelectorTerms: [{ matchExpressions: [isIn('zone', 'zone1')] }] },
    });
  });
});

describe('the topology requirement of a request', () => {
  const asked = (cls: Class, claim = aClaim(), facts = withTopology) =>
    planCreation({ cls, claim, driver: facts }).request.accessibilityRequirements;

  it('is absent for a class without topologies (P-42)', () =>
    assert.equal(asked(aClass()), undefined));

  /* sutler sends no topology requirement: the driver chooses where the volume is. */
  it('is not sent yet for a class with allowed topologies (P-43)', () =>
    assert.equal(asked(aClass(allowing)), undefined));
  it('is not sent yet for a selected node (P-44)', () =>
    assert.equal(asked(aClass(), onNode('node')), undefined));
  it('is not sent yet for both (P-45)', () =>
    assert.equal(asked(aClass(allowing), onNode('node')), undefined));
  it('is not sent yet for an unknown node, which is not read (B-41, R-08)', () => {
    assert.deepEqual(runPlan({ claim: onNode('bar'), driver: withTopology }).steps, []);
  });
});
