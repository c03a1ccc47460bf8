import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { until } from '../../harness/until.ts';
import { CapacityBed, GI, type Stage } from './capacity-bed.ts';

const SEGMENTS = 200;
const CLASSES = 5;
const VALUES = SEGMENTS * CLASSES;
const POLL_MS = 2_000;

describe('storage capacity of 200 segments and 5 classes', () => {
  let bed: CapacityBed;
  let stage: Stage;
  let nowMs = Date.now();
  const freed = new Set<string>();
  /** Requests that changed an object. */
  const writes = (): number =>
    Object.entries(bed.cluster.api.requests.snapshot())
      .filter(([name]) => /csistoragecapacities/.test(name) && !/list|watch|get/i.test(name))
      .reduce((sum, [, count]) => sum + count, 0);

  before(async () => {
    bed = await CapacityBed.open();
    stage = await bed.newStage();
    bed.answer = ({ accessibleTopology }) => ({
      availableCapacity: freed.has(accessibleTopology?.segments['rack'] ?? '') ? 2n * GI : GI,
    });
    const racks = Array.from({ length: SEGMENTS }, (_, i) => `rack-${i}`);
    await Promise.all(racks.map((rack) => stage.addNode(rack, { rack })));
    for (let i = 0; i < CLASSES; i += 1) await stage.addClass(`class-${i}`);
  });
  after(async () => {
    await stage.close();
    await bed.close();
  });

  it('is asked for 1,000 times at the start, and makes 1,000 objects', async () => {
    await stage.start({ pollMs: POLL_MS, nowMs: () => nowMs, threads: 8 });
    await until(() => writes() >= VALUES, 'all are published');
    await stage.settle();
    assert.equal((await stage.objects()).length, VALUES);
    assert.equal(stage.calls().length, VALUES);
    assert.equal(writes(), VALUES);
  });

  it('is asked for 1,000 times in a poll, of which 15 that have changed are written', async () => {
    for (const rack of ['rack-7', 'rack-77', 'rack-177']) freed.add(rack);
    const before = { calls: stage.calls().length, writes: writes() };
    nowMs += POLL_MS;
    await until(() => stage.calls().length >= before.calls + VALUES, 'all are asked for');
    await stage.settle();
    assert.equal(stage.calls().length, before.calls + VALUES);
    assert.equal(writes(), before.writes + 3 * CLASSES);
  });
});

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
    await twin.start({ ...shared, isLeading: () => leader === twin, withoutJobs: true });
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
