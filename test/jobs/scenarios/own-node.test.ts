import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { SELECTED_NODE } from '#src/kube/keys.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { annotatedClaim, claimNow, failWith, withTopology } from '../claim-cases.ts';
import type { Parts } from '../parts.ts';
import { openRig, type Rig } from '../rig.ts';

const OWN = 'node';

describe('a process that serves one node', () => {
  let rig: Rig;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());

  const parts = (): Partial<Parts> => {
    const ofDriver = withTopology(rig);
    const facts = ofDriver.facts ?? rig.parts.facts;
    return { ...ofDriver, facts: () => ({ ...facts(), ownNode: OWN }) };
  };

  it('makes the volume of a claim of its node', async () => {
    const claim = await annotatedClaim(rig, { [SELECTED_NODE]: OWN });
    assert.equal((await rig.provision(claim, parts())).kind, 'done');
    assert.ok(await rig.volumeOf(claim));
  });

  it('does not touch a claim of another node', async () => {
    const claim = await annotatedClaim(rig, { [SELECTED_NODE]: 'other' });
    assert.equal((await rig.provision(claim, parts())).kind, 'done');
    assert.deepEqual(await claimNow(rig, claim), claim);
    assert.equal(rig.driver.calls.length, 0);
  });

  it('gives back a claim for which its node has no room', async () => {
    const claim = await annotatedClaim(rig, { [SELECTED_NODE]: OWN });
    failWith(rig, new DriverStatus(Code.ResourceExhausted, 'full'));
    const outcome = await rig.provision(claim, parts());
    assert.ok(outcome.kind === 'done' && outcome.needsNode === true);
    assert.equal((await claimNow(rig, claim))?.metadata.annotations?.[SELECTED_NODE], undefined);
  });
});
