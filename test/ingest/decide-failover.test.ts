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
const DOUBT = 40_000;

const reachable: GatewayHealth = { kind: 'reachable' };
const unknown: GatewayHealth = { kind: 'unknown' };
const draining = (running: number): GatewayHealth => ({ kind: 'draining', running });
const down = (ms: number, probes = 5): GatewayHealth => ({
  kind: 'unreachable',
  sinceMs: NOW - ms,
  probes,
  reason: 'refused',
});

function decide(active: string, health: Record<string, GatewayHealth>): FailoverDecision {
  return decideFailover({
    health: new Map(Object.entries(health)),
    active,
    nowMs: NOW,
    timeoutMs: TIMEOUT,
    doubtMs: DOUBT,
  });
}

/** 'keep', 'none', or 'to b after 10000'. */
function describeDecision(decision: FailoverDecision): string {
  return decision.kind === 'move' ? `to ${decision.to} after ${decision.waitMs}` : decision.kind;
}

const both = { a: reachable, b: reachable };
const table: readonly [string, string, Record<string, GatewayHealth>, string][] = [
  ['names a single gateway at once, before it was probed', '', { a: unknown }, 'to a after 0'],
  ['names a single gateway even if it is unreachable', '', { a: down(60_000) }, 'to a after 0'],
  ['has no successor of a single one that is unreachable', 'a', { a: down(60_000) }, 'none'],
  ['keeps a single gateway while it drains', 'a', { a: draining(3) }, 'keep'],
  ['names the first reachable gateway', '', { ...both, a: down(100) }, 'to b after 0'],
  ['names none before one was probed', '', { a: unknown, b: unknown }, 'none'],
  ['names no gateway that drains', '', { a: draining(0), b: down(5) }, 'none'],
  ['keeps the active one while it is reachable, in any order', 'b', both, 'keep'],
  ['keeps the active one before it was probed', 'a', { ...both, a: unknown }, 'keep'],
  ['keeps it while it is unreachable for --timeout', 'a', { ...both, a: down(TIMEOUT) }, 'keep'],
  ['then moves after one more --timeout', 'a', { ...both, a: down(10_001) }, 'to b after 10000'],
  [
    'keeps it after one failed probe: this process may have been frozen',
    'a',
    { ...both, a: down(60_000, 1) },
    'keep',
  ],
  ['has no successor if all are unreachable', 'a', { a: down(60_000), b: down(60_000) }, 'none'],
  [
    'does not move to a gateway that drains',
    'a',
    { a: down(60_000), b: draining(0), c: reachable },
    'to c after 10000',
  ],
  ['keeps it while it drains with calls under way', 'a', { ...both, a: draining(1) }, 'keep'],
  ['moves at once when it has drained', 'a', { ...both, a: draining(0) }, 'to b after 0'],
  [
    'moves from one that is not in --gateway after the time of doubt',
    'x',
    both,
    'to a after 40000',
  ],
  ['moves to a single remaining one after that time', 'x', { a: unknown }, 'to a after 40000'],
];

describe('decideFailover', () => {
  for (const [title, active, health, expected] of table)
    it(title, () => assert.equal(describeDecision(decide(active, health)), expected));

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
    const second = healthAfterProbe(first, { ...failed, reason: 'later' }, 600);
    const expected = { kind: 'unreachable', sinceMs: 100, probes: 2, reason: 'later' };
    assert.deepEqual(second, expected);
  });

  const failed = { kind: 'failed', reason: 'refused' } as const;
  for (const [title, before, probe, after] of [
    ['forgets failures after an answer', down(5_000), reachable, reachable],
    ['leaves a gateway drained that is gone', draining(0), failed, draining(0)],
    ['takes one that answers again after a drain as reachable', draining(0), reachable, reachable],
  ] as const)
    it(title, () => assert.deepEqual(healthAfterProbe(before, probe, NOW), after));
});
