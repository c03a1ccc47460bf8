import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { systemClock } from '#src/runtime/clock.ts';
import { configMaps } from '../../sandbox/api/kinds/core.ts';
import { until } from '../harness/until.ts';
import { Installation, NAMES } from './installation.ts';

describe('the processes, when the API server fails', () => {
  let sutler: Installation;
  before(async () => {
    sutler = await Installation.open();
  });
  after(async () => {
    assert.deepEqual(await sutler.close(), []);
  });

  it('miss no claim and list nothing when all watches are cut ten times', async () => {
    const before = { lists: sutler.lists, pids: sutler.pids() };
    for (let round = 0; round < 10; round += 1) {
      sutler.cluster.api.stopWatches('cut');
      sutler.makeClaims(1);
      await systemClock.sleep(50);
    }
    await sutler.allBound();
    assert.equal(sutler.lists, before.lists);
    assert.deepEqual(sutler.pids(), before.pids);
  });

  it('list once per watch when the server answers 410', async () => {
    await sutler.allWatch();
    const before = sutler.lists;
    const stopped = sutler.cluster.api.stopWatches('expire');
    assert.ok(stopped >= 4);
    sutler.makeClaims(2);
    await sutler.allBound();
    await sutler.allWatch();
    assert.ok(
      sutler.lists - before <= stopped,
      `${sutler.lists - before} lists for ${stopped} watches`,
    );
  });

  it('see a claim that is made after its data was restored from a backup', async () => {
    await sutler.allWatch();
    const { api } = sutler.cluster;
    const restore = api.store.backUp();
    for (let n = 0; n < 1_000; n += 1)
      api.operations.create(configMaps, 'default', { metadata: { name: `lost-${n}` } });
    // Each watch ends with a bookmark of the version that is lost.
    api.stopWatches('end');
    restore();
    sutler.makeClaims(1);
    await sutler.allBound();
  });

  it('go on after two seconds without it, without a restart or a list', async () => {
    const old = sutler.makeClaims(3);
    await sutler.allBound();
    await sutler.allWatch();
    const before = { lists: sutler.lists, pids: sutler.pids() };
    const back = sutler.cluster.api.faults.inject({ action: { kind: 'reset' }, times: Infinity });
    try {
      sutler.cluster.api.stopWatches('cut');
      sutler.makeClaims(3);
      sutler.deleteClaims(old);
      await systemClock.sleep(2_000);
      for (const name of ['jobs', 'ingest'] as const) {
        const { status, text } = await sutler.readiness(name);
        assert.ok(status !== 200 && text.includes('kubernetes'), `${name} says ${status} ${text}`);
      }
    } finally {
      back();
    }
    await sutler.allBound();
    assert.deepEqual(sutler.pids(), before.pids);
    assert.equal(
      sutler.lists,
      before.lists,
      JSON.stringify(sutler.cluster.api.requests.snapshot()),
    );
    // A watch that was cut so often backs off for long before it is opened again.
    for (const name of NAMES)
      await until(
        async () => (await sutler.readiness(name)).status === 200,
        `${name} is ready`,
        90_000,
      );
  });
});
