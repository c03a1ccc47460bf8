import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { Resync } from '#src/ingest/resync.ts';
import { type JobKey, keyId, type KeyToQueue } from '#src/queue/contract.ts';
import { silentLog } from '#src/runtime/log.ts';

describe('Resync', () => {
  const key = (name: string): JobKey => ({ kind: 'claim', uid: name, namespace: 'n', name });
  let queued: string[];
  let lists: number;
  let isAllowing: boolean;
  let outstanding: KeyToQueue[];
  /** Called before each outstanding key. */
  let onKey: () => void;
  let openJobs: () => Promise<ReadonlyMap<string, JobKey>>;
  /** Every pause: its length, and how many keys were queued before. */
  let pauses: { readonly ms: number; readonly queued: number }[];
  let duringPause: () => void;
  let resync: Resync;
  beforeEach(() => {
    queued = [];
    lists = 0;
    isAllowing = true;
    outstanding = [key('watched')];
    onKey = () => undefined;
    openJobs = () => Promise.resolve(new Map([['id', key('open')]]));
    pauses = [];
    duringPause = () => undefined;
    resync = new Resync({
      async *outstanding() {
        lists += 1;
        for (const each of outstanding) {
          onKey();
          yield each;
        }
      },
      queue: {
        get isAllowing() {
          return isAllowing;
        },
        ensureQueued: (each: KeyToQueue) => void queued.push(keyId(each) + (each.claim ?? '')),
      },
      openJobs: () => openJobs(),
      quarantineMs: 40_000,
      clock: {
        nowMs: () => 0,
        sleep: async (ms) => {
          pauses.push({ ms, queued: queued.length });
          duringPause();
          await Promise.resolve();
        },
      },
      log: silentLog,
    });
  });
  const manyKeys = (count: number): JobKey[] =>
    Array.from({ length: count }, (_, i) => key(`c${i}`));

  it('enqueues what the watched objects need, and every open record', async () => {
    await resync.run('test');
    assert.deepEqual(queued, ['claim/watched', 'claim/open']);
  });

  it('enqueues a key once that is outstanding and has an open record', async () => {
    outstanding = [key('open')];
    await resync.run('test');
    assert.deepEqual(queued, ['claim/open']);
  });

  it('passes copies of claims on at once, and none that may have changed meanwhile', async () => {
    const copied: KeyToQueue = { ...key('watched'), claim: ' copied' };
    outstanding = [copied];
    openJobs = () => Promise.resolve(new Map());
    await resync.run('test');
    await resync.runAfterLoss();
    assert.deepEqual(queued, ['claim/watched copied', 'claim/watched']);
  });

  it('enqueues nothing while this ingest does not lead', async () => {
    isAllowing = false;
    await resync.run('test');
    await resync.runAfterLoss();
    assert.deepEqual(queued, []);
    assert.equal(lists, 0);
  });

  it('enqueues the watched objects although the open records can’t be read', async () => {
    openJobs = () => Promise.reject(new Error('Redis is away'));
    await resync.run('test');
    assert.deepEqual(queued, ['claim/watched']);
  });

  it('enqueues each key as soon as it is found, and what was found although a list ends early', async () => {
    outstanding = manyKeys(3);
    const found: number[] = [];
    onKey = () => {
      found.push(queued.length);
      if (found.length === 3) throw new Error('the API server is away');
    };
    await resync.run('test');
    assert.deepEqual(found, [0, 1, 2]);
    assert.deepEqual(queued, ['claim/c0', 'claim/c1']);
  });

  it('runs once more, and not at the same time, if it is asked for during a run', async () => {
    outstanding = manyKeys(2);
    let asks = 0;
    onKey = () => {
      if (asks++ < 2) void resync.run('again');
    };
    await resync.run('test');
    assert.equal(lists, 2);
    assert.equal(queued.length, 6);
  });

  it('ends a run at once when Redis loses its data, and spreads everything instead', async () => {
    outstanding = manyKeys(100);
    let spread = Promise.resolve();
    onKey = () => {
      if (queued.length === 50) spread = resync.runAfterLoss();
    };
    await resync.run('test');
    assert.equal(queued.length, 50);
    onKey = () => undefined;
    await spread;
    assert.equal(queued.length, 50 + 101);
  });

  it('enqueues everything at once while Redis keeps its data', async () => {
    outstanding = manyKeys(6_000);
    await resync.run('test');
    assert.equal(queued.length, 6_001);
    assert.deepEqual(pauses, []);
  });

  it('spreads everything over half a minute after a loss, open records too', async () => {
    outstanding = manyKeys(2_999);
    openJobs = () => Promise.resolve(new Map(manyKeys(6_000).map((each) => [each.uid, each])));
    await resync.runAfterLoss();
    assert.deepEqual(pauses[0], { ms: 40_000, queued: 0 }, 'none in the quarantine');
    const slices = pauses.slice(1);
    assert.equal(slices.length, 300);
    assert.ok(slices.every(({ ms, queued: before }, i) => ms === 100 && before === 20 * (i + 1)));
    assert.equal(queued.length, 6_000);
  });

  it('enqueues a few keys soon after a loss', async () => {
    outstanding = manyKeys(20);
    await resync.runAfterLoss();
    assert.deepEqual(
      pauses.slice(1).map(({ queued: before }) => before),
      [10, 20, 21],
    );
  });

  it('lists what is outstanding when the quarantine is over', async () => {
    duringPause = () => (outstanding = [key('late')]);
    await resync.runAfterLoss();
    assert.deepEqual(queued, ['claim/late', 'claim/open']);
  });

  it('enqueues nothing at once while it spreads, but afterwards what came meanwhile', async () => {
    outstanding = manyKeys(300);
    duringPause = () => {
      if (pauses.length === 2) outstanding = [key('came while notices were lost')];
      void resync.run('notices were lost');
    };
    await resync.runAfterLoss();
    assert.deepEqual(queued.slice(301), ['claim/came while notices were lost', 'claim/open']);
    assert.ok(pauses.every(({ queued: before }) => before <= 301));
  });

  it('lists once what is asked for in the quarantine', async () => {
    duringPause = () => {
      if (pauses.length === 1) void resync.run('Redis can be reached again');
    };
    await resync.runAfterLoss();
    assert.deepEqual(queued, ['claim/watched', 'claim/open']);
  });

  it('begins again when Redis loses its data while it spreads', async () => {
    outstanding = manyKeys(100);
    let losses = 1;
    let second = Promise.resolve();
    duringPause = () => {
      if (queued.length !== 50 || losses > 1) return;
      losses += 1;
      second = resync.runAfterLoss();
    };
    await resync.runAfterLoss();
    await second;
    assert.equal(queued.length, 50 + 101);
  });

  it('ends when this ingest stops leading, and can be run again', async () => {
    outstanding = manyKeys(100);
    duringPause = () => (isAllowing = queued.length < 50);
    await resync.runAfterLoss();
    assert.equal(queued.length, 50);
    isAllowing = true;
    await resync.run('leading');
    assert.equal(queued.length, 50 + 101);
  });

  it('ends when it is stopped', async () => {
    duringPause = () => resync.stop();
    await resync.runAfterLoss();
    assert.deepEqual(queued, []);
  });
});
