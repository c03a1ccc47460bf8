import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Class, Labels } from '#src/kube/objects.ts';
import { planVolume } from '#src/volumes/plan.ts';
import { aClaim, aClass, driver, DRIVER, options } from './builders.ts';
import { anApi } from './source-builders.ts';
import { completePv, type Given, planCreation, planRefusal, withTopology } from './plans.ts';
import { aCluster, allow, registered } from '../topology/fake-cluster.ts';

const NODE = 'volume.kubernetes.io/selected-node';
const onNode = (node: string) =>
  aClaim({
    metadata: { annotations: { 'volume.kubernetes.io/storage-provisioner': DRIVER, [NODE]: node } },
  });
const allowing: Partial<Class> = { allowedTopologies: allow({ zone: ['zone1'] }) };
const zone = (name: string) => ({ segments: { zone: name } });
type Topologies = readonly { readonly segments: Record<string, string> }[];
const affinityOf = async (accessibleTopology: Topologies, given: Given = {}) => {
  const topology = aCluster(registered({ zone: 'zone1' }));
  const answer = { accessibleTopology: [...accessibleTopology] };
  return (await completePv({ driver: withTopology, topology, ...given }, answer)).spec.nodeAffinity;
};
const isIn = (key: string, value: string) => ({ key, operator: 'In', values: [value] });
const term = (...matchExpressions: readonly object[]) => ({ matchExpressions });

describe('the node affinity of a PV', () => {
  it('is absent for a driver without topology, whatever it answers (E-03)', async () =>
    assert.equal(await affinityOf([zone('zone1')], { driver }), undefined));

  it('is absent without the feature gate, and no node is read (E-04)', async () => {
    const given = { gates: { Topology: false }, claim: onNode('some-node'), topology: undefined };
    assert.equal(await affinityOf([zone('zone1')], given), undefined);
  });

  it('is absent if the answer names no topology (H-01, H-02)', async () =>
    assert.equal(await affinityOf([]), undefined));

  const [one, two] = [term(isIn('zone', 'zone1')), term(isIn('zone', 'zone2'))];
  const both = term(isIn('zone', 'zone1'), isIn('rack', 'rack2'));
  const placed = { segments: { zone: 'zone1', rack: 'rack2' } };
  const empty = { segments: {} };
  const cases: readonly (readonly [string, Topologies, readonly object[]])[] = [
    ['one term for one topology (H-03)', [zone('zone1')], [one]],
    ['one expression for each segment (H-04)', [placed], [both]],
    ['one term for each of several (H-05)', [zone('zone1'), zone('zone2')], [one, two]],
    ['zero terms without segments, which the API server refuses', [empty], []],
    ['no term for a topology without segments', [empty, zone('zone1')], [one]],
  ];
  for (const [title, topologies, nodeSelectorTerms] of cases)
    it(`has ${title}`, async () =>
      assert.deepEqual(await affinityOf(topologies), { required: { nodeSelectorTerms } }));
});

describe('the topology requirement of a request', () => {
  const nodes = [
    { labels: { zone: 'zone1' }, keys: ['zone'] },
    { name: 'node', labels: { zone: 'zone2' }, keys: ['zone'] },
  ];
  const topology = aCluster(nodes);
  const asked = async (given: Given) => {
    const { request } = await planCreation({ driver: withTopology, topology, ...given });
    const { accessibilityRequirements: found } = request;
    const zones = (terms: readonly { segments: Labels }[] = []) =>
      terms.map(({ segments }) => segments['zone']).join();
    return found && [zones(found.requisite), zones(found.preferred)];
  };
  const given = (annotations: Labels) => ({
    claim: aClaim({ metadata: { annotations } }),
    options: { immediateTopology: false },
  });
  const ALPHA = { 'volume.alpha.kubernetes.io/selected-node': 'node' };
  const cases: readonly (readonly [string, Given, readonly string[] | undefined])[] = [
    [
      'is absent for a class without topologies, if the driver is not to be told all (P-42)',
      { options: { immediateTopology: false } },
      undefined,
    ],
    [
      'is absent for a driver without topology, which needs no nodes',
      { driver, cls: aClass(allowing), claim: onNode('node'), topology: undefined },
      undefined,
    ],
    [
      'has the topologies that the class allows (P-43)',
      { cls: aClass(allowing) },
      ['zone1', 'zone1'],
    ],
    [
      'prefers that of the selected node (P-44)',
      { claim: onNode('node') },
      ['zone1,zone2', 'zone2,zone1'],
    ],
    [
      'has that of the selected node alone if it is strict',
      { claim: onNode('node'), options: { strictTopology: true } },
      ['zone2', 'zone2'],
    ],
    ['is for the node of the alpha annotation', given(ALPHA), ['zone1,zone2', 'zone2,zone1']],
    ['is for no node if the other annotation is empty', given({ ...ALPHA, [NODE]: '' }), undefined],
  ];
  for (const [title, input, expected] of cases)
    it(title, async () => assert.deepEqual(await asked(input), expected));

  it('fails for a selected node that the class does not allow (P-45)', async () => {
    const input = { driver: withTopology, topology, cls: aClass(allowing), claim: onNode('node') };
    assert.match(
      (await planRefusal(input)).message,
      /^error generating accessibility requirements: topology \[\{zone zone2\}\] from selected/,
    );
  });

  it('can’t be made while the nodes are not listed', async () => {
    const input = { claim: aClaim(), cls: aClass(), driver: withTopology, options };
    const message = 'the nodes of the cluster are not listed yet';
    assert.deepEqual(await planVolume(anApi([]), input), { kind: 'refuse', message, waitsFor: [] });
  });

  it('of a migrated class has the driver’s key, and the PV has Kubernetes’', async () => {
    const key = 'topology.gke.io/zone';
    const ZONE = 'topology.kubernetes.io/zone';
    const migrated: Given = {
      driver: {
        ...withTopology,
        name: 'pd.csi.storage.gke.io',
        inTreeName: 'kubernetes.io/gce-pd',
      },
      cls: aClass({
        provisioner: 'kubernetes.io/gce-pd',
        allowedTopologies: allow({ [ZONE]: ['us-east1-a'] }),
      }),
      topology: aCluster(registered({ [key]: 'us-east1-a' })),
    };
    const place = { segments: { [key]: 'us-east1-a' } };
    const { accessibilityRequirements: found } = (await planCreation(migrated)).request;
    assert.deepEqual(
      found?.requisite.map(({ segments }) => segments),
      [place.segments],
    );
    const { spec } = await completePv(migrated, {
      volumeId: 'projects/p/zones/us-east1-a/disks/d',
      accessibleTopology: [place],
    });
    assert.deepEqual(spec.nodeAffinity?.required?.nodeSelectorTerms, [
      term(isIn(ZONE, 'us-east1-a'), isIn('topology.kubernetes.io/region', 'us-east1')),
    ]);
  });

  it('is that of an earlier call, whatever the nodes are by now', async () => {
    const place = { requisite: [zone('zone9')], preferred: [zone('zone9')] };
    assert.deepEqual(await asked({ place }), ['zone9', 'zone9']);
    assert.equal(await asked({ place, driver }), undefined);
  });
});
