import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Class, Labels } from '#src/kube/objects.ts';
import { planVolume } from '#src/volumes/plan.ts';
import { aClaim, aClass, driver, DRIVER, options } from './builders.ts';
import { anApi } from './source-builders.ts';
import {
  completePv,
  type Given,
  planCreation,
  planRefusal,
  runPlan,
  withTopology,
} from './plans.ts';
import { aCluster, registered } from '../topology/fake-cluster.ts';

const NODE = 'volume.kubernetes.io/selected-node';
const onNode = (node: string) =>
  aClaim({
    metadata: { annotations: { 'volume.kubernetes.io/storage-provisioner': DRIVER, [NODE]: node } },
  });
const allowing: Partial<Class> = {
  allowedTopologies: [{ matchLabelExpressions: [{ key: 'zone', values: ['zone1'] }] }],
};
const zone = (name: string) => ({ segments: { zone: name } });
const affinity = async (accessibleTopology: { segments: Record<string, string> }[]) => {
  const topology = aCluster(registered({ zone: 'zone1' }));
  return (await completePv({ driver: withTopology, topology }, { accessibleTopology })).spec
    .nodeAffinity;
};
const isIn = (key: string, value: string) => ({ key, operator: 'In', values: [value] });

describe('the node affinity of a PV', () => {
  it('is absent for a driver without topology, whatever it answers (E-03)', async () => {
    assert.equal(
      (await completePv({}, { accessibleTopology: [zone('zone1')] })).spec.nodeAffinity,
      undefined,
    );
  });

  it('is absent without the feature gate, and no node is read (E-04)', async () => {
    const given = { driver: withTopology, gates: { Topology: false }, claim: onNode('some-node') };
    assert.deepEqual((await runPlan(given)).steps, []);
    assert.equal(
      (await completePv(given, { accessibleTopology: [zone('zone1')] })).spec.nodeAffinity,
      undefined,
    );
  });

  it('is absent if the answer names no topology (H-01, H-02)', async () =>
    assert.equal(await affinity([]), undefined));

  it('has one term for one topology (H-03)', async () => {
    assert.deepEqual(await affinity([zone('zone1')]), {
      required: { nodeSelectorTerms: [{ matchExpressions: [isIn('zone', 'zone1')] }] },
    });
  });

  it('has one expression for each segment (H-04)', async () => {
    assert.deepEqual(await affinity([{ segments: { zone: 'zone1', rack: 'rack2' } }]), {
      required: {
        nodeSelectorTerms: [{ matchExpressions: [isIn('zone', 'zone1'), isIn('rack', 'rack2')] }],
      },
    });
  });

  it('has one term for each of several topologies (H-05)', async () => {
    assert.deepEqual(await affinity([zone('zone1'), zone('zone2')]), {
      required: {
        nodeSelectorTerms: [
          { matchExpressions: [isIn('zone', 'zone1')] },
          { matchExpressions: [isIn('zone', 'zone2')] },
        ],
      },
    });
  });

  it('has zero terms for topologies without segments, which the API server refuses', async () =>
    assert.deepEqual(await affinity([{ segments: {} }]), { required: { nodeSelectorTerms: [] } }));

  it('has no term for a topology without segments', async () => {
    assert.deepEqual(await affinity([{ segments: {} }, zone('zone1')]), {
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
  const asked = async (given: Given) => {
    const { request } = await planCreation({ driver: withTopology, topology, ...given });
    const { accessibilityRequirements: found } = request;
    const zones = (terms: readonly { segments: Labels }[] = []) =>
      terms.map(({ segments }) => segments['zone']).join();
    return found && [zones(found.requisite), zones(found.preferred)];
  };

  it('is absent for a class without topologies, if the driver is not to be told all (P-42)', async () =>
    assert.equal(await asked({ options: { immediateTopology: false } }), undefined));

  it('is absent for a driver without topology, which needs no nodes', async () =>
    assert.equal(
      await asked({ driver, cls: aClass(allowing), claim: onNode('node'), topology: undefined }),
      undefined,
    ));

  it('has the topologies that the class allows (P-43)', async () =>
    assert.deepEqual(await asked({ cls: aClass(allowing) }), ['zone1', 'zone1']));

  it('prefers that of the selected node (P-44)', async () =>
    assert.deepEqual(await asked({ claim: onNode('node') }), ['zone1,zone2', 'zone2,zone1']));

  it('has that of the selected node alone if it is strict', async () =>
    assert.deepEqual(await asked({ claim: onNode('node'), options: { strictTopology: true } }), [
      'zone2',
      'zone2',
    ]));

  it('fails for a selected node that the class does not allow (P-45)', async () =>
    assert.match(
      (
        await planRefusal({
          driver: withTopology,
          topology,
          cls: aClass(allowing),
          claim: onNode('node'),
        })
      ).message,
      /^error generating accessibility requirements: topology \[\{zone zone2\}\] from selected/,
    ));

  it('is for the first annotation of a selected node that is present, even if it is empty', async () => {
    const metadata = (annotations: Labels) => ({ claim: aClaim({ metadata: { annotations } }) });
    const alpha = { 'volume.alpha.kubernetes.io/selected-node': 'node' };
    const options = { immediateTopology: false };
    assert.deepEqual(await asked({ ...metadata(alpha), options }), ['zone1,zone2', 'zone2,zone1']);
    assert.equal(await asked({ ...metadata({ ...alpha, [NODE]: '' }), options }), undefined);
  });

  it('needs another node if the selected one has no CSINode (B-41)', async () => {
    const { value } = await runPlan({ claim: onNode('bar'), driver: withTopology, topology });
    assert.ok(value?.kind === 'reschedule', value?.kind);
    assert.equal(
      value.message,
      'failed to get selected CSINode bar: csinode.storage.k8s.io "bar" not found',
    );
  });

  it('can’t be made while the nodes are not listed', async () => {
    const plan = await planVolume(anApi([]), {
      claim: aClaim(),
      cls: aClass(),
      driver: withTopology,
      options,
    });
    assert.deepEqual(plan, {
      kind: 'refuse',
      message: 'the nodes of the cluster are not listed yet',
      waitsFor: [],
    });
  });

  it('passes a defect on', () => {
    const broken = { ...topology, csiNodes: () => assert.fail('broken') };
    return assert.rejects(runPlan({ driver: withTopology, topology: broken }), /broken/);
  });
});

describe('a migrated class', () => {
  const ZONE = 'topology.kubernetes.io/zone';
  const REGION = 'topology.kubernetes.io/region';
  const plugins = [
    {
      name: 'kubernetes.io/aws-ebs',
      csi: 'ebs.csi.aws.com',
      key: 'topology.ebs.csi.aws.com/zone',
      zones: ['us-west-2a', 'us-west-2b'],
      region: 'us-west-2',
      handle: 'vol-1',
    },
    {
      name: 'kubernetes.io/gce-pd',
      csi: 'pd.csi.storage.gke.io',
      key: 'topology.gke.io/zone',
      zones: ['us-east1-a', 'us-east1-b'],
      region: 'us-east1',
      handle: 'projects/p/zones/us-east1-a/disks/d',
    },
    {
      name: 'kubernetes.io/cinder',
      csi: 'cinder.csi.openstack.org',
      key: 'topology.cinder.csi.openstack.org/zone',
      zones: ['nova', 'other'],
      region: undefined,
      handle: 'volume-1',
    },
  ];
  for (const { name, csi, key, zones, region, handle } of plugins) {
    const [zone = ''] = zones;
    const allowed = (of: string): Partial<Class> => ({
      provisioner: name,
      allowedTopologies: [{ matchLabelExpressions: [{ key: of, values: zones }] }],
    });
    const given = (cls: Partial<Class>): Given => ({
      driver: { ...withTopology, name: csi, inTreeName: name },
      cls: aClass(cls),
      claim: onNode('node-0'),
      topology: aCluster(registered(...zones.map((each) => ({ [key]: each })))),
    });
    const requisite = async (cls: Partial<Class>) =>
      (await planCreation(given(cls))).request.accessibilityRequirements?.requisite.map(
        ({ segments }) => segments,
      );

    it(`of ${name} asks for its zones by the driver’s key`, async () => {
      const expected = zones.map((each) => ({ [key]: each }));
      for (const of of [ZONE, 'failure-domain.beta.kubernetes.io/zone', key])
        assert.deepEqual(await requisite(allowed(of)), expected);
      if (region !== undefined)
        assert.deepEqual(
          await requisite({ provisioner: name, parameters: { zones: zones.join() } }),
          expected,
        );
    });

    it(`of ${name} gets a PV that is tied to Kubernetes’ zone`, async () => {
      const volume = { volumeId: handle, accessibleTopology: [{ segments: { [key]: zone } }] };
      const { metadata, spec } = await completePv(given(allowed(ZONE)), volume);
      assert.equal(spec.csi, undefined);
      const regions = region === undefined ? [] : [isIn(REGION, region)];
      assert.deepEqual(spec.nodeAffinity?.required?.nodeSelectorTerms, [
        { matchExpressions: [isIn(ZONE, zone), ...regions] },
      ]);
      assert.equal(metadata.labels?.[ZONE], zone);
      assert.equal(metadata.labels[REGION], region);
    });
  }

  it('of Azure disks asks for no zone where its zones are numbers of fault domains', async () => {
    const key = 'topology.disk.csi.azure.com/zone';
    const name = 'kubernetes.io/azure-disk';
    const { request } = await planCreation({
      driver: { ...withTopology, name: 'disk.csi.azure.com', inTreeName: name },
      cls: aClass({ provisioner: name, parameters: { zones: '0,1' } }),
    });
    assert.deepEqual(
      request.accessibilityRequirements?.requisite.map(({ segments }) => segments),
      [{ [key]: '' }],
    );
  });
});

describe('a request after an earlier call', () => {
  const place = { requisite: [zone('zone2')], preferred: [zone('zone2')] };
  const asked = async (given: Given) =>
    (await planCreation({ place, topology: aCluster(registered({ zone: 'zone1' })), ...given }))
      .request.accessibilityRequirements?.preferred[0]?.segments;

  it('asks for the same place, whatever the nodes are by now', async () =>
    assert.deepEqual(await asked({ driver: withTopology }), { zone: 'zone2' }));

  it('asks for no place of a driver without topology', async () =>
    assert.equal(await asked({}), undefined));
});
