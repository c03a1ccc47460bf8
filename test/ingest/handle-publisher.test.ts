import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { HandlePublisher, type HandlePublisherOptions } from '#src/ingest/handle-publisher.ts';
import { redisSharedHandles, type SharedHandles } from '#src/records/shared-handles.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('handle publisher', () => {
  let redis: TestRedis;
  let store: SharedHandles;
  let closers: Closers;
  before(async () => {
    redis = await startTestRedis();
    store = redisSharedHandles(redis.redis, 'csi', 'd.example');
  });
  after(() => redis.close());
  beforeEach(async () => {
    await redis.redis.flushall();
    closers = new Closers();
  });
  afterEach(() => closers.close());

  /** What an ingest sees of PVs. */
  class View {
    isFollowingVolumes = true;
    handles = new Map<string, readonly string[]>();
    sharedHandles = () => this.handles;
  }
  const open = (watcher: View, change: Partial<HandlePublisherOptions> = {}): HandlePublisher => {
    const options = { watcher, store, isRedisOurs: () => true, clock: systemClock, log: silentLog };
    const publisher = new HandlePublisher({ ...options, ...change });
    closers.add('publisher', () => publisher.stop());
    return publisher;
  };
  const isKnown = async (): Promise<boolean> => (await store.sharersOf('h')) !== undefined;
  const share = (view: View, names = ['one', 'two']): void => {
    view.handles = new Map([['h', names]]);
  };
  const isShared = async (name = 'one'): Promise<boolean> =>
    (await store.sharersOf('h'))?.includes(name) === true;

  it('publishes a handle as soon as a second PV names it', async () => {
    const view = new View();
    const publisher = open(view);
    await until(isKnown, 'the empty view is published');
    share(view);
    publisher.changed();
    // Less than a period.
    await until(isShared, 'the handle is published', 900);
    view.handles = new Map();
    publisher.changed();
    await until(async () => !(await isShared()), 'the handle is not shared any more', 900);
  });

  it('publishes nothing while PVs can’t be followed, so that its view expires', async () => {
    const view = new View();
    open(view);
    await until(isKnown, 'it is published');
    view.isFollowingVolumes = false;
    await until(async () => !(await isKnown()), 'the view has expired', 10_000);
    view.isFollowingVolumes = true;
    await until(isKnown, 'it is published again');
  });

  it('publishes everything again if Redis was emptied', async () => {
    const view = new View();
    share(view);
    open(view);
    await until(isShared, 'it is published');
    await redis.redis.flushall();
    await until(isShared, 'it is published again');
  });

  it('takes over when the ingest that published has stopped', async () => {
    const [first, second] = [new View(), new View()];
    const publisher = open(first);
    await until(isKnown, 'the first has published');
    share(second);
    open(second);
    await publisher.stop();
    await until(isShared, 'the second has published', 10_000);
  });

  it('publishes nothing in the Redis of another cluster', async () => {
    let asked = 0;
    open(new View(), { isRedisOurs: () => ((asked += 1), false) });
    await until(() => asked > 2, 'three steps');
    assert.equal(await redis.redis.dbsize(), 0);
  });
});
