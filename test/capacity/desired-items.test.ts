import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DesiredItems } from '#src/capacity/desired-items.ts';
import type { CapacityItem } from '#src/capacity/items.ts';

describe('the desired values of storage capacity', () => {
  const items = Array.from({ length: 20_000 }, (_, i): CapacityItem => ({
    className: `class-${i % 4}`,
    segment: [['node', `node-${Math.floor(i / 4)}`]],
  }));

  it('are found by their segment, in all classes', () => {
    const desired = new DesiredItems();
    desired.replace(items, 0);
    assert.deepEqual(desired.ofSegment([['node', 'node-7']]), items.slice(28, 32));
    desired.replace(items.slice(29), 1);
    assert.deepEqual(desired.ofSegment([['node', 'node-7']]), items.slice(29, 32));
    assert.deepEqual(desired.ofSegment([['node', 'none']]), []);
  });

  it('are found in a moment for the hints that a busy cluster leaves', () => {
    const desired = new DesiredItems();
    desired.replace(items, 0);
    const startMs = performance.now();
    for (const { segment } of items.slice(0, 1_000)) desired.ofSegment(segment);
    const tookMs = performance.now() - startMs;
    assert.ok(tookMs < 500, `${tookMs} ms`);
  });
});
