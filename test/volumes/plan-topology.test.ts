import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Class, Labels } from '#src/kube/objects.ts';
import { planVolume } from '#src/volumes/plan.ts';
import { aClaim, aClass, driver, DRIVER, options } from './builders.ts';
import {
  completePv,
  type Given,
  planCreation,
  planRefusal,
  runPlan,
  withTopology,
} from './plans.ts';
import { aCluster, registered } from './topology/fake-cluster.ts';

const NODE = 'volume.kubernetes.io/selected-node';
const onNode = (node: string) =>
  aClaim({
    metadata: { annotations: { 'volume.kubernetes.io/storage-provisioner': DRIVER, [NODE]: node } },
  });
const allowing: Partial<Class> = {
  allowedTopologies: [{ matchLabelExpressions: [{ key: 'zone', values: ['zone1'] }] }],
};
const zone = (name: string) => ({ segments: { zone: name } });
const affinity = (accessibleTopology: { segments: Record<string, string> }[]) => {
  const topology = aCluster(registered({ zone: 'zone1' }));
  return completePv({ driver: withTopology, topology }, { accessibleTopology }).spec.nodeAffinity;
};
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

  it('has zero terms for topologies without segments, which the API server refuses', () =>
    assert.deepEqual(affinity([{ segments: {} }]), { required: { nodeSelectorTerms: [] } }));

  it('has no term for a topology without segments', () => {
    assert.deepEqual(affinity([{ segments: {} }, zone('zone1')]), {
      required: { nodeSelectorTerms: [{ matchExpressions: [isIn('zone', 'zone1')] }] },
    });
  });
});

describe('the topology requirement of a request', () => {
  const nodes = [
    { labels: { zone: 'zone1' }, keys: ['zone'] },
    { name: 'node', labels: { zone: 'zone2' }, keys: ['zone'] },
  ];
  const topology = aCluster(nodes);
  const asked = (given: Given) => {
    const { request } = planCreation({ driver: withTopology, topology, ...given });
    const { accessibilityRequirements: found } = request;
    const zones = (terms: readonly { segments: Labels }[] = []) =>
      terms.map(({ segments }) => segments['zone']).join();
    return found && [zones(found.requisite), zones(found.preferred)];
  };

  it('is absent for a class without topologies, if the driver is not to be told all (P-42)', () =>
    assert.equal(asked({ options: { immediateTopology: false } }), undefined));

  it('is absent for a driver without topology, which needs no nodes', () =>
    assert.equal(
      asked({ driver, cls: aClass(allowing), claim: onNode('node'), topology: undefined }),
      undefined,
    ));

  it('has the topologies that the class allows (P-43)', () =>
    assert.deepEqual(asked({ cls: aClass(allowing) }), ['zone1', 'zone1']));

  it('prefers that of the selected node (P-44)', () =>
    assert.deepEqual(asked({ claim: onNode('node') }), ['zone1,zone2', 'zone2,zone1']));

  it('has that of the selected node alone if it is strict', () =>
    assert.deepEqual(asked({ claim: onNode('node'), options: { strictTopology: true } }), [
      'zone2',
      'zone2',
    ]));

  it('fails for a selected node that the class does not allow (P-45)', () =>
    assert.match(
      planRefusal({
        driver: withTopology,
        topology,
        cls: aClass(allowing),
        claim: onNode('node'),
      }).message,
      /^error generating accessibility requirements: topology \[\{zone zone2\}\] from selected/,
    ));

  it('is for the first annotation of a selected node that is present, even if it is empty', () => {
    const metadata = (annotations: Labels) => ({ claim: aClaim({ metadata: { annotations } }) });
    const alpha = { 'volume.alpha.kubernetes.io/selected-node': 'node' };
    const options = { immediateTopology: false };
    assert.deepEqual(asked({ ...metadata(alpha), options }), ['zone1,zone2', 'zone2,zone1']);
    assert.equal(asked({ ...metadata({ ...alpha, [NODE]: '' }), options }), undefined);
  });

  it('has the driver’s key for the zones of a migrated class', () => {
    const EBS = 'ebs.csi.aws.com';
    const key = 'topology.ebs.csi.aws.com/zone';
    const zone = { key: 'topology.kubernetes.io/zone', values: ['us-west-2a'] };
    const migrated = { ...withTopology, name: EBS, inTreeName: 'kubernetes.io/aws-ebs' };
    const { request } = planCreation({
      driver: migrated,
      cls: aClass({
        provisioner: 'kubernetes.io/aws-ebs',
        allowedTopologies: [{ matchLabelExpressions: [zone] }],
      }),
      topology,
    });
    assert.deepEqual(
      request.accessibilityRequirements?.requisite.map(({ segments }) => segments),
      [{ [key]: 'us-west-2a' }],
    );
  });

  it('needs another node if the selected one has no CSINode (B-41)', () => {
    const { value } = runPlan({ claim: onNode('bar'), driver: withTopology, topology });
    assert.ok(value?.kind === 'reschedule', value?.kind);
    assert.equal(
      value.message,
      'failed to get selected CSINode bar: csinode.storage.k8s.io "bar" not found',
    );
  });

  it('can’t be made while the nodes are not listed', () => {
    const rule = planVolume({
      claim: aClaim(),
      cls: aClass(),
      className: 'class',
      driver: withTopology,
      options,
    });
    assert.deepEqual(rule.next().value, {
      kind: 'refuse',
      message: 'the nodes of the cluster are not listed yet',
      waitsFor: [],
    });
  });

  it('passes a defect on', () => {
    const broken = { ...topology, csiNodes: () => assert.fail('broken') };
    assert.throws(() => runPlan({ driver: withTopology, topology: broken }), /broken/);
  });
});
