import assert from 'node:assert/strict';
import { setImmediate } from 'node:timers/promises';
import { beforeEach, describe, it } from 'node:test';
import { LeaderOnlyQueue } from '#src/ingest/leader-only-queue.ts';
import { Leadership } from '#src/ingest/leadership.ts';
import { Resync } from '#src/ingest/resync.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { silentLog } from '#src/runtime/log.ts';

describe('Leadership', () => {
  const key: JobKey = { kind: 'claim', uid: 'u', namespace: 'n', name: 'c' };
  const lease = { isLeader: true, holder: undefined as string | undefined, transitions: 7 };
  let done: string[];
  /** Whether Redis lost data. */
  let check: () => Promise<boolean>;
  let isRedisOurs: boolean;
  let queue: LeaderOnlyQueue;
  let leadership: Leadership;
  beforeEach(() => {
    done = [];
    check = () => Promise.resolve(false);
    isRedisOurs = true;
    lease.isLeader = true;
    lease.holder = undefined;
    const record = (what: string) => () => void done.push(what);
    queue = new LeaderOnlyQueue(
      {
        ensureQueued: record('queued'),
        enqueueNow: record('now'),
        promote: record('promoted'),
        renewCopy: () => undefined,
      },
      60_000,
    );
    const resync = new Resync({
      async *outstanding() {
        yield key;
      },
      queue,
      openJobs: () => Promise.resolve(new Map()),
      quarantineMs: 40_000,
      clock: { nowMs: () => 0, sleep: (ms) => Promise.resolve(void done.push(`waited ${ms}`)) },
      log: silentLog,
    });
    leadership = new Leadership({
      leads: new Set(),
      driver: 'd.example',
      queue,
      resync,
      pause: { forget: record('new work forgotten') },
      dataEpoch: {
        known: undefined,
        beginLeading: (transitions) => void done.push(`leader of ${transitions}`),
        check: () => {
          done.push('data epoch checked');
          return check();
        },
      },
      otherProvisioner: { observe: (holder) => void done.push(`holder ${holder}`) },
      failover: { checkNow: record('failover checked') },
      sweep: { begin: record('swept') },
      softState: undefined,
      isRedisOurs: () => isRedisOurs,
      log: silentLog,
    });
  });

  it('begins with a resync, a check of the gateways and a sweep', async () => {
    leadership.begin(lease);
    await setImmediate();
    assert.deepEqual(done.slice(3).toSorted(), ['failover checked', 'queued', 'swept']);
  });

  it('begins a term and tells the workers that no other provisioner leads, then enqueues', () => {
    leadership.begin(lease);
    assert.deepEqual(done.slice(0, 3), ['leader of 7', 'holder undefined', 'data epoch checked']);
  });

  it('forgets at its end whether new work is allowed', () => {
    leadership.begin(lease);
    leadership.end('test');
    assert.equal(done.at(-1), 'new work forgotten');
  });

  it('enqueues nothing after its end', () => {
    leadership.begin(lease);
    leadership.end('test');
    done = [];
    queue.ensureQueued(key);
    assert.deepEqual(done, []);
  });

  it('enqueues nothing once the Lease has passed to another, even before its end', () => {
    leadership.begin(lease);
    done = [];
    lease.isLeader = false;
    queue.ensureQueued(key);
    assert.deepEqual(done, []);
  });

  it('passes on what it kept while Redis belonged to another cluster, and resyncs', async () => {
    leadership.begin(lease);
    await setImmediate();
    isRedisOurs = false;
    done = [];
    queue.promote(key);
    assert.deepEqual(done, []);
    isRedisOurs = true;
    leadership.resume();
    await setImmediate();
    assert.deepEqual(done, ['promoted', 'data epoch checked', 'queued']);
  });

  it('names the gateway, then resyncs after the quarantine, when Redis lost data', async () => {
    leadership.begin(lease);
    await setImmediate();
    check = () => Promise.resolve(true);
    done = [];
    leadership.tick(lease);
    await setImmediate();
    assert.deepEqual(done.slice(0, 4), [
      'holder undefined',
      'data epoch checked',
      'failover checked',
      'waited 40000',
    ]);
  });

  it('resyncs at once when Redis can be reached again and lost nothing', async () => {
    leadership.begin(lease);
    await setImmediate();
    done = [];
    leadership.reconnected();
    await setImmediate();
    assert.deepEqual(done, ['data epoch checked', 'queued']);
  });

  it('spreads the resync while it can’t be told whether Redis lost data', async () => {
    check = () => Promise.reject(new Error('the API server is away'));
    leadership.begin(lease);
    await setImmediate();
    assert.ok(done.includes('waited 0') && !done.includes('waited 40000'), done.join());
    assert.ok(done.includes('queued'));
  });

  it('tells the workers who holds the Lease while it does not lead', () => {
    lease.isLeader = false;
    lease.holder = 'other';
    leadership.tick(lease);
    assert.deepEqual(done, ['holder other']);
  });

  it('tells the workers nothing of an ingest that leads', () => {
    lease.isLeader = false;
    lease.holder = 'sutler_pod-1';
    leadership.tick(lease);
    assert.deepEqual(done, ['holder undefined']);
  });

  it('tells the workers of another cluster’s Redis nothing', () => {
    isRedisOurs = false;
    lease.isLeader = false;
    lease.holder = 'other';
    leadership.tick(lease);
    assert.deepEqual(done, []);
  });
});
