import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { Registry } from 'prom-client';
import { Elector, type ElectorOptions } from '#src/election/elector.ts';
import type { LeaseStore } from '#src/election/kube-lease-store.ts';
import { silentLog } from '#src/runtime/log.ts';
import { ManualClock, MemoryLeaseStore, runPending } from '../harness/lease.ts';

interface Candidate {
  readonly elector: Elector;
  readonly log: string[];
  readonly metrics: Registry;
}

describe('Elector', () => {
  let clock: ManualClock;
  let store: MemoryLeaseStore;
  let electors: Elector[];

  const candidate = (
    identity: string,
    connection: LeaseStore,
    o: Partial<ElectorOptions> = {},
  ): Candidate => {
    const log: string[] = [];
    const metrics = new Registry();
    const elector = new Elector({
      store: connection,
      leaseName: 'd-example',
      identity,
      leaseDurationMs: 15_000,
      renewDeadlineMs: 10_000,
      retryPeriodMs: 5000,
      clock,
      log: silentLog,
      metrics,
      random: () => 0,
      onStartedLeading: () => log.push('started'),
      onStoppedLeading: (reason) => log.push(`stopped: ${reason}`),
      ...o,
    });
    electors.push(elector);
    return { elector, log, metrics };
  };
  const status = async ({ metrics }: Candidate): Promise<string> =>
    await metrics.getSingleMetricAsString('leader_election_master_status');

  beforeEach(() => {
    clock = new ManualClock();
    store = new MemoryLeaseStore();
    electors = [];
  });
  afterEach(async () => {
    const closing = Promise.all(electors.map((elector) => elector.close()));
    await clock.pass(5000, 1000);
    await closing;
  });

  it('leads at once if the Lease is free, and renews once per period without reading', async () => {
    const connection = store.connect();
    const a = candidate('a', connection);
    await runPending();
    assert.deepEqual([a.elector.isLeader, a.elector.holder, a.log], [true, 'a', ['started']]);
    assert.match(await status(a), /leader_election_master_status\{name="d-example"\} 1/);
    const acquiredMs = store.writes[0]?.acquiredMs;
    connection.calls = 0;
    await clock.pass(50_000);
    assert.deepEqual([a.elector.isLeader, connection.calls], [true, 10]);
    const { record } = store.lease ?? assert.fail('there is no Lease');
    assert.deepEqual([record.transitions, record.acquiredMs], [0, acquiredMs]);
    assert.equal(record.renewedMs, clock.nowMs());
  });

  it('does not lead while another process renews', async () => {
    const a = candidate('a', store.connect());
    await runPending();
    const b = candidate('b', store.connect());
    await clock.pass(100_000);
    assert.deepEqual([a.elector.isLeader, b.elector.isLeader], [true, false]);
    assert.deepEqual([b.elector.holder, b.log], ['a', []]);
    assert.match(await status(b), /\} 0/);
  });

  it('takes over at once after a release, and the former leader may lead again', async () => {
    const a = candidate('a', store.connect());
    await runPending();
    const b = candidate('b', store.connect());
    await clock.pass(20_000);
    await a.elector.close();
    await runPending();
    assert.deepEqual(a.log, ['started', 'stopped: stopping']);
    assert.equal(b.elector.isLeader, true, 'without a tick of the clock');
    assert.equal(store.lease?.record.transitions, 1);
    const [release] = store.writes.filter(({ holder }) => holder === '');
    assert.equal(release?.durationMs, 1000);
    const again = candidate('a', store.connect());
    await clock.pass(30_000);
    await b.elector.close();
    await runPending();
    assert.equal(again.elector.isLeader, true);
  });

  it('takes over one lease duration after the last renewal of a dead holder', async () => {
    const connectionOfA = store.connect();
    candidate('a', connectionOfA);
    await runPending();
    const b = candidate('b', store.connect());
    await clock.pass(20_000);
    connectionOfA.hanging = true;
    const lastMs = store.lease?.record.renewedMs ?? 0;
    await clock.pass(14_000);
    assert.equal(b.elector.isLeader, false);
    await clock.pass(2000);
    assert.equal(b.elector.isLeader, true);
    assert.ok((store.lease?.record.acquiredMs ?? 0) - lastMs >= 15_000);
    assert.equal(store.lease?.record.transitions, 1);
  });

  for (const fault of ['broken', 'hanging'] as const)
    it(`stops leading before its Lease can expire while the API is ${fault}`, async () => {
      const connection = store.connect();
      const a = candidate('a', connection);
      await clock.pass(20_000);
      connection[fault] = true;
      await clock.pass(10_100);
      assert.equal(a.elector.isLeader, false);
      assert.match(a.log[1] ?? '', /^stopped: not renewed for 10000 ms/);
      assert.match(await status(a), /\} 0/);
      assert.equal(a.elector.isHealthy(), true);
      connection[fault] = false;
      await clock.pass(21_000);
      assert.equal(a.elector.isLeader, true);
      assert.deepEqual(a.log.slice(2), ['started']);
    });

  it('says why it can’t lead until it can read the Lease again', async () => {
    candidate('a', store.connect());
    await runPending();
    const connection = store.connect();
    const b = candidate('b', connection);
    await clock.pass(20_000);
    assert.equal(b.elector.trouble, undefined);
    connection.broken = true;
    await clock.pass(20_000);
    assert.equal(b.elector.trouble, 'connection refused');
    connection.broken = false;
    await clock.pass(20_000);
    assert.equal(b.elector.trouble, undefined);
  });

  it('never has two leaders, whichever process is cut off', async () => {
    const connections = [store.connect(), store.connect(), store.connect()];
    const all = connections.map((connection, index) => candidate(`c${index}`, connection));
    let changes = 0;
    for (let step = 0; step < 400; step += 1) {
      const connection = connections[step % 3];
      if (connection !== undefined && step % 20 === 0) {
        connection.broken = !connection.broken;
        changes += 1;
      }
      await clock.pass(500);
      assert.ok(all.filter(({ elector }) => elector.isLeader).length <= 1);
    }
    assert.equal(changes, 20);
    assert.ok((store.lease?.record.transitions ?? 0) > 2);
  });

  it('does not lead after a freeze past its deadline, even before its next step', async () => {
    const a = candidate('a', store.connect());
    await clock.pass(5000);
    const b = candidate('b', store.connect());
    await runPending();
    // Only the time changes: no timer of a fires yet.
    const asked: boolean[] = [];
    const jumped = clock.jump(16_000);
    asked.push(a.elector.isLeader);
    await jumped;
    assert.deepEqual(asked, [false]);
    await clock.pass(1000);
    assert.equal([a, b].filter(({ elector }) => elector.isLeader).length, 1);
    assert.match(a.log[1] ?? '', /^stopped/);
  });

  it('stops leading at once when another process holds its Lease', async () => {
    const a = candidate('a', store.connect());
    await clock.pass(1000);
    const times = { durationMs: 15_000, acquiredMs: 1, renewedMs: 1 };
    store.write({ holder: 'thief', transitions: 9, ...times });
    await runPending();
    assert.deepEqual(a.log, ['started', 'stopped: held by thief']);
    await clock.pass(16_000);
    assert.deepEqual([a.elector.isLeader, store.lease?.record.transitions], [true, 10]);
  });

  it('sees at once what others write to the Lease that it holds', async () => {
    const a = candidate('a', store.connect());
    await clock.pass(1000);
    store.write(store.lease?.record, { 'sutler.dev/drain': '{}' });
    await runPending();
    assert.deepEqual(a.elector.seen.lease?.annotations, { 'sutler.dev/drain': '{}' });
    assert.equal(a.elector.isLeader, true);
  });

  it('leads on although others write between its reads and its writes', async () => {
    const connection = store.connect();
    const { write } = connection;
    const a = candidate('a', connection);
    await clock.pass(1000);
    let refusals = 2;
    connection.write = (...given) => {
      refusals -= 1;
      if (refusals >= 0) store.write(store.lease?.record);
      return write(...given);
    };
    await clock.pass(9_900);
    assert.ok(refusals < 0, 'it has renewed the Lease');
    assert.deepEqual(a.log, ['started']);
  });

  it('creates the Lease again when it was deleted', async () => {
    const a = candidate('a', store.connect());
    await clock.pass(1000);
    store.write(undefined);
    await runPending();
    assert.equal(store.lease?.record.holder, 'a');
    assert.deepEqual(a.log, ['started']);
  });

  it('closes within its time limit while the API hangs', async () => {
    const connection = store.connect();
    const a = candidate('a', connection);
    await runPending();
    connection.hanging = true;
    const closed = a.elector.close();
    await clock.pass(4000);
    await closed;
    assert.deepEqual(a.log, ['started', 'stopped: stopping']);
  });

  it('is unhealthy when it has the Lease and did not renew it in time', async () => {
    const a = candidate('a', store.connect());
    await runPending();
    const jumped = clock.jump(35_001);
    assert.equal(a.elector.isHealthy(), false);
    await jumped;
    assert.equal(a.elector.isHealthy(), true, 'it noticed');
  });
});
