import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import {
  type ChangeNotice,
  type NoticeStream,
  noticeStreamKey,
  redisNoticeStream,
} from '#src/webhooks/notices.ts';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { redisUsers, urlOf } from '../harness/redis-users.ts';
import { until } from '../harness/until.ts';

const KEY = noticeStreamKey('csi');
const WAIT_MS = 20;

function claimNotice(name: string): ChangeNotice {
  return { resource: 'persistentvolumeclaims', namespace: 'shop', name, isEarly: false };
}

describe('the stream of notices, as the user of ingest', () => {
  let redis: TestRedis;
  const links: RedisLink[] = [];
  let writer: NoticeStream;
  let reader: NoticeStream;
  const open = async (): Promise<NoticeStream> => {
    const link = openRedis({ url: urlOf('ingest', redis.url), role: 'plain', log: silentLog });
    links.push(link);
    await until(() => link.trouble === undefined, 'Redis is usable');
    return redisNoticeStream(link.redis, 'csi');
  };
  before(async () => {
    redis = await startTestRedis({ settings: redisUsers() });
    writer = await open();
    reader = await open();
  });
  after(async () => {
    for (const link of links) link.close();
    await redis.close();
  });
  beforeEach(() => redis.redis.flushall());

  it('brings notices as they were sent, in order', async () => {
    const start = await reader.markEnd();
    const sent: readonly ChangeNotice[] = [
      { ...claimNotice('orders-db'), isEarly: true },
      { resource: 'persistentvolumes', namespace: '', name: 'pvc-1', isEarly: false },
      { ...claimNotice('early'), namespace: 'name' },
    ];
    await writer.appendNotices(sent);
    const { notices, isGap } = await reader.readNotices(start, WAIT_MS);
    assert.deepEqual(notices, sent);
    assert.equal(isGap, false);
  });

  it('goes on where the reader stopped', async () => {
    const start = await reader.markEnd();
    await writer.appendNotices([claimNotice('first')]);
    const { position } = await reader.readNotices(start, WAIT_MS);
    await writer.appendNotices([claimNotice('second')]);
    const { notices, isGap } = await reader.readNotices(position, WAIT_MS);
    assert.deepEqual(notices, [claimNotice('second')]);
    assert.equal(isGap, false);
  });

  it('has no notice after its end, and no gap', async () => {
    await writer.appendNotices([claimNotice('before')]);
    const start = await reader.markEnd();
    assert.deepEqual(await reader.readNotices(start, WAIT_MS), {
      notices: [],
      position: start,
      isGap: false,
    });
  });

  it('ends the wait of a reader at the first notice', async () => {
    const start = await reader.markEnd();
    const beganMs = performance.now();
    const reading = reader.readNotices(start, 4_000);
    await writer.appendNotices([claimNotice('awaited')]);
    assert.deepEqual((await reading).notices, [claimNotice('awaited')]);
    assert.ok(performance.now() - beganMs < 3_000);
  });

  it('adds many notices with one command from outside', async () => {
    const start = await reader.markEnd();
    await redis.redis.config('RESETSTAT');
    const many = Array.from({ length: 500 }, (_, n) => claimNotice(`claim-${n}`));
    await writer.appendNotices(many);
    const { evalsha = 0, eval: first = 0 } = await redis.commands();
    // Two if this Redis did not have the script yet.
    assert.ok(evalsha + first <= 2, `${evalsha + first} commands`);
    assert.deepEqual((await reader.readNotices(start, WAIT_MS)).notices, many);
  });

  it('sends nothing for no notices', async () => {
    await writer.appendNotices([]);
    assert.equal(await redis.redis.exists(KEY), 0);
  });

  it('is read in parts', async () => {
    const start = await reader.markEnd();
    await writer.appendNotices(Array.from({ length: 1_500 }, (_, n) => claimNotice(`claim-${n}`)));
    const first = await reader.readNotices(start, WAIT_MS);
    const second = await reader.readNotices(first.position, WAIT_MS);
    assert.equal(first.notices.length, 1_000);
    assert.equal(second.notices.length, 500);
  });

  it('has a gap if the position was trimmed away, and none from there on', async () => {
    const start = await reader.markEnd();
    for (let round = 0; round < 11; round += 1)
      await writer.appendNotices(
        Array.from({ length: 1_000 }, (_, n) => claimNotice(`claim-${n}`)),
      );
    assert.ok((await redis.redis.xlen(KEY)) < 10_500);
    const first = await reader.readNotices(start, WAIT_MS);
    assert.equal(first.isGap, true);
    assert.equal(first.notices.length, 1_000);
    assert.equal((await reader.readNotices(first.position, WAIT_MS)).isGap, false);
  });

  it('has a gap if Redis was emptied, and none from there on', async () => {
    const start = await reader.markEnd();
    await redis.redis.flushall();
    const first = await reader.readNotices(start, WAIT_MS);
    assert.equal(first.isGap, true);
    await writer.appendNotices([claimNotice('after')]);
    const { notices, isGap } = await reader.readNotices(first.position, WAIT_MS);
    assert.deepEqual(notices, [claimNotice('after')]);
    assert.equal(isGap, false);
  });

  it('has a gap if Redis was emptied and filled again', async () => {
    const start = await reader.markEnd();
    await writer.appendNotices([claimNotice('lost')]);
    await redis.redis.flushall();
    await writer.appendNotices([claimNotice('kept')]);
    const { notices, isGap } = await reader.readNotices(start, WAIT_MS);
    assert.deepEqual(notices, [claimNotice('kept')]);
    assert.equal(isGap, true);
  });

  it('skips entries that another version may have written', async () => {
    const start = await reader.markEnd();
    await redis.redis.xadd(KEY, '*', 'resource', 'snapshots', 'namespace', '', 'name', 'x');
    await redis.redis.xadd(KEY, '*', 'resource', 'persistentvolumes');
    await redis.redis.xadd(KEY, '*', 'odd', 'entry');
    await writer.appendNotices([claimNotice('good')]);
    assert.deepEqual((await reader.readNotices(start, WAIT_MS)).notices, [claimNotice('good')]);
  });

  it('is one for each prefix', async () => {
    assert.equal(noticeStreamKey('other'), '{other}:notices');
  });
});
