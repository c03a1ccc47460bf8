import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import type { SeenLease } from '#src/election/lease-view.ts';
import { type LeadStatus, OwnLeader } from '#src/election/own-leader.ts';

const HISTORY = 'marker:replid';

describe('a process with a Redis of its own', () => {
  let status: { -readonly [field in keyof LeadStatus]: LeadStatus[field] };
  let own: OwnLeader;
  beforeEach(() => {
    const seen = { lease: undefined, otherHolder: undefined };
    status = { isLeader: true, leadsForMs: 5_000, holder: 'sutler_a', transitions: 3, seen };
    own = new OwnLeader();
    own.follow(status);
    own.confirm(HISTORY);
  });
  const judge = (isBegun = false, history = HISTORY): string => own.judge(history, isBegun).kind;
  const drained = (otherHolder?: string): SeenLease => ({
    lease: {
      record: { holder: '', durationMs: 0, acquiredMs: 0, renewedMs: 0, transitions: 0 },
      annotations: otherHolder === undefined ? { 'sutler.dev/drain': '{"by":"ann"}' } : {},
    },
    otherHolder,
  });

  it('may call the driver while it leads, for as long as it does so without a renewal', () => {
    const verdict = own.judge(HISTORY, false);
    assert.ok(verdict.kind === 'may');
    const leftMs = verdict.untilMs - performance.now();
    assert.ok(leftMs > 4_000 && leftMs <= 5_000, `${leftMs} ms`);
  });

  it('calls nothing before it knows who leads', () =>
    assert.equal(new OwnLeader().judge(HISTORY, true).kind, 'paused'));

  it('calls nothing while another process leads, not even for what it has begun', () => {
    Object.assign(status, { isLeader: false, holder: 'upstream-0' });
    assert.deepEqual([judge(), judge(true)], ['paused', 'paused']);
    assert.equal(own.pause, 'upstream-0 leads, and this process waits for the Lease');
  });

  it('calls nothing before its leader has begun with this history', () => {
    own.confirm(undefined);
    assert.equal(judge(true), 'unclear');
    own.confirm('other');
    assert.equal(judge(true), 'unclear');
  });

  it('begins nothing new while it is drained, and finishes what was begun', () => {
    status.seen = drained();
    assert.deepEqual([judge(), judge(true)], ['paused', 'may']);
    assert.equal(own.pause, 'sutler is drained by ann');
  });

  it('begins nothing new while another provisioner holds a Lease that it does not compete for', () => {
    status.seen = drained('upstream-0');
    assert.deepEqual([judge(), judge(true)], ['paused', 'may']);
  });
});
