import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { Resync } from '#src/ingest/resync.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { silentLog } from '#src/runtime/log.ts';

describe('Resync', () => {
  const key = (name: string): JobKey => ({ kind: 'claim', uid: name, namespace: 'n', name });
  let queued: string[];
  let reports: number;
  let isAllowing: boolean;
  let openJobs: () => Promise<ReadonlyMap<string, JobKey>>;
  const resync = (): Resync =>
    new Resync({
      watcher: {
        *outstanding() {
          yield key('watched');
        },
        reportRefused: () => void (reports += 1),
      },
      gate: {
        get isAllowing() {
          return isAllowing;
        },
        ensureQueued: ({ name }) => void queued.push(name),
      },
      openJobs: () => openJobs(),
      log: silentLog,
    });
  beforeEach(() => {
    queued = [];
    reports = 0;
    isAllowing = true;
    openJobs = () => Promise.resolve(new Map([['id', key('open')]]));
  });

  it('enqueues what the watched objects need, and every open record', async () => {
    await resync().run('test');
    assert.deepEqual(queued, ['watched', 'open']);
    assert.equal(reports, 1, 'refused volumes are reported');
  });

  it('enqueues nothing while this ingest does not lead', async () => {
    isAllowing = false;
    await resync().run('test');
    assert.deepEqual(queued, []);
    assert.equal(reports, 0);
    assert.deepEqual([...resync().outstanding()], []);
  });

  it('enqueues the watched objects although the open records can’t be read', async () => {
    openJobs = () => Promise.reject(new Error('Redis is away'));
    await resync().run('test');
    assert.deepEqual(queued, ['watched']);
  });
});
