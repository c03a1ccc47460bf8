import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RefusedSizes } from '#src/jobs/claim/take-claim.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims } from '#src/kube/resources.ts';
import { selectedNodeOf } from '#src/volumes/eligibility.ts';
import { systemClock } from '#src/runtime/clock.ts';
import type { Dependencies } from '#src/jobs/dependencies.ts';
import { SELECTED_NODE, useRig, type Rig } from '../rig.ts';
import { allow } from '../../topology/fake-cluster.ts';

const OWN = 'node';

describe('in a process that serves one node', () => {
  let rig: Rig;
  useRig((opened) => (rig = opened));

  const parts = (change: Partial<Dependencies> = {}): Partial<Dependencies> => {
    const ofDriver = rig.withTopology();
    const facts = ofDriver.facts ?? rig.parts.facts;
    const controllerCapabilities = new Set(['CREATE_DELETE_VOLUME', 'GET_CAPACITY']);
    return {
      ...ofDriver,
      facts: () => ({ ...facts(), controllerCapabilities, ownNode: OWN }),
      refusedSizes: new RefusedSizes(systemClock),
      ...change,
    };
  };
  const on = (node: string) => rig.claim({ annotations: { [SELECTED_NODE]: node } });
  const nodeOf = async (claim: Claim): Promise<string> => {
    const now = await rig.claimNow(claim);
    assert.ok(now);
    return selectedNodeOf(now);
  };
  /** The claim's class, which allows another zone than the node's. */
  const elsewhere = (claim: Claim): Pick<Dependencies, 'classOf'> => {
    const cls = rig.parts.classOf(claim.spec.storageClassName ?? '');
    assert.ok(cls);
    return { classOf: () => ({ ...cls, allowedTopologies: allow({ zone: ['b'] }) }) };
  };
  /** Nothing happens that anybody could see. */
  const assertSilent = async (claim: Claim): Promise<void> => {
    assert.deepEqual([await nodeOf(claim), rig.messages()], ['', []]);
    assert.equal(rig.callsOf('CreateVolume').length, 0);
  };

  it('a claim of its node is created there (B-28, B-31)', async () => {
    const claim = await on(OWN);
    assert.equal((await rig.provision(claim, parts())).kind, 'done');
    assert.ok(await rig.volumeOf(claim));
  });

  it('a claim of another node is not touched (B-30)', async () => {
    const claim = await on('other');
    assert.equal((await rig.provision(claim, parts())).kind, 'done');
    assert.deepEqual(await rig.claimNow(claim), claim);
    assert.equal(rig.driver.calls.length, 0);
  });

  it('a claim for which it has no room is given back, and not taken at once again (R-32)', async () => {
    const given = parts();
    const claim = await on(OWN);
    rig.failWith('ResourceExhausted', 'full');
    const outcome = await rig.provision(claim, given);
    assert.ok(outcome.kind === 'done' && outcome.needsNode === true);
    assert.equal(await nodeOf(claim), '');
    rig.endFaults();
    assert.equal((await rig.provision(claim, given)).kind, 'retry');
    assert.equal(await nodeOf(claim), '');
  });

  it('a claim that may be bound at once is taken without delay (A-42, B-32)', async () => {
    const claim = await rig.claim();
    const outcome = await rig.provision(claim, parts());
    assert.ok(outcome.kind === 'done' && outcome.needsNode === true);
    assert.equal(await nodeOf(claim), OWN);
    assert.equal(rig.callsOf('CreateVolume').length, 0);
  });

  it('a claim that its node has no room for waits in silence (B-33)', async () => {
    rig.onCall = ({ method }) => (method === 'GetCapacity' ? { availableCapacity: 1n } : undefined);
    const claim = await rig.claim();
    const outcome = await rig.provision(claim, parts());
    assert.ok(outcome.kind === 'retry', outcome.kind);
    assert.match(outcome.reason, /no room .*the driver has 1$/);
    await assertSilent(claim);
  });

  it('a claim is taken where the driver can’t tell its room', async () => {
    rig.failWith('Internal', 'no idea', 'GetCapacity');
    const claim = await rig.claim();
    await rig.provision(claim, parts());
    assert.equal(await nodeOf(claim), OWN);
  });

  it('a claim whose class allows other nodes only waits in silence (B-35)', async () => {
    const claim = await rig.claim();
    assert.equal((await rig.provision(claim, parts(elsewhere(claim)))).kind, 'parked');
    await assertSilent(claim);
  });

  it('allowed topologies are ignored for a driver without topology (B-34)', async () => {
    const claim = await rig.claim();
    const facts = () => ({ ...rig.parts.facts(), ownNode: OWN });
    await rig.provision(claim, { ...elsewhere(claim), facts });
    assert.equal(await nodeOf(claim), OWN);
  });

  it('a claim that can’t be planned is taken before the driver is asked for room (R-33)', async () => {
    const claim = await rig.claim({ parameters: { 'csi.storage.k8s.io/fstype': '', fstype: '' } });
    await rig.provision(claim, parts());
    assert.equal(await nodeOf(claim), OWN);
    assert.equal(rig.driver.calls.length, 0);
  });

  it('a claim without a node waits where it is not to be bound at once (B-29)', async () => {
    const claim = await rig.claim();
    assert.equal((await rig.provision(claim, parts({ bindsAtOnce: false }))).kind, 'done');
    await assertSilent(claim);
  });

  it('a claim that another node took meanwhile is left to it', async () => {
    const claim = await rig.claim();
    const body = { metadata: { annotations: { [SELECTED_NODE]: 'other' } } };
    const { kube } = rig.kubeWith({
      async update(...args) {
        await rig.kube.patch(claims, args[1], { type: 'merge', body });
        return rig.kube.update(...args);
      },
    });
    assert.equal((await rig.provision(claim, parts({ kube }))).kind, 'later');
    assert.equal(await nodeOf(claim), 'other');
  });
});
