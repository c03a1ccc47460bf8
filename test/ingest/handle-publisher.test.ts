import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { HandlePublisher } from '#src/ingest/handle-publisher.ts';
import { redisSharedHandles } from '#src/hints/shared-handles.ts';
import { Closers } from '#src/runtime/closers.ts';
import { Listeners } from '#src/runtime/listeners.ts';
import { silentLog } from '#src/runtime/log.ts';
import { handleHash, type VolumeIdentity } from '#src/volumes/handles.ts';
import { startTestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const identity = (id: string): VolumeIdentity => ({ driver: 'd.example', id, form: 'csi' });

/** What an ingest sees of PVs. */
class View {
  readonly sharing = new Listeners<void>();
  isFollowing = true;
  handles = new Map<number, readonly string[]>();
  /** How often the publisher has asked whether PVs are followed. */
  looks = 0;
  sharedHandles = () => this.handles;
  get isFollowingVolumes(): boolean {
    this.looks += 1;
    return this.isFollowing;
  }
}

const share = (view: View): void => {
  view.handles = new Map([[handleHash(identity('h')), ['one', 'two']]]);
};

/** A Redis for one test, and publishers on it. */
async function openPublishers(t: TestContext, periodMs = 20) {
  const closers = new Closers();
  t.after(() => closers.close());
  const { redis, close } = await startTestRedis();
  closers.add('Redis', close);
  const store = redisSharedHandles({ redis, prefix: 'csi', driver: 'd.example' });
  return {
    redis,
    open(view: View, isLeading = (): boolean => true): void {
      const publisher = new HandlePublisher(view, store, { isLeading, log: silentLog, periodMs });
      closers.add('publisher', () => publisher.stop());
    },
    isKnown: async () => (await store.sharersOf(identity('h'))) !== undefined,
    isShared: async () => (await store.sharersOf(identity('h')))?.includes('one') === true,
  };
}

describe('handle publisher', { concurrency: true }, () => {
  it('publishes a handle as soon as a second PV names it, before its next period', async (t) => {
    const { isKnown, isShared, open } = await openPublishers(t, 3_600_000);
    const view = new View();
    open(view);
    await until(isKnown, 'the empty view is published');
    share(view);
    view.sharing.notify();
    await until(isShared, 'the handle is published');
    view.handles = new Map();
    view.sharing.notify();
    await until(async () => !(await isShared()), 'the handle is not shared any more');
  });

  it('publishes nothing while PVs can’t be followed', async (t) => {
    const { isKnown, open, redis } = await openPublishers(t);
    const view = new View();
    open(view);
    await until(isKnown, 'it is published');
    view.isFollowing = false;
    const { looks } = view;
    await until(() => view.looks > looks + 1, 'it has looked');
    await redis.flushall();
    await until(() => view.looks > looks + 4, 'it has looked again');
    assert.equal(await isKnown(), false);
    view.isFollowing = true;
    await until(isKnown, 'it is published again, though Redis was emptied');
  });

  it('publishes only while it leads', async (t) => {
    const { isKnown, isShared, open } = await openPublishers(t);
    const [first, second] = [new View(), new View()];
    let firstLeads = true;
    open(first, () => firstLeads);
    share(second);
    open(second, () => !firstLeads);
    await until(isKnown, 'the first has published');
    assert.equal(await isShared(), false);
    firstLeads = false;
    await until(isShared, 'the second has published');
  });
});
