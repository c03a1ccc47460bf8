import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { auditVolumes } from '#src/volumes/audit.ts';
import type { AuditInput } from '#src/volumes/audit.ts';

const HOUR_MS = 3_600_000;
const volumes = (...handles: string[]) => handles.map((handle) => ({ handle, sizeBytes: 1n }));
const run = (change: Partial<AuditInput>) =>
  auditVolumes({ volumes: [], known: new Set(), seenBefore: new Map(), nowMs: 10 * HOUR_MS, minAgeMs: HOUR_MS, ...change });

describe('auditVolumes', () => {
  it('reports nothing that it sees for the first time', () => {
    const { orphans, waiting, seen } = run({ volumes: volumes('a') });
    assert.deepEqual([orphans, waiting, [...seen]], [[], 1, [['a', 10 * HOUR_MS]]]);
  });

  it('reports what was unknown long enough ago, with the time', () => {
    const { orphans } = run({ volumes: volumes('a'), seenBefore: new Map([['a', 9 * HOUR_MS]]) });
    assert.deepEqual(orphans, [{ handle: 'a', sizeBytes: 1n, firstSeenMs: 9 * HOUR_MS }]);
  });

  it('does not report what was unknown too short a time ago', () => {
    assert.equal(run({ volumes: volumes('a'), seenBefore: new Map([['a', 9 * HOUR_MS + 1]]) }).orphans.length, 0);
  });

  it('never reports what a PV or a record names, and forgets that it was unknown', () => {
    const { orphans, seen } = run({ volumes: volumes('a'), known: new Set(['a']), seenBefore: new Map([['a', 0]]) });
    assert.deepEqual([orphans.length, seen.size], [0, 0]);
  });

  it('forgets what is gone from the driver', () => assert.equal(run({ seenBefore: new Map([['a', 0]]) }).seen.size, 0));

  it('puts the oldest first', () => {
    const seenBefore = new Map([
      ['young', 2],
      ['old', 1],
    ]);
    assert.deepEqual(
      run({ volumes: volumes('young', 'old'), seenBefore }).orphans.map(({ handle }) => handle),
      ['old', 'young'],
    );
  });
});
