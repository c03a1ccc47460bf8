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
  let entries: KeyToQueue[];
  /** Called before each outstanding key. */
  let onKey: () => void;
  /** Every pause: its length, and how many keys were queued before. */
  let pauses: { readonly ms: number; readonly queued: number }[];
  let duringPause: () => void;
  let resync: Resync;
  beforeEach(() => {
    queued = [];
    lists = 0;
    isAllowing = true;
    outstanding = [key('watched')];
    entries = [key('noted')];
    onKey = () => undefined;
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
      entries: () => entries,
      intervalMs: Infinity,
      queue: {
        get isAllowing() {
          return isAllowing;
        },
        ensureQueued: (each: KeyToQueue) => void queued.push(keyId(each)),
      },
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
  const runSpread = (): Promise<void> => resync.run('Redis has lost its data', true);

  it('enqueues what the watched objects need, and every claim in the journal, once each', async () => {
    entries = [key('noted'), key('watched')];
    await resync.run('test');
    assert.deepEqual(queued, ['claim/watched', 'claim/noted']);
  });

  it('enqueues nothing while this ingest does not lead', async () => {
    isAllowing = false;
    await resync.run('test');
    await runSpread();
    assert.deepEqual([queued, lists], [[], 0]);
  });

  it('enqueues what was found and the journal although the API server fails during the list', async () => {
    outstanding = manyKeys(3);
    let found = 0;
    onKey = () => {
      if ((found += 1) === 3) throw new Error('the API server is away');
    };
    await resync.run('test');
    assert.deepEqual(queued, ['claim/c0', 'claim/c1', 'claim/noted']);
  });

  it('runs once more, and not at the same time, if it is asked for during a run', async () => {
    outstanding = manyKeys(2);
    let asks = 0;
    onKey = () => {
      if (asks++ < 2) void resync.run('again');
    };
    await resync.run('test');
    assert.deepEqual([lists, queued.length], [2, 6]);
  });

  it('ends a run at once when Redis loses its data, and spreads everything instead', async () => {
    outstanding = manyKeys(100);
    let spread = Promise.resolve();
    onKey = () => {
      if (queued.length !== 50) return;
      onKey = () => undefined;
      spread = runSpread();
    };
    await resync.run('test');
    assert.equal(queued.length, 50);
    await spread;
    assert.equal(queued.length, 50 + 101);
  });

  it('enqueues everything at once while Redis keeps its data, and over 5 s after a loss', async () => {
    outstanding = manyKeys(2_999);
    entries = manyKeys(6_000);
    await resync.run('test');
    assert.deepEqual([queued.length, pauses.length], [6_000, 0]);
    queued = [];
    await runSpread();
    assert.equal(pauses.length, 50);
    assert.ok(pauses.every(({ ms, queued: before }, i) => ms === 100 && before === 120 * (i + 1)));
    assert.equal(queued.length, 6_000);
  });

  it('enqueues nothing at once while it spreads, but afterwards what came meanwhile', async () => {
    outstanding = manyKeys(300);
    duringPause = () => {
      if (pauses.length === 2) outstanding = [key('came while notices were lost')];
      void resync.run('notices were lost');
    };
    await runSpread();
    assert.deepEqual(queued.slice(301), ['claim/came while notices were lost', 'claim/noted']);
    assert.ok(pauses.every(({ queued: before }) => before <= 301));
  });

  it('ends when this ingest stops leading, and can be run again', async () => {
    outstanding = manyKeys(100);
    duringPause = () => (isAllowing = queued.length < 60);
    await runSpread();
    assert.equal(queued.length, 60);
    isAllowing = true;
    await resync.run('leading');
    assert.equal(queued.length, 60 + 101);
  });
});
