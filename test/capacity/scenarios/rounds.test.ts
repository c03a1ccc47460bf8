import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { until } from '../../harness/until.ts';
import { CapacityBed, GI } from './capacity-bed.ts';

const POLL_MS = 2_000;

describe('storage capacity', () => {
  const VALUES_HERE = 60;
  let bed: CapacityBed;
  before(async () => {
    bed = await CapacityBed.open();
  });
  after(() => bed.close());

  it('is neither lost nor doubled when the leader dies in a poll', async () => {
    const first = await bed.newStage();
    const twin = first.twin();
    let leader = first;
    let nowMs = Date.now();
    const shared = { pollMs: POLL_MS, nowMs: () => nowMs };
    for (let i = 0; i < VALUES_HERE; i += 1) await first.addNode(`rack-${i}`, { rack: `${i}` });
    await first.addClass('a');
    await first.start({ ...shared, isLeading: () => leader === first });
    await twin.start({ ...shared, isLeading: () => leader === twin });
    bed.answer = () => ({ availableCapacity: 2n * GI });
    const before = first.calls().length;
    nowMs += POLL_MS;
    await until(() => first.calls().length > before + 5, 'the poll has begun');
    leader = twin;
    await twin.settle();
    const objects = await first.objects();
    assert.ok(objects.every(({ capacity }) => capacity === '2Gi'));
    const racks = objects.map(({ nodeTopology }) => nodeTopology?.matchLabels?.['rack']);
    assert.equal(racks.length, VALUES_HERE);
    assert.equal(new Set(racks).size, VALUES_HERE);
    await twin.close();
    await first.close();
  });
});
