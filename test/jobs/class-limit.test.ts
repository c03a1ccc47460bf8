import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { ClassLimits, type Limit } from '#src/jobs/class-limit.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { claimKey, volumeKey } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const limit = (maxInFlight: number): Limit => ({ className: 'slow', maxInFlight });
const [A, B, C] = [claimKey('a'), claimKey('b'), claimKey('c')] as const;

describe('the limit of a class', () => {
  let redis: TestRedis;
  let limits: ClassLimits;
  let serial = 0;
  let driver = '';
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  const open = (keepMs: number): ClassLimits =>
    new ClassLimits({ redis: redis.redis, prefix: 'csi', driver, keepMs }, () => 0.5);
  beforeEach(() => {
    driver = `limits-${(serial += 1)}`;
    limits = open(60_000);
  });
  const isTaken = async (key: JobKey, of: Limit): Promise<boolean> =>
    (await limits.take(key, of)) === undefined;

  it('gives as many places as the class says, and others ask again', async () => {
    assert.equal(await isTaken(A, limit(2)), true);
    assert.equal(await isTaken(B, limit(2)), true);
    assert.equal(await limits.take(C, limit(2)), 4_500);
  });

  it('leaves a key its place until that is given back', async () => {
    await limits.take(A, limit(1));
    assert.equal(await isTaken(A, limit(1)), true);
    assert.equal(await isTaken(B, limit(1)), false);
    await limits.end(A, limit(1));
    assert.equal(await isTaken(B, limit(1)), true);
  });

  it('counts creations and deletions apart, and each class', async () => {
    await limits.take(A, limit(1));
    assert.equal(await isTaken(volumeKey('a'), limit(1)), true);
    assert.equal(await isTaken(B, { ...limit(1), className: 'other' }), true);
  });

  it('has the place of a key expire that does not run again', async () => {
    await open(50).take(A, limit(1));
    await until(() => isTaken(B, limit(1)), 'another one has it');
  });

  it('gives no place while the class is paused, and takes none away', async () => {
    await limits.take(A, limit(1));
    assert.equal(await isTaken(A, limit(0)), true);
    assert.equal(await isTaken(B, limit(0)), false);
    assert.equal(await isTaken(B, limit(2)), true);
  });

  it('leaves no key in Redis that does not expire', async () => {
    await limits.take(A, limit(1));
    const keys = await redis.redis.keys(`{csi}:class:claims.${driver}:*`);
    assert.equal(keys.length, 1);
    for (const key of keys) assert.ok((await redis.redis.pttl(key)) > 0, key);
  });
});
