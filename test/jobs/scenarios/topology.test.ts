import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import type { Claim } from '#src/kube/objects.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import type { TestNode } from '../../topology/fake-cluster.ts';
import { ALPHA_SELECTED_NODE, SELECTED_NODE, useRig, type Rig } from '../rig.ts';

const NODES: readonly TestNode[] = [1, 2, 3].map((id) => ({
  name: `node-${id}`,
  labels: { zone: `zone${id}`, rack: `rack${id}` },
  keys: ['zone', 'rack'],
}));

describe('a claim of a driver with topology', () => {
  let rig: Rig;
  useRig((opened) => (rig = opened));

  const onNode = (name = 'node-1') => rig.claim({ annotations: { [SELECTED_NODE]: name } });
  const nodeOf = async (claim: Claim, key = SELECTED_NODE) =>
    (await rig.claimNow(claim))?.metadata.annotations?.[key];
  const provision = (claim: Claim, nodes: readonly TestNode[], change?: Partial<Dependencies>) =>
    rig.provision(claim, { ...rig.withTopology(nodes), ...change });
  const requests = () =>
    rig.callsOf('CreateVolume').map(({ request }) => request as CreateVolumeRequest);
  const preferredZones = () =>
    requests().map(({ accessibilityRequirements: asked }) =>
      asked?.preferred.map(({ segments }) => segments['zone']),
    );

  it('gets a PV with the affinity of the driver’s answer (E-01)', async () => {
    const claim = await onNode();
    rig.onCall = async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      const answer = (await proceed()) as { volume: object };
      return { volume: { ...answer.volume, accessibleTopology: [{ segments: { zone: 'z' } }] } };
    };
    assert.equal((await provision(claim, NODES)).kind, 'done');
    assert.deepEqual((await rig.volumeOf(claim))?.spec.nodeAffinity?.required, {
      nodeSelectorTerms: [{ matchExpressions: [{ key: 'zone', operator: 'In', values: ['z'] }] }],
    });
  });

  it('waits for a change of nodes or its class while it fits on none', async () => {
    const claim = await onNode();
    const outcome = await provision(
      claim,
      NODES.map((node) => ({ ...node, keys: [] })),
    );
    assert.ok(outcome.kind === 'parked', outcome.kind);
    assert.deepEqual(
      outcome.until?.map(({ resource, name }) => `${resource} ${name}`),
      ['nodes *', `storageclasses ${claim.spec.storageClassName}`],
    );
  });

  it('is given back to the scheduler if its node has no CSINode (B-41)', async () => {
    const claim = await onNode();
    const outcome = await provision(claim, []);
    assert.ok(outcome.kind === 'done' && outcome.needsNode === true);
    assert.equal(await nodeOf(claim), undefined);
    assert.deepEqual(rig.messages(), [
      'Warning ProvisioningFailed failed to get selected CSINode node-1: ' +
        'csinode.storage.k8s.io "node-1" not found',
    ]);
    assert.deepEqual(requests(), []);
  });

  it('waits for its node if only the alpha annotation names it', async () => {
    const claim = await rig.claim({ annotations: { [ALPHA_SELECTED_NODE]: 'node-1' } });
    assert.equal((await provision(claim, [])).kind, 'parked');
    assert.equal(await nodeOf(claim, ALPHA_SELECTED_NODE), 'node-1');
  });

  it('keeps its node if the Node is gone and the CSINode is not (R-08)', async () => {
    const claim = await onNode();
    const nodes = [{ name: 'node-1', keys: ['zone'] }];
    assert.equal((await provision(claim, nodes)).kind, 'parked');
    assert.equal(await nodeOf(claim), 'node-1');
  });

  describe('whose nodes vanish after a call of unknown end', () => {
    it('asks for the place of its first call again, and another claim for none (I-01, I-02)', async () => {
      const [claim, other] = [await onNode(), await onNode('node-2')];
      await rig.loseAnswer(claim, rig.withTopology(NODES));
      assert.equal((await provision(claim, [])).kind, 'later');
      assert.ok(await rig.volumeOf(claim));
      const outcome = await provision(other, []);
      assert.ok(outcome.kind === 'done' && outcome.needsNode === true);
      const [first, second, ...more] = requests();
      assert.deepEqual(second, first);
      assert.deepEqual(more, []);
    });

    it('keeps the place no longer than its job (I-03)', async () => {
      const claim = await rig.claim();
      await rig.loseAnswer(claim, rig.withTopology(NODES.slice(0, 1)));
      await provision(claim, []);
      await rig.endDoubt(claim);
      assert.equal((await provision(claim, [])).kind, 'done');
      await provision(claim, NODES.slice(2));
      assert.deepEqual(preferredZones(), [['zone1'], ['zone1'], ['zone3']]);
    });

    it('keeps each claim’s own place, however many there are at once (I-06)', async () => {
      const all = await Promise.all([1, 2, 3, 1, 2, 3].map((id) => onNode(`node-${id}`)));
      const options = { ...rig.parts.options, strictTopology: true, extraCreateMetadata: true };
      rig.failWith('DeadlineExceeded', 'out of time');
      await Promise.all(all.map((claim) => provision(claim, NODES, { options })));
      rig.endFaults();
      await Promise.all(all.map((claim) => provision(claim, [], { options })));
      for (const [i, claim] of all.entries()) {
        const own = requests().filter(
          ({ parameters }) => parameters['csi.storage.k8s.io/pvc/name'] === claim.metadata.name,
        );
        const zones = own.map((asked) => asked.accessibilityRequirements?.requisite[0]?.segments);
        const [zone] = [`zone${1 + (i % 3)}`];
        assert.deepEqual(
          zones.map((segments) => segments?.['zone']),
          [zone, zone],
        );
      }
    });

    it('keeps the place as asked, whatever becomes of the nodes as they are seen (I-07, I-08, I-09)', async () => {
      const claim = await onNode();
      const labels: Record<string, string> = { zone: 'zone1', rack: 'rack1' };
      const keys = ['zone', 'rack'];
      const nodes = [{ name: 'node-1', labels, keys }];
      await rig.loseAnswer(claim, rig.withTopology(nodes));
      labels['zone'] = 'changed';
      keys.push('host');
      assert.equal((await provision(claim, nodes)).kind, 'later');
      const [first, second] = requests();
      assert.deepEqual(second, first);
    });

    it('gets that of the new nodes once the driver has refused the old one (I-04, I-05)', async () => {
      const claim = await rig.claim();
      rig.failWith('Internal', 'no');
      await provision(claim, NODES);
      rig.endFaults();
      await provision(claim, NODES.slice(2));
      assert.deepEqual(preferredZones()[1], ['zone3']);
    });
  });
});
