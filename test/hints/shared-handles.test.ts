import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { MAX_SHARERS, redisSharedHandles, type SharedHandles } from '#src/hints/shared-handles.ts';
import { handleHash, type VolumeIdentity } from '#src/volumes/handles.ts';
import { RedisUnavailable } from '#src/redis/ask-redis.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

const KEY = '{csi}:shared:d.example';

describe('shared handles', () => {
  let redis: TestRedis;
  let handles: SharedHandles;
  before(async () => {
    redis = await startTestRedis();
    handles = redisSharedHandles({ redis: redis.redis, prefix: 'csi', driver: 'd.example' });
  });
  after(() => redis.close());
  beforeEach(() => redis.redis.flushall());

  const volume = (id: string): VolumeIdentity => ({ driver: 'd.example', id, form: 'csi' });
  const sharersOf = (id: string) => handles.sharersOf(volume(id));
  const view = (...entries: readonly (readonly [string, readonly string[]])[]) =>
    new Map(entries.map(([id, names]) => [handleHash(volume(id)), names]));
  const nowMs = async (): Promise<number> => {
    const [seconds] = await redis.redis.time();
    return Number(seconds) * 1_000;
  };
  const publish = async (change: Partial<Parameters<SharedHandles['publish']>[0]> = {}) => {
    const asOfMs = await nowMs();
    const empty = { publisher: 'a', version: 1, handles: new Map(), asOfMs };
    return (await handles.publish({ ...empty, ...change })).kind;
  };

  it('are not known before an ingest has published', async () => {
    assert.equal(await sharersOf('h'), undefined);
  });

  it('are none if an empty view is published', async () => {
    assert.equal(await publish(), 'published');
    assert.deepEqual(await sharersOf('h'), []);
  });

  it('name the PVs of each handle, whatever characters it has', async () => {
    const odd = 'a "b" \\ ü\u0001{}*\nend';
    const both = view(['h', ['one', 'two']], [odd, ['three', 'four']]);
    assert.equal(await publish({ handles: both }), 'published');
    assert.deepEqual(await sharersOf('h'), ['one', 'two']);
    assert.deepEqual(await sharersOf(odd), ['three', 'four']);
    assert.deepEqual(await sharersOf('publisher'), []);
  });

  it('name a limited number of PVs', async () => {
    const names = Array.from({ length: 3 * MAX_SHARERS }, (_, n) => `pv-${n}`);
    await publish({ handles: view(['h', names]) });
    assert.deepEqual(await sharersOf('h'), names.slice(0, MAX_SHARERS));
  });

  it('are replaced as a whole by the next version', async () => {
    await publish({ handles: view(['h', ['one', 'two']]) });
    await publish({ version: 2, handles: view(['other', ['one', 'two']]) });
    assert.deepEqual(await sharersOf('h'), []);
    assert.deepEqual(await sharersOf('other'), ['one', 'two']);
  });

  it('stay if the same version is renewed, and then last longer', async () => {
    await publish({ handles: view(['h', ['one', 'two']]) });
    await redis.redis.pexpire(KEY, 100);
    assert.equal(await publish({ handles: undefined }), 'published');
    assert.ok((await redis.redis.pttl(KEY)) > 1_000);
    assert.deepEqual(await sharersOf('h'), ['one', 'two']);
  });

  it('are asked for as a whole if Redis has lost them, or has an older version', async () => {
    assert.equal(await publish({ handles: undefined }), 'unknown');
    await publish();
    assert.equal(await publish({ version: 2, handles: undefined }), 'unknown');
  });

  it('are forgotten soon after the publisher has fallen silent', async () => {
    await publish();
    const leftMs = await redis.redis.pttl(KEY);
    assert.ok(leftMs > 0 && leftMs <= 5_000, `${leftMs} ms`);
  });

  it('are not published by a process that was frozen after it saw them', async () => {
    assert.equal(await publish({ asOfMs: (await nowMs()) - 10_000 }), 'outdated');
    assert.equal(await sharersOf('h'), undefined);
  });

  it('last no longer if Redis’ clock was set back', async () => {
    await publish({ asOfMs: (await nowMs()) + 3_600_000 });
    assert.ok((await redis.redis.pttl(KEY)) <= 5_000);
  });

  it('are left to the ingest that publishes them, until its view expires', async () => {
    await publish({ handles: view(['h', ['one', 'two']]) });
    assert.equal(await publish({ publisher: 'b' }), 'taken');
    assert.deepEqual(await sharersOf('h'), ['one', 'two']);
    await redis.redis.pexpire(KEY, 0);
    assert.equal(await publish({ publisher: 'b' }), 'published');
    assert.equal(await publish({ handles: undefined }), 'taken');
  });

  it('can’t be asked for while Redis is away', async () => {
    const away = redis.redis.duplicate({ maxRetriesPerRequest: 0, retryStrategy: () => null });
    away.disconnect();
    const asked = redisSharedHandles({ redis: away, prefix: 'csi', driver: 'd.example' }).sharersOf(
      volume('h'),
    );
    await assert.rejects(asked, RedisUnavailable);
  });
});
