import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import type { JobKey } from '#src/queue/contract.ts';
import { shownReason } from '#src/queue/outcome.ts';
import { clearStatus, readStatus, type StatusPlace, writeStatus } from '#src/queue/status.ts';
import { claimKey } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

let redis: TestRedis;
before(async () => {
  redis = await startTestRedis();
});
after(() => redis.close());

describe('a reason', () => {
  it('that has lasted for a second is told then, once', async () => {
    const target = { prefix: 'csi', driver: 'd.example', key: claimKey('told') };
    const told: string[] = [];
    const write = async (reason: string, atMs: number, newsAfterMs = 1_000): Promise<void> => {
      const status = { outcome: 'later', reason, atMs, newsAfterMs } as const;
      if ((await writeStatus(redis.redis, target, status)).isNews) told.push(`${reason} ${atMs}`);
    };
    for (const atMs of [0, 500, 1_000, 1_500]) await write('not forwarded', atMs);
    for (const atMs of [2_000, 2_999]) await write('the gateway is full', atMs);
    for (const atMs of [4_000, 6_000]) await write('refused', atMs, 0);
    assert.deepEqual(told, ['not forwarded 1000', 'refused 4000']);
  });

  it('is cut after 2,000 characters', () => {
    assert.equal(shownReason('full'), 'full');
    assert.equal(shownReason('x'.repeat(5_000)), `${'x'.repeat(2_000)}… (5000 characters)`);
  });
});

describe('an infeasible back-off', () => {
  let serial = 0;
  let target: StatusPlace & { readonly key: JobKey };
  const first = { scope: 'gold', untilMs: 60_000 };

  beforeEach(async () => {
    const key = claimKey(`data-${(serial += 1)}`);
    target = { prefix: 'csi', driver: 'd.example', key };
    await writeStatus(redis.redis, target, {
      outcome: 'retry',
      reason: 'infeasible',
      atMs: 0,
      infeasible: first,
    });
  });
  const infeasible = async () => (await readStatus(redis.redis, target))?.infeasible;

  it('is not extended by runs that did not reach the driver (Q-54)', async () => {
    for (const atMs of [10, 20])
      await writeStatus(redis.redis, target, { outcome: 'later', reason: 'infeasible', atMs });
    assert.deepEqual(await infeasible(), first);
  });

  it('is replaced by the infeasible back-off of a later refusal', async () => {
    const second = { scope: 'gold', untilMs: 120_000 };
    await writeStatus(redis.redis, target, {
      outcome: 'retry',
      reason: 'infeasible',
      atMs: 60_000,
      infeasible: second,
    });
    assert.deepEqual(await infeasible(), second);
  });

  it('stays when a run fails before it asks the driver, and goes with the status', async () => {
    await writeStatus(redis.redis, target, { outcome: 'retry', reason: 'Unauthorized', atMs: 10 });
    assert.deepEqual(await infeasible(), first);
    await clearStatus(redis.redis, target);
    assert.equal(await infeasible(), undefined);
  });
});
