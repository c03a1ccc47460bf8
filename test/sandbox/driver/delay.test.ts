import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { Controller } from '#src/csi/generated/csi_pb.ts';
import type { Clock } from '#src/runtime/clock.ts';
import { volumeRequest } from '../../harness/csi-gateway.ts';
import { type DriverUnderTest, openDriver } from '../../harness/sample-driver.ts';
import { until } from '../../harness/until.ts';

const { createVolume, deleteVolume, controllerModifyVolume, createSnapshot, deleteSnapshot } =
  Controller.method;

describe('the delay of the sample driver', () => {
  let d: DriverUnderTest;
  /** Number of delays so far. */
  let delays = 0;
  let sleep: Clock['sleep'];
  const make = async (name: string): Promise<string> =>
    (await d.ask(createVolume, volumeRequest(name))).volume?.volumeId ?? '';
  const take = async (name: string, sourceVolumeId: string): Promise<string> =>
    (await d.ask(createSnapshot, { name, sourceVolumeId })).snapshot?.snapshotId ?? '';
  beforeEach(async () => {
    delays = 0;
    sleep = () => Promise.resolve();
    const clock: Clock = {
      nowMs: () => 1_700_000_000_000,
      sleep: (ms) => {
        delays += 1;
        return sleep(ms);
      },
    };
    d = await openDriver({ delayMs: 1_000, clock });
  });
  afterEach(() => d.close());

  it('applies to every creation, change and deletion', async () => {
    const volumeId = await make('v');
    const snapshotId = await take('s', volumeId);
    await d.ask(controllerModifyVolume, { volumeId, mutableParameters: { iops: '1' } });
    await d.ask(deleteSnapshot, { snapshotId });
    await d.ask(deleteVolume, { volumeId });
    assert.equal(delays, 5);
  });

  it('does not apply to calls that change nothing', async () => {
    const volumeId = await make('v');
    const snapshotId = await take('s', volumeId);
    assert.equal(await make('v'), volumeId);
    assert.equal(await take('s', volumeId), snapshotId);
    assert.match(
      await d.refusal(createVolume, {
        ...volumeRequest('v'),
        capacityRange: { requiredBytes: 2n ** 50n },
      }),
      /^AlreadyExists/,
    );
    assert.match(
      await d.refusal(createSnapshot, { name: 's', sourceVolumeId: 'other' }),
      /^AlreadyExists/,
    );
    await d.ask(deleteVolume, { volumeId: 'nothing' });
    await d.ask(deleteSnapshot, { snapshotId: 'nothing' });
    assert.equal(delays, 2, 'only the two creations');
  });

  it('blocks the creation of a volume that is being deleted', async () => {
    const volumeId = await make('v');
    const snapshotId = await take('s', volumeId);
    let finish: () => void = () => undefined;
    const finished = new Promise<void>((resolve) => (finish = resolve));
    sleep = () => finished;
    const deletions = Promise.all([
      d.ask(deleteSnapshot, { snapshotId }),
      d.ask(deleteVolume, { volumeId }),
    ]);
    await until(() => delays === 4, 'both deletions are under way');
    assert.match(await d.refusal(createVolume, volumeRequest('v')), /^Aborted/);
    assert.match(
      await d.refusal(createSnapshot, { name: 's', sourceVolumeId: volumeId }),
      /^Aborted/,
    );
    finish();
    await deletions;
    assert.notEqual(await make('v'), volumeId);
  });
});
