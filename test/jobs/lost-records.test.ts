import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { startLostRecords } from '#src/jobs/lost-records.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { until } from '../harness/until.ts';

describe('LostRecords', () => {
  const rewrite = async (
    rewriteLostRecords: () => Promise<readonly never[]>,
    isRedisOurs = true,
  ): Promise<void> => {
    const records = { rewriteLostRecords, leftOpen: 0 };
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

  it('are checked again two seconds after a check that took long', async () => {
    let checks = 0;
    const lost = startLostRecords({
      records: {
        leftOpen: 0,
        rewriteLostRecords: async () => {
          checks += 1;
          if (checks === 1) await systemClock.sleep(500);
          return [];
        },
      },
      isRedisOurs: () => true,
      log: silentLog,
    });
    await until(() => checks === 2, 'the second check', 10_000);
    await lost.stop();
  });

  it('are never checked twice at once', async () => {
    let underWay = 0;
    let checks = 0;
    const lost = startLostRecords({
      records: {
        leftOpen: 0,
        rewriteLostRecords: async () => {
          underWay += 1;
          assert.equal(underWay, 1);
          await systemClock.sleep(20);
          underWay -= 1;
          checks += 1;
          return [];
        },
      },
      isRedisOurs: () => true,
      log: silentLog,
    });
    await until(() => {
      lost.checkNow();
      return checks === 3;
    }, 'three checks');
    await lost.stop();
  });

  it('that can’t be checked are no error', async () => {
    await rewrite(() => Promise.reject(new Error('Redis is away')));
  });
});
