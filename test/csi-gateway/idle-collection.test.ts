import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { getHeapStatistics } from 'node:v8';
import { collectWhenIdle } from '#src/csi-gateway/idle-collection.ts';
import { until } from '../harness/csi-folder.ts';

const used = (): number => getHeapStatistics().used_heap_size;

/** Makes garbage that only a full collection takes away: it has survived two small ones. */
function litter(): number {
  let kept: unknown[] | undefined = Array.from({ length: 200_000 }, (_, i) => ({ i, text: `garbage ${i}` }));
  for (let round = 0; round < 20; round += 1) Array.from({ length: 50_000 }, (_, i) => ({ i }));
  const bytes = used();
  assert.equal(kept.length, 200_000);
  kept = undefined;
  return bytes;
}

describe('collectWhenIdle', () => {
  it('takes garbage away once nothing is under way', async () => {
    let isIdle = false;
    let asked = 0;
    const stop = collectWhenIdle(() => {
      asked += 1;
      return isIdle;
    });
    const littered = litter();
    await until('it looked', () => asked > 0);
    isIdle = true;
    await until('the garbage is gone', () => used() < littered - 8_000_000, 8_000);
    stop();
  });

  it('leaves no gc() for others to call', () => assert.equal('gc' in globalThis, process.execArgv.includes('--expose-gc')));
});
