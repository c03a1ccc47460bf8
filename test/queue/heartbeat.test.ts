import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { DELAYED_SCORE_PER_MS, queueRoot } from '#src/queue/bullmq-layout.ts';
import { type Heartbeat, startHeartbeat } from '#src/queue/heartbeat.ts';
import { heartbeatKey, queueName } from '#src/queue/key-names.ts';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

const PLACE = { prefix: 'csi', queue: queueName('claim', 'd.example') };
const DELAYED = `${queueRoot(PLACE.prefix, PLACE.queue)}delayed`;
const HEARTBEAT = heartbeatKey(PLACE.prefix, PLACE.queue);

describe('a heartbeat', () => {
  let redis: TestRedis;
  let link: RedisLink;
  let heartbeat: Heartbeat;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(async () => {
    await redis.redis.flushall();
    await redis.redis.zadd(DELAYED, 1_000_000 * DELAYED_SCORE_PER_MS, 'job');
    link = openRedis({ url: redis.url, role: 'worker', log: silentLog });
    heartbeat = startHeartbeat(link, PLACE, silentLog);
  });
  afterEach(() => {
    heartbeat.stop();
    link.close();
  });
  /** By how much a heartbeat extends the delay of a job, in whole seconds. */
  const extensionS = async (last: string): Promise<number> => {
    await redis.redis.set(HEARTBEAT, last);
    await heartbeat.write();
    const score = Number(await redis.redis.zscore(DELAYED, 'job'));
    return Math.round((score / DELAYED_SCORE_PER_MS - 1_000_000) / 1_000);
  };
  const ago = (seconds: number): number => Date.now() - seconds * 1_000;

  it('extends delays by the time since the last one', async () => {
    assert.equal(await extensionS(`${ago(600)} ${ago(600)}`), 600);
  });

  it('extends no delay after a second', async () => {
    assert.equal(await extensionS(`${ago(1)} ${ago(1)}`), 0);
  });

  it('extends no delay when Redis’ clock was set forward', async () => {
    assert.equal(await extensionS(`${ago(600)} ${ago(1)}`), 0);
  });

  it('extends no delay when the last one came from a worker whose clock is behind', async () => {
    assert.equal(await extensionS(`${ago(1)} ${ago(600)}`), 0);
  });

  it('reads one of an earlier version, which has only Redis’ time', async () => {
    assert.equal(await extensionS(`${ago(600)}`), 600);
  });
});
