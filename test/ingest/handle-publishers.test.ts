import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import {
  HandlePublisher,
  type HandlePublisherOptions,
  HandleScanner,
} from '#src/ingest/handle-publishers.ts';
import { type Listing, PacedLists } from '#src/ingest/notices/paced-lists.ts';
import type { Volume } from '#src/kube/objects.ts';
import { redisSharedHandles } from '#src/hints/shared-handles.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { handleHash, type VolumeIdentity } from '#src/volumes/handles.ts';
import { startTestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const identity = (id: string): VolumeIdentity => ({ driver: 'd.example', id, form: 'csi' });

/** What an ingest sees of PVs. */
class View {
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
    open(informers: View, change: Partial<HandlePublisherOptions> = {}): HandlePublisher {
      const options = { informers, store, clock: systemClock, log: silentLog };
      const publisher = new HandlePublisher({ ...options, ...change });
      closers.add('publisher', () => publisher.stop());
      return publisher;
    },
    isKnown: async () => (await store.sharersOf(identity('h'))) !== undefined,
    isShared: async () => (await store.sharersOf(identity('h')))?.includes('one') === true,
  };
}

describe('handle publisher', { concurrency: true }, () => {
  it('publishes a handle as soon as a second PV names it', async (t) => {
    const { isKnown, isShared, open } = await openPublishers(t);
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

  it('takes over when the ingest that published has stopped', async (t) => {
    const { isKnown, isShared, open } = await openPublishers(t);
    const [first, second] = [new View(), new View()];
    const publisher = open(first);
    await until(isKnown, 'the first has published');
    share(second);
    open(second);
    await publisher.stop();
    await until(isShared, 'the second has published', 10_000);
  });
});

const volume = (name: string, volumeHandle: string): Volume => ({
  metadata: { name, uid: name, resourceVersion: '1' },
  spec: { csi: { driver: 'd.example', volumeHandle } },
});

/** A Redis, and scanners that list `stored`. */
async function openScanners(t: TestContext) {
  const closers = new Closers();
  t.after(() => closers.close());
  const { redis, close } = await startTestRedis();
  closers.add('Redis', close);
  const store = redisSharedHandles({ redis: redis, prefix: 'csi', driver: 'd.example' });
  const bed = {
    redis,
    store,
    stored: [volume('one', 'h'), volume('two', 'other')],
    lists: 0,
    duringList: () => Promise.resolve(),
    open(name = 'd.example'): HandleScanner {
      const scanner = new HandleScanner({
        lists: {
          async *pages<T>({ transform }: Listing<T>) {
            bed.lists += 1;
            const [...stored] = bed.stored;
            await bed.duringList();
            for (const each of stored) yield [transform(each)];
          },
        },
        periodMs: 20,
        clock: systemClock,
        log: silentLog,
      });
      closers.add('scanner', () => scanner.stop());
      scanner.serve({
        name,
        store: redisSharedHandles({ redis: redis, prefix: 'csi', driver: name }),
      });
      return scanner;
    },
    isKnown: async () => (await store.sharersOf(identity('h'))) !== undefined,
  };
  return bed;
}

// Side by side, because they wait most of the time.
describe('handle scanner', { concurrency: true }, () => {
  it('lists no volumes before a run has asked, and once for all that ask', async (t) => {
    const bed = await openScanners(t);
    const first = bed.open();
    await systemClock.sleep(200);
    assert.equal(bed.lists, 0);
    await first.stop();
    for (const handle of ['h', 'other', 'third'])
      assert.equal(await bed.store.sharersOf(identity(handle)), undefined);
    bed.open();
    await until(async () => (await bed.redis.exists('{csi}:shared:d.example')) === 1, 'a view');
    assert.deepEqual(await bed.store.sharersOf(identity('h')), []);
    assert.equal(bed.lists, 1);
  });

  it('publishes the names of the PVs that share a handle', async (t) => {
    const bed = await openScanners(t);
    bed.stored.push(volume('three', 'h'));
    bed.open();
    await until(bed.isKnown, 'a view');
    assert.deepEqual(await bed.store.sharersOf(identity('h')), ['one', 'three']);
    assert.deepEqual(await bed.store.sharersOf(identity('other')), []);
  });

  it('publishes what is as old as the begin of its list, and serves who asked after that with another list', async (t) => {
    const bed = await openScanners(t);
    let asks = 0;
    bed.duringList = async () => {
      if (bed.lists > 1) return;
      await systemClock.sleep(10);
      if ((await bed.store.sharersOf(identity('h'))) === undefined) asks += 1;
      bed.stored.push(volume('three', 'h'));
    };
    bed.open();
    await until(bed.isKnown, 'a view');
    assert.deepEqual(
      await bed.store.sharersOf(identity('h')),
      [],
      'not the PV that came during the list',
    );
    assert.equal(asks, 1);
    await until(() => bed.lists > 1, 'another list');
    await until(async () => (await bed.store.sharersOf(identity('h')))?.length === 2, 'both PVs');
  });

  it('lets what it published expire 5 s after its list', async (t) => {
    const bed = await openScanners(t);
    bed.open();
    await until(bed.isKnown, 'a view');
    const leftMs = await bed.redis.pttl('{csi}:shared:d.example');
    assert.ok(leftMs > 3_000 && leftMs <= 5_000, `${leftMs} ms`);
  });

  it('withdraws at once what a notice of another PV with the handle has made wrong', async (t) => {
    const bed = await openScanners(t);
    const scanner = bed.open();
    await until(bed.isKnown, 'a view');
    scanner.observe(volume('one', 'h'));
    scanner.observe(volume('four', 'fourth'));
    assert.deepEqual(await bed.store.sharersOf(identity('h')), []);
    const third = volume('three', 'h');
    bed.stored.push(third);
    scanner.observe(third);
    await until(
      async () => (await bed.store.sharersOf(identity('h')))?.length === 2,
      'both PVs',
      4_000,
    );
    const { lists } = bed;
    scanner.observe(third);
    assert.equal(
      (await bed.store.sharersOf(identity('h')))?.length,
      2,
      'it is in what is published',
    );
    assert.equal(bed.lists, lists);
  });

  it('leaves the list to one of two ingests', async (t) => {
    const bed = await openScanners(t);
    let release = (): void => undefined;
    bed.duringList = () => new Promise((resolve) => (release = resolve));
    bed.open();
    bed.open();
    await bed.isKnown();
    await until(() => bed.lists === 1, 'a list');
    await systemClock.sleep(200);
    assert.equal(bed.lists, 1);
    bed.duringList = () => Promise.resolve();
    release();
  });

  it('takes over from an ingest that died during its list', async (t) => {
    const bed = await openScanners(t);
    const untilMs = Date.now() + 500;
    const dead = { scanner: 'dead', until: untilMs };
    await bed.redis.hset('{csi}:shared-asks:d.example', dead);
    bed.open();
    await until(bed.isKnown, 'a view');
    assert.ok(Date.now() >= untilMs);
  });

  it('gives up while the API server does not answer, so that another ingest can list', async (t) => {
    const bed = await openScanners(t);
    const lists = new PacedLists({
      client: { listItems: () => Promise.reject(new Error('no route')) },
      clock: systemClock,
      log: silentLog,
    });
    const cutOff = new HandleScanner({
      lists,
      periodMs: 20,
      stalledMs: 50,
      clock: systemClock,
      log: silentLog,
    });
    t.after(() => {
      lists.stop();
      return cutOff.stop();
    });
    cutOff.serve({ name: 'd.example', store: bed.store });
    assert.equal(await bed.isKnown(), false);
    await until(() => lists.trouble !== undefined, 'a page failed');
    await until(() => lists.trouble === undefined, 'nobody asks for it any more');
  });
});
