import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { CreateVolumeRequest } from '#src/csi/generated/csi_pb.ts';
import { claims } from '#src/kube/resources.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { kubeWith } from '../parts.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import type { TestNode } from '../../topology/fake-cluster.ts';
import {
  ALPHA_SELECTED_NODE,
  annotatedClaim,
  claimNow,
  endFaults,
  failWith,
  loseAnswer,
  messagesOf,
  SELECTED_NODE,
  stateOf,
  withTopology,
} from '../claim-cases.ts';
import { openRig, type Rig } from '../rig.ts';

const NODES: readonly TestNode[] = [1, 2, 3].map((id) => ({
  name: `node-${id}`,
  labels: { zone: `zone${id}`, rack: `rack${id}` },
  keys: ['zone', 'rack'],
}));
const NOT_FOUND =
  'failed to get selected CSINode node-1: csinode.storage.k8s.io "node-1" not found';

describe('a claim of a driver with topology', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const onNode = (name = 'node-1') => annotatedClaim(rig, { [SELECTED_NODE]: name });
  /** The requests that the driver got. */
  const requests = () =>
    rig.driver.calls
      .filter(({ method }) => method === 'CreateVolume')
      .map(({ request }) => request as CreateVolumeRequest);
  const preferredZones = () =>
    requests().map(({ accessibilityRequirements: asked }) =>
      asked?.preferred.map(({ segments }) => segments['zone']),
    );
  const withOptions = (
    nodes: readonly TestNode[],
    change: Partial<Dependencies['options']>,
  ): Partial<Dependencies> => ({
    ...withTopology(rig, nodes),
    options: { ...rig.parts.options, ...change },
  });

  it('gets a PV with the affinity of the driver’s answer (E-01)', async () => {
    const claim = await onNode();
    rig.onCall = async ({ method, proceed }) => {
      if (method !== 'CreateVolume') return undefined;
      const answer = (await proceed()) as { volume: object };
      const segments = { zone: 'zone1', rack: 'rack2' };
      return { volume: { ...answer.volume, accessibleTopology: [{ segments }] } };
    };
    assert.equal((await rig.provision(claim, withTopology(rig, NODES))).kind, 'done');
    const terms = (await rig.volumeOf(claim))?.spec.nodeAffinity?.required?.nodeSelectorTerms;
    assert.equal(terms?.length, 1);
    const expressions = terms[0]?.matchExpressions?.toSorted((a, b) => (a.key < b.key ? -1 : 1));
    assert.deepEqual(expressions, [
      { key: 'rack', operator: 'In', values: ['rack2'] },
      { key: 'zone', operator: 'In', values: ['zone1'] },
    ]);
  });

  it('waits for a change of nodes or its class while it fits on none', async () => {
    const claim = await onNode();
    const nodes = NODES.map((node) => ({ ...node, keys: [] }));
    const outcome = await rig.provision(claim, withTopology(rig, nodes));
    assert.ok(outcome.kind === 'parked', outcome.kind);
    assert.deepEqual(
      outcome.until?.map(({ resource, name }) => `${resource} ${name}`),
      ['nodes *', `storageclasses ${claim.spec.storageClassName}`],
    );
  });

  describe('whose selected node has no CSINode', () => {
    it('is given back to the scheduler (B-41)', async () => {
      const claim = await onNode();
      const outcome = await rig.provision(claim, withTopology(rig, []));
      assert.ok(outcome.kind === 'done' && outcome.needsNode === true);
      assert.equal((await claimNow(rig, claim))?.metadata.annotations?.[SELECTED_NODE], undefined);
      assert.deepEqual(messagesOf(rig), [`Warning ProvisioningFailed ${NOT_FOUND}`]);
      assert.deepEqual(requests(), []);
    });

    it('is counted as not provisioned', async () => {
      const claim = await onNode();
      await rig.provision(claim, withTopology(rig, []));
      const series = (await rig.metrics.metrics())
        .split('\n')
        .filter((line) => line.includes(`"${claim.spec.storageClassName}"`));
      assert.equal(series.length, 1);
      assert.match(series[0] ?? '', /provision_failed_total.* 1$/);
    });

    it('keeps it if the claim has changed meanwhile, and is retried', async () => {
      const claim = await onNode();
      const { namespace = '', name } = claim.metadata;
      const stale = kubeWith(rig, {
        update: async (resource, ref, object) => {
          const body = { metadata: { labels: { edited: 'yes' } } };
          await rig.kube.patch(claims, { namespace, name }, { type: 'merge', body });
          return rig.kube.update(resource, ref, object);
        },
      });
      const outcome = await rig.provision(claim, { ...withTopology(rig, []), ...stale });
      assert.deepEqual(outcome, { kind: 'retry', reason: NOT_FOUND });
      const now = await claimNow(rig, claim);
      assert.equal(now?.metadata.annotations?.[SELECTED_NODE], 'node-1');
    });

    it('waits for the node if only the alpha annotation names it', async () => {
      const claim = await annotatedClaim(rig, { [ALPHA_SELECTED_NODE]: 'node-1' });
      const outcome = await rig.provision(claim, withTopology(rig, []));
      assert.equal(outcome.kind, 'parked');
      const now = await claimNow(rig, claim);
      assert.equal(now?.metadata.annotations?.[ALPHA_SELECTED_NODE], 'node-1');
    });

    it('keeps it once its volume exists', async () => {
      const claim = await onNode();
      assert.equal((await rig.provision(claim, withTopology(rig, NODES))).kind, 'done');
      const restarted = { doubtMs: 60_000 };
      await rig.provision(claim, withTopology(rig, []), restarted);
      const now = await claimNow(rig, claim);
      assert.equal(now?.metadata.annotations?.[SELECTED_NODE], 'node-1');
    });
  });

  it('keeps its node if the Node is gone and the CSINode is not (R-08)', async () => {
    const claim = await onNode();
    const nodes = [{ name: 'node-1', keys: ['zone'] }];
    assert.equal((await rig.provision(claim, withTopology(rig, nodes))).kind, 'parked');
    const now = await claimNow(rig, claim);
    assert.equal(now?.metadata.annotations?.[SELECTED_NODE], 'node-1');
  });

  describe('whose nodes vanish after a call of unknown end', () => {
    it('asks for the place of its first call again, and another claim for none (I-01, I-02)', async () => {
      const [claim, other] = [await onNode(), await onNode('node-2')];
      await loseAnswer(rig, claim, withOptions(NODES, {}));
      assert.equal((await rig.provision(claim, withOptions([], {}))).kind, 'later');
      assert.ok(await rig.volumeOf(claim));
      const outcome = await rig.provision(other, withOptions([], {}));
      assert.ok(outcome.kind === 'done' && outcome.needsNode === true);
      const [first, second, ...more] = requests();
      assert.deepEqual(second, first);
      assert.deepEqual(more, []);
    });

    it('keeps the place no longer than its job (I-03)', async () => {
      const claim = await annotatedClaim(rig, {});
      await loseAnswer(rig, claim, withOptions(NODES.slice(0, 1), {}));
      await rig.provision(claim, withOptions([], {}));
      await rig.endDoubt(claim);
      assert.equal((await rig.provision(claim, withOptions([], {}))).kind, 'done');
      await rig.provision(claim, withOptions(NODES.slice(2), {}));
      assert.deepEqual(preferredZones(), [['zone1'], ['zone1'], ['zone3']]);
    });

    it('keeps each claim’s own place, however many there are at once (I-06)', async () => {
      const zones = [1, 2, 3].map((id) => `zone${id}`);
      const all = await Promise.all(
        Array.from({ length: 30 }, (_, i) => onNode(`node-${1 + (i % 3)}`)),
      );
      const parts = withOptions(NODES, { strictTopology: true, extraCreateMetadata: true });
      rig.onCall = async ({ method, proceed }) => {
        if (method !== 'CreateVolume') return undefined;
        await proceed();
        throw new DriverStatus(Code.DeadlineExceeded, 'out of time');
      };
      await Promise.all(all.map((claim) => rig.provision(claim, parts)));
      endFaults(rig);
      const gone = withOptions([], { strictTopology: true, extraCreateMetadata: true });
      await Promise.all(all.map((claim) => rig.provision(claim, gone)));
      for (const [i, claim] of all.entries()) {
        const own = requests().filter(
          ({ parameters }) => parameters['csi.storage.k8s.io/pvc/name'] === claim.metadata.name,
        );
        assert.equal(own.length, 2);
        for (const { accessibilityRequirements: asked } of own)
          assert.equal(asked?.requisite[0]?.segments['zone'], zones[i % 3]);
      }
    });

    it('keeps the place as asked, whatever becomes of the nodes as they are seen (I-07, I-08, I-09)', async () => {
      const claim = await onNode();
      const labels: Record<string, string> = { zone: 'zone1', rack: 'rack1' };
      const keys = ['zone', 'rack'];
      const parts = withTopology(rig, [{ name: 'node-1', labels, keys }]);
      await loseAnswer(rig, claim, parts);
      labels['zone'] = 'changed';
      keys.push('host');
      assert.equal((await rig.provision(claim, parts)).kind, 'later');
      const [first, second] = requests();
      assert.deepEqual(second, first);
      assert.deepEqual(preferredZones(), [['zone1'], ['zone1']]);
    });

    it('gets that of the new nodes once the driver has refused the old one (I-04, I-05)', async () => {
      const claim = await annotatedClaim(rig, {});
      failWith(rig, new DriverStatus(Code.Internal, 'no'));
      await rig.provision(claim, withTopology(rig, NODES));
      assert.equal(await stateOf(rig, claim), 'none');
      endFaults(rig);
      await rig.provision(claim, withTopology(rig, NODES.slice(2)));
      assert.deepEqual(preferredZones()[1], ['zone3']);
    });
  });
});
