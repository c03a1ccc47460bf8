import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { startLostRecords } from '#src/jobs/lost-records.ts';
import { silentLog } from '#src/runtime/log.ts';

describe('LostRecords', () => {
  const rewrite = async (
    rewriteLostRecords: () => Promise<readonly never[]>,
    isRedisOurs = true,
  ): Promise<void> => {
    const records = { rewriteLostRecords };
    const lost = startLostRecords({ records, isRedisOurs: () => isRedisOurs, log: silentLog });
    await lost.stop();
  };

  it('are written again from the start', async () => {
    let calls = 0;
    await rewrite(() => {
      calls += 1;
      return Promise.resolve([]);
    });
    assert.equal(calls, 1);
  });

  it('are left alone while Redis belongs to another cluster', async () => {
    await rewrite(() => assert.fail('nothing may be written'), false);
  });

  it('that can’t be checked are no error', async () => {
    await rewrite(() => Promise.reject(new Error('Redis is away')));
  });
});
