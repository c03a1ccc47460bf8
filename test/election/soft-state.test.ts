import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { SoftState } from '#src/election/soft-state.ts';

describe('a process with soft state', () => {
  let reasons: string[];
  let lease: { isLeader: boolean; holder: string | undefined; transitions: number };
  let softState: SoftState;
  beforeEach(() => {
    reasons = [];
    softState = new SoftState((reason) => void reasons.push(reason));
    lease = { isLeader: true, holder: 'sutler_a', transitions: 3 };
    softState.follow(lease);
  });

  it('opens nothing before it knows who leads', () =>
    assert.notEqual(new SoftState(() => undefined).otherHolder, undefined));

  it('opens nothing while it does not lead', () => {
    Object.assign(lease, { isLeader: false, holder: undefined });
    assert.notEqual(softState.otherHolder, undefined);
  });

  it('goes on when it leads again and nobody led between', () => {
    softState.check();
    Object.assign(lease, { isLeader: false, holder: undefined });
    softState.check();
    Object.assign(lease, { isLeader: true, holder: 'sutler_a' });
    assert.equal(softState.check(), true);
    assert.equal(softState.otherHolder, undefined);
    assert.deepEqual(reasons, []);
  });

  it('ends when another one has taken the Lease', () => {
    softState.check();
    Object.assign(lease, { isLeader: false, holder: 'sutler_b', transitions: 4 });
    assert.equal(softState.check(), false);
    assert.deepEqual(reasons, ['sutler_b has taken the Lease: beginning anew']);
  });

  it('ends also where the Lease was deleted, so that its count begins anew', () => {
    lease.transitions = 0;
    softState.check();
    Object.assign(lease, { isLeader: false, holder: 'sutler_b' });
    assert.equal(softState.check(), false);
  });

  it('opens nothing any more once it has to end, though it has the Lease again', () => {
    softState.check();
    lease.transitions = 5;
    assert.equal(softState.check(), false);
    assert.notEqual(softState.otherHolder, undefined);
  });

  it('that waits for the Lease does not end when others take it', () => {
    Object.assign(lease, { isLeader: false, holder: 'sutler_b' });
    softState.check();
    Object.assign(lease, { holder: 'sutler_c', transitions: 4 });
    assert.equal(softState.check(), true);
  });
});
