import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { startLostRecords } from '#src/records/lost-records.ts';
import { silentLog } from '#src/runtime/log.ts';

describe('lost records', () => {
  const checksUntilStopped = async (isRedisOurs: boolean): Promise<number> => {
    let checks = 0;
    const rewriteLostRecords = () => {
      checks += 1;
      return Promise.resolve([]);
    };
    await startLostRecords(
      { rewriteLostRecords, leftOpen: 0 },
      () => isRedisOurs,
      silentLog,
    ).stop();
    return checks;
  };

  it('are written again from the start', async () =>
    assert.equal(await checksUntilStopped(true), 1));

  it('are left alone while Redis belongs to another cluster', async () =>
    assert.equal(await checksUntilStopped(false), 0));
});
