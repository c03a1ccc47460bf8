import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { LeaseFollower } from '#src/election/lease-follower.ts';
import { silentLog } from '#src/runtime/log.ts';
import { ManualClock, MemoryLeaseStore, runPending } from '../harness/lease.ts';

const UPSTREAM = 'csi-provisioner-0';

describe('LeaseFollower', () => {
  let clock: ManualClock;
  let store: MemoryLeaseStore;
  let connection: ReturnType<MemoryLeaseStore['connect']>;
  let follower: LeaseFollower;
  let transitions = 0;

  const write = (holder: string): void => {
    transitions += 1;
    // The times are those of a clock that is far off.
    store.write({ holder, durationMs: 15_000, acquiredMs: 0, renewedMs: transitions, transitions });
  };
  const start = async (): Promise<void> => {
    const lease = 'ns/d-example';
    follower = new LeaseFollower({ store: connection, lease, clock, log: silentLog });
    await runPending();
  };

  beforeEach(() => {
    clock = new ManualClock();
    store = new MemoryLeaseStore();
    connection = store.connect();
  });
  afterEach(async () => {
    const stopped = follower.stop();
    await clock.pass(100);
    await stopped;
  });

  it('sees another holder as soon as the watch tells of it', async () => {
    write('sutler_a');
    await start();
    assert.equal(follower.seen.otherHolder, undefined);
    write(UPSTREAM);
    await runPending();
    assert.equal(follower.seen.otherHolder, UPSTREAM);
  });

  it('sees another holder within seven seconds while the watch is silent', async () => {
    connection.blind = true;
    write('sutler_a');
    await start();
    write(UPSTREAM);
    await clock.pass(6_100);
    assert.equal(follower.seen.otherHolder, UPSTREAM);
  });

  it('counts a Lease as expired when it has seen no change for its duration', async () => {
    write(UPSTREAM);
    await clock.jump(3_600_000);
    await start();
    await follower.waitForFirstRead();
    await clock.pass(14_000);
    assert.equal(follower.seen.otherHolder, UPSTREAM);
    await clock.pass(1_100);
    assert.equal(follower.seen.otherHolder, undefined);
  });

  it('counts a Lease as expired soon although the clock was set back', async () => {
    write(UPSTREAM);
    await start();
    clock.setBack(3_600_000);
    await clock.pass(25_000);
    assert.equal(follower.seen.otherHolder, undefined);
  });

  it('says so while the Lease can’t be read, and keeps what it knows until that expires', async () => {
    write(UPSTREAM);
    await start();
    connection.broken = true;
    await clock.pass(10_000);
    assert.equal(follower.trouble, 'connection refused');
    assert.equal(follower.seen.otherHolder, UPSTREAM);
    await clock.pass(5_100);
    assert.equal(follower.seen.otherHolder, undefined);
    connection.broken = false;
    await clock.pass(5_000);
    assert.equal(follower.trouble, undefined);
  });

  it('says which Lease there is none of', async () => {
    await start();
    const trouble = /there is no Lease ns\/d-example: .*--leader-election-name/;
    assert.match(follower.trouble ?? '', trouble);
  });
});
