import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  healthAfterProbe,
  decideFailover,
  type FailoverDecision,
  type GatewayHealth,
} from '#src/ingest/decide-failover.ts';

const NOW = 1_000_000;
const TIMEOUT = 10_000;
const OWNERSHIP = 40_000;

const reachable: GatewayHealth = { kind: 'reachable' };
const unknown: GatewayHealth = { kind: 'unknown' };
const draining = (running: number): GatewayHealth => ({ kind: 'draining', running });
const down = (ms: number, more: { probes?: number } = {}): GatewayHealth => ({
  kind: 'unreachable',
  sinceMs: NOW - ms,
  probes: more.probes ?? 5,
  reason: 'refused',
});

function decide(active: string, health: Record<string, GatewayHealth>): FailoverDecision {
  return decideFailover({
    health: new Map(Object.entries(health)),
    active,
    nowMs: NOW,
    timeoutMs: TIMEOUT,
    doubtMs: OWNERSHIP,
  });
}

/** 'keep', 'none', or 'to b after 10000'. */
function describeDecision(decision: FailoverDecision): string {
  return decision.kind === 'move' ? `to ${decision.to} after ${decision.waitMs}` : decision.kind;
}

const table: Record<
  string,
  [active: string, health: Record<string, GatewayHealth>, expected: string]
> = {
  'names a single gateway at once, before it was probed': ['', { a: unknown }, 'to a after 0'],
  'names a single gateway even if it is unreachable': ['', { a: down(60_000) }, 'to a after 0'],
  'has no other gateway to move to if the single one is unreachable': [
    'a',
    { a: down(60_000) },
    'none',
  ],
  'keeps a single gateway while it drains': ['a', { a: draining(3) }, 'keep'],
  'names the first reachable gateway': [
    '',
    { a: down(100), b: reachable, c: reachable },
    'to b after 0',
  ],
  'names none before one was probed': ['', { a: unknown, b: unknown }, 'none'],
  'names no gateway that drains': ['', { a: draining(0), b: down(5) }, 'none'],
  'keeps the active one while it is reachable, whatever the order in --gateway': [
    'b',
    { a: reachable, b: reachable },
    'keep',
  ],
  'keeps the active one while it was not probed yet': ['a', { a: unknown, b: reachable }, 'keep'],
  'keeps the active one while it is unreachable for less than --timeout': [
    'a',
    { a: down(TIMEOUT - 1), b: reachable },
    'keep',
  ],
  'keeps the active one when it is unreachable for exactly --timeout': [
    'a',
    { a: down(TIMEOUT), b: reachable },
    'keep',
  ],
  'moves when it is unreachable for longer, after one more --timeout': [
    'a',
    { a: down(TIMEOUT + 1), b: reachable },
    'to b after 10000',
  ],
  'does not move after a single failed probe: this process may have been frozen': [
    'a',
    { a: down(60_000, { probes: 1 }), b: reachable },
    'keep',
  ],
  'has no gateway to move to while all are unreachable': [
    'a',
    { a: down(60_000), b: down(60_000) },
    'none',
  ],
  'does not move to a gateway that drains': [
    'a',
    { a: down(60_000), b: draining(0), c: reachable },
    'to c after 10000',
  ],
  'keeps the active one while it drains with calls under way': [
    'a',
    { a: draining(1), b: reachable },
    'keep',
  ],
  'moves at once when the active one is drained': [
    'a',
    { a: draining(0), b: reachable },
    'to b after 0',
  ],
  'moves after one ownership period when the active one was removed from --gateway': [
    'x',
    { a: reachable, b: reachable },
    'to a after 40000',
  ],
  'moves to a single remaining gateway after the same time': [
    'x',
    { a: unknown },
    'to a after 40000',
  ],
};

describe('decideFailover', () => {
  for (const [title, [active, health, expected]] of Object.entries(table)) {
    it(title, () => assert.equal(describeDecision(decide(active, health)), expected));
  }

  it('gives the reason for a move', () => {
    const decision = decide('a', { a: down(TIMEOUT + 1), b: reachable });
    assert.ok(decision.kind === 'move');
    assert.match(decision.why, /unreachable for 10001 ms: refused/);
  });
});

describe('healthAfterProbe', () => {
  it('counts the time of failures from the start of the first failed probe', () => {
    const failed = { kind: 'failed', reason: 'refused' } as const;
    const first = healthAfterProbe(reachable, failed, 100);
    assert.deepEqual(healthAfterProbe(first, { ...failed, reason: 'later' }, 600), {
      kind: 'unreachable',
      sinceMs: 100,
      probes: 2,
      reason: 'later',
    });
  });

  it('forgets failures after an answer', () => {
    assert.deepEqual(healthAfterProbe(down(5_000), { kind: 'reachable' }, NOW), reachable);
  });

  it('leaves a gateway drained that has said so and is gone', () => {
    const failed = { kind: 'failed', reason: 'refused' } as const;
    assert.deepEqual(healthAfterProbe(draining(0), failed, NOW), draining(0));
  });

  it('takes a gateway that answers again after a drain as reachable', () => {
    assert.deepEqual(healthAfterProbe(draining(0), { kind: 'reachable' }, NOW), reachable);
  });
});
