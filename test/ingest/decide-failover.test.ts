import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { afterProbe, decideFailover } from '#src/ingest/decide-failover.ts';
import type { FailoverDecision, GatewayHealth } from '#src/ingest/decide-failover.ts';

const NOW = 1_000_000;
const TIMEOUT = 10_000;
const OWNERSHIP = 40_000;

const reachable: GatewayHealth = { kind: 'reachable' };
const unknown: GatewayHealth = { kind: 'unknown' };
const draining = (running: number): GatewayHealth => ({ kind: 'draining', running });
const down = (
  ms: number,
  more: { probes?: number; wasDraining?: boolean } = {},
): GatewayHealth => ({
  kind: 'unreachable',
  sinceMs: NOW - ms,
  probes: more.probes ?? 5,
  reason: 'refused',
  wasDraining: more.wasDraining ?? false,
});

function elect(current: string, sights: Record<string, GatewayHealth>): FailoverDecision {
  return decideFailover({
    candidates: new Map(Object.entries(sights)),
    current,
    nowMs: NOW,
    timeoutMs: TIMEOUT,
    ownershipMs: OWNERSHIP,
  });
}

/** 'keep', 'none', or 'to b after 10000'. */
function brief(choice: FailoverDecision): string {
  return choice.kind === 'move' ? `to ${choice.to} after ${choice.waitMs}` : choice.kind;
}

const table: Record<
  string,
  [current: string, sights: Record<string, GatewayHealth>, expected: string]
> = {
  'names the only one at once, unseen': ['', { a: unknown }, 'to a after 0'],
  'names the only one even where it is unreachable': ['', { a: down(60_000) }, 'to a after 0'],
  'keeps the only one whatever becomes of it': ['a', { a: down(60_000) }, 'none'],
  'keeps the only one while it drains': ['a', { a: draining(3) }, 'keep'],
  'names the first that is reachable': [
    '',
    { a: down(100), b: reachable, c: reachable },
    'to b after 0',
  ],
  'names none before one was seen': ['', { a: unknown, b: unknown }, 'none'],
  'names none that drains': ['', { a: draining(0), b: down(5) }, 'none'],
  'stays where it is while that is reachable, whichever comes first in the flags': [
    'b',
    { a: reachable, b: reachable },
    'keep',
  ],
  'stays where it is while that was not probed yet': ['a', { a: unknown, b: reachable }, 'keep'],
  'stays while it is unreachable for less than the operation timeout': [
    'a',
    { a: down(TIMEOUT - 1), b: reachable },
    'keep',
  ],
  'stays when it is unreachable for just the operation timeout': [
    'a',
    { a: down(TIMEOUT), b: reachable },
    'keep',
  ],
  'moves when it is unreachable for longer, and lets the calls of before end': [
    'a',
    { a: down(TIMEOUT + 1), b: reachable },
    'to b after 10000',
  ],
  'does not move by one probe, which this process may have been frozen in': [
    'a',
    { a: down(60_000, { probes: 1 }), b: reachable },
    'keep',
  ],
  'has nowhere to move while all are unreachable': [
    'a',
    { a: down(60_000), b: down(60_000) },
    'none',
  ],
  'does not move to one that drains': [
    'a',
    { a: down(60_000), b: draining(0), c: reachable },
    'to c after 10000',
  ],
  'waits for calls under way while it drains': ['a', { a: draining(1), b: reachable }, 'keep'],
  'moves at once when it is drained': ['a', { a: draining(0), b: reachable }, 'to b after 0'],
  'moves one operation timeout after it was shut with calls under way': [
    'a',
    { a: down(10, { wasDraining: true }), b: reachable },
    'to b after 10000',
  ],
  'lets a whole ownership pass where the active one was taken out of the flags': [
    'x',
    { a: reachable, b: reachable },
    'to a after 40000',
  ],
  'also where only one is left in the flags': ['x', { a: unknown }, 'to a after 40000'],
};

describe('electGateway', () => {
  for (const [title, [current, sights, expected]] of Object.entries(table)) {
    it(title, () => assert.equal(brief(elect(current, sights)), expected));
  }

  it('says why', () => {
    const choice = elect('a', { a: down(TIMEOUT + 1), b: reachable });
    assert.ok(choice.kind === 'move');
    assert.match(choice.why, /unreachable for 10001 ms: refused/);
  });
});

describe('afterProbe', () => {
  it('counts failures from the beginning of the first one', () => {
    const failed = { kind: 'failed', reason: 'refused' } as const;
    const first = afterProbe(reachable, failed, 100);
    assert.deepEqual(afterProbe(first, { ...failed, reason: 'later' }, 600), {
      kind: 'unreachable',
      sinceMs: 100,
      probes: 2,
      reason: 'later',
      wasDraining: false,
    });
  });

  it('forgets failures at the first answer', () => {
    assert.deepEqual(afterProbe(down(5_000), { kind: 'answered' }, NOW), reachable);
  });

  it('remembers through all failures that it was draining before', () => {
    const failed = { kind: 'failed', reason: 'refused' } as const;
    const gone = afterProbe(afterProbe(draining(2), failed, 1), failed, 2);
    assert.equal(gone.kind === 'unreachable' && gone.wasDraining, true);
  });

  it('takes one that answers again after a drain for a new one', () => {
    assert.deepEqual(afterProbe(draining(0), { kind: 'answered' }, NOW), reachable);
  });
});
