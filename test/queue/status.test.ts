import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';

import { shownReason } from '#src/queue/outcome.ts';
import { clearStatus, noteStatus, readStatus, type StatusTarget } from '#src/queue/status.ts';

import { claimKey } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

describe('a reason', () => {
  it('is kept and shown up to a length that nobody reads', () => {
    assert.equal(shownReason('full'), 'full');
    assert.equal(shownReason('x'.repeat(100_000)).length, 8_192);
  });
});

describe('the hold of a key', () => {
  let redis: TestRedis;
  let serial = 0;
  let target: StatusTarget;
  const first = { scope: 'gold', untilMs: 60_000 };

  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(async () => {
    const key = claimKey(`held-${(serial += 1)}`);
    target = { prefix: 'csi', driver: 'd.example', uid: key.uid, key };
    await noteStatus(redis.redis, target, {
      outcome: 'retry',
      reason: 'infeasible',
      atMs: 0,
      holdOff: first,
    });
  });
  const hold = async () => (await readStatus(redis.redis, target))?.holdOff;

  it('ends when it was to end at first, however many runs did not get as far as trying (Q-54)', async () => {
    for (const atMs of [10, 20])
      await noteStatus(redis.redis, target, { outcome: 'later', reason: 'infeasible', atMs });
    assert.deepEqual(await hold(), first);
  });

  it('begins anew with the run that tried again', async () => {
    const second = { scope: 'gold', untilMs: 120_000 };
    await noteStatus(redis.redis, target, {
      outcome: 'retry',
      reason: 'infeasible',
      atMs: 60_000,
      holdOff: second,
    });
    assert.deepEqual(await hold(), second);
  });

  it('stays when a run fails before it asks the driver, and is gone with the status', async () => {
    await noteStatus(redis.redis, target, { outcome: 'retry', reason: 'Unauthorized', atMs: 10 });
    assert.deepEqual(await hold(), first);
    await clearStatus(redis.redis, target);
    assert.equal(await hold(), undefined);
  });
});
