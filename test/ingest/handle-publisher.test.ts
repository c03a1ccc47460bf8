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
  isFollowingVolumes = true;
  handles = new Map<number, readonly string[]>();
  sharedHandles = () => this.handles;
}

const share = (view: View, names = ['one', 'two']): void => {
  view.handles = new Map([[handleHash(identity('h')), names]]);
};

/** A Redis for one test, and publishers on it. */
async function openPublishers(t: TestContext) {
  const closers = new Closers();
  t.after(() => closers.close());
  const { redis, close } = await startTestRedis();
  closers.add('Redis', close);
  const store = redisSharedHandles({ redis: redis, prefix: 'csi', driver: 'd.example' });
  return {
    redis,
    open(view: View, isLeading = (): boolean => true): void {
      const publisher = new HandlePublisher(view, store, isLeading, silentLog);
      closers.add('publisher', () => publisher.stop());
    },
    isKnown: async () => (await store.sharersOf(identity('h'))) !== undefined,
    isShared: async () => (await store.sharersOf(identity('h')))?.includes('one') === true,
  };
}

describe('handle publisher', { concurrency: true }, () => {
  it('publishes a handle as soon as a second PV names it', async (t) => {
    const { isKnown, isShared, open } = await openPublishers(t);
    const view = new View();
    open(view);
    await until(isKnown, 'the empty view is published');
    share(view);
    view.sharing.notify();
    // Less than a period.
    await until(isShared, 'the handle is published', 900);
    view.handles = new Map();
    view.sharing.notify();
    await until(async () => !(await isShared()), 'the handle is not shared any more', 900);
  });

  it('publishes nothing while PVs can’t be followed, so that its view expires', async (t) => {
    const { isKnown, open } = await openPublishers(t);
    const view = new View();
    open(view);
    await until(isKnown, 'it is published');
    view.isFollowingVolumes = false;
    await until(async () => !(await isKnown()), 'the view has expired', 10_000);
    view.isFollowingVolumes = true;
    await until(isKnown, 'it is published again');
  });

  it('publishes everything again if Redis was emptied', async (t) => {
    const { isShared, open, redis } = await openPublishers(t);
    const view = new View();
    share(view);
    open(view);
    await until(isShared, 'it is published');
    await redis.flushall();
    await until(isShared, 'it is published again');
  });

  it('publishes only while it leads', async (t) => {
    const { isKnown, isShared, open } = await openPublishers(t);
    const [first, second] = [new View(), new View()];
    let firstLeads = true;
    open(first, () => firstLeads);
    share(second);
    open(second, () => !firstLeads);
    await until(isKnown, 'the first has published');
    firstLeads = false;
    await until(isShared, 'the second has published', 10_000);
  });
});
