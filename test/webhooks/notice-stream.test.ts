import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { type ChangeNotice, NoticeStream, noticeStreamKey } from '#src/webhooks/notices.ts';
import { openRedis, type RedisLink } from '#src/redis/connection.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { redisUsers, urlOf } from '../harness/redis-users.ts';
import { until } from '../harness/until.ts';

const KEY = noticeStreamKey('csi');
const WAIT_MS = 20;

function claimNotice(name: string): ChangeNotice {
  return { resource: 'persistentvolumeclaims', namespace: 'shop', name };
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
    return new NoticeStream(link, 'csi');
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

  it('has a gap if the position was trimmed away, and none from there on', async () => {
    const start = await reader.markEnd();
    for (let round = 0; round < 11; round += 1)
      await writer.append(Array.from({ length: 1_000 }, (_, n) => claimNotice(`claim-${n}`)));
    assert.ok((await redis.redis.xlen(KEY)) < 10_500);
    const first = await reader.read(start, { most: 1_000, waitMs: WAIT_MS });
    assert.equal(first.isGap, true);
    assert.equal(first.notices.length, 1_000);
    assert.equal(
      (await reader.read(first.position, { most: 1_000, waitMs: WAIT_MS })).isGap,
      false,
    );
  });

  it('brings notices in order, and skips entries that another version may have written', async () => {
    const start = await reader.markEnd();
    await redis.redis.xadd(KEY, '*', 'resource', 'snapshots', 'namespace', '', 'name', 'x');
    await redis.redis.xadd(KEY, '*', 'resource', 'persistentvolumes');
    await redis.redis.xadd(KEY, '*', 'odd', 'entry');
    const sent: readonly ChangeNotice[] = [
      claimNotice('orders-db'),
      { resource: 'persistentvolumes', namespace: '', name: 'pvc-1' },
      { ...claimNotice('early'), namespace: 'name' },
    ];
    await writer.append(sent);
    const { notices, isGap } = await reader.read(start, { most: 1_000, waitMs: WAIT_MS });
    assert.deepEqual(notices, sent);
    assert.equal(isGap, false);
  });
});
