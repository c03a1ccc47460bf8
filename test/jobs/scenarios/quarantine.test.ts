import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import type { VolumeRecords } from '#src/records/volume-record.ts';
import { DRIVER, openRig, type Rig } from '../rig.ts';

describe('claims during a quarantine', () => {
  let rig: Rig;
  let records: VolumeRecords;
  before(async () => {
    rig = await openRig();
  });
  after(() => rig.close());
  beforeEach(() => rig.reset());
  const begin = async (quarantineMs: number): Promise<void> => {
    const store = redisDataEpochStore(rig.redis, 'csi', DRIVER);
    await store.begin({ id: 'after the loss', quarantineMs, sequence: 0 });
    // Those of a process that has read nothing before the loss.
    records = rig.newRecords();
  };

  it('are put off without a request, once a worker was told of it', async () => {
    await begin(60_000);
    const [first, second] = [await rig.claim(), await rig.claim()];
    assert.equal((await rig.provision(first, { records })).kind, 'later');
    rig.cluster.api.requests.reset();
    const outcome = await rig.provision(second, { records });
    assert.deepEqual(rig.cluster.api.requests.snapshot(), {});
    assert.ok(outcome.kind === 'later' && /Redis lost its data/.test(outcome.reason));
    const { delayMs = 0 } = outcome;
    assert.ok(delayMs > 50_000 && delayMs <= 60_000, `${delayMs}`);
  });

  it('are provisioned when it is over', async () => {
    await begin(300);
    const claim = await rig.claim();
    const outcome = await rig.provision(claim, { records });
    assert.ok(outcome.kind === 'later' && outcome.delayMs !== undefined);
    await rig.parts.clock.sleep(outcome.delayMs + 1);
    assert.equal((await rig.provision(claim, { records })).kind, 'done');
  });
});
