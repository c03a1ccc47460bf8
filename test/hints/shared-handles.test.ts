import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { MAX_SHARERS, redisSharedHandles, type SharedHandles } from '#src/hints/shared-handles.ts';
import { handleHash, type VolumeIdentity } from '#src/volumes/handles.ts';
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
  const nowMs = (): Promise<number> => handles.publish(view(), 0);
  const publish = async (of = view()): Promise<void> =>
    void (await handles.publish(of, await nowMs()));

  it('are not known before a leader has published', async () => {
    assert.equal(await sharersOf('h'), undefined);
  });

  it('name the PVs of each handle, whatever characters it has', async () => {
    const odd = 'a "b" \\ ü\u0001{}*\nend';
    await publish(view(['h', ['one', 'two']], [odd, ['three', 'four']]));
    assert.deepEqual(await sharersOf('h'), ['one', 'two']);
    assert.deepEqual(await sharersOf(odd), ['three', 'four']);
    assert.deepEqual(await sharersOf('publisher'), []);
  });

  it('name a limited number of PVs', async () => {
    const names = Array.from({ length: 3 * MAX_SHARERS }, (_, n) => `pv-${n}`);
    await publish(view(['h', names]));
    assert.deepEqual(await sharersOf('h'), names.slice(0, MAX_SHARERS));
  });

  it('are replaced as a whole by the next view', async () => {
    await publish(view(['h', ['one', 'two']]));
    await publish(view(['other', ['one', 'two']]));
    assert.deepEqual(await sharersOf('h'), []);
    assert.deepEqual(await sharersOf('other'), ['one', 'two']);
  });

  it('are forgotten soon after the leader has fallen silent', async () => {
    await publish();
    const leftMs = await redis.redis.pttl(KEY);
    assert.ok(leftMs > 0 && leftMs <= 5_000, `${leftMs} ms`);
  });

  it('are not published by a process that was frozen after it saw them', async () => {
    await handles.publish(view(), (await nowMs()) - 10_000);
    assert.equal(await sharersOf('h'), undefined);
  });
});
