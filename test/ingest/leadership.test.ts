import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { OwnLeader } from '#src/election/own-leader.ts';
import { readDriverNote } from '#src/hints/driver-note.ts';
import { LeaderOnlyQueue } from '#src/ingest/leader-only-queue.ts';
import { type LeaderLease, Leadership, type LeadershipOptions } from '#src/ingest/leadership.ts';
import { Resync } from '#src/ingest/resync.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { beginTerm, forgetHistory, readHistory } from '#src/queue/history.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Leading } from '#src/queue/work-queue.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { createLogger } from '#src/runtime/log.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('Leadership', () => {
  const key: JobKey = { kind: 'claim', uid: 'u', namespace: 'n', name: 'c' };
  let server: TestRedis;
  let [driver, serial] = ['', 0];
  /** What has happened, in order. */
  let done: string[];
  let begun: Leading[];
  let lease: { -readonly [field in keyof LeaderLease]: LeaderLease[field] };
  let journal: {
    -readonly [field in keyof LeadershipOptions['journal']]: LeadershipOptions['journal'][field];
  };
  let queue: LeaderOnlyQueue;
  let resync: Resync;
  let leadership: Leadership;
  let ownLeader: OwnLeader | undefined, link: { trouble: string | undefined };
  let serves: Set<string>, lines: string[];

  const place = () => ({ redis: server.redis, prefix: 'csi', driver });
  const termOf = (): Promise<string | null> => server.redis.get(`{csi}:term:${driver}`);
  const note = (what: string) => (): void => void done.push(what);
  const open = (): Leadership => {
    const write = (line: string): void => void lines.push(line);
    const log = createLogger({ name: 'test', verbosity: 0, format: 'text', write });
    queue = new LeaderOnlyQueue(
      { ensureQueued: note('queued'), enqueueNow: note('now'), promote: note('promoted') },
      60_000,
    );
    resync = new Resync({
      // eslint-disable-next-line @typescript-eslint/require-await -- a generator without a wait
      async *outstanding() {
        yield key;
      },
      entries: () => [],
      intervalMs: Infinity,
      queue,
      clock: systemClock,
      log,
    });
    return new Leadership({
      namespace: 'default',
      place: place(),
      link,
      queue,
      journal,
      dispatcher: {
        begin: (leading) => (begun.push(leading), note('begun')()),
        end: note('ended'),
        look: () => Promise.resolve(),
      },
      work: { emptied: note('emptied') },
      resync,
      pause: { learn: () => undefined, forget: note('pause forgotten') },
      sweep: { begin: note('swept'), tick: () => undefined },
      ownLeader,
      prepare: () => Promise.resolve(note('prepared')()),
      serves,
      driverTrouble: () => undefined,
      log,
    });
  };
  const untilBegun = (count = 1): Promise<void> =>
    until(() => begun.length === count && done.includes('queued'), `begun ${count} times`);
  /** Resolves when what could be done at once is done, also on Redis. */
  const untilSteps = async (): Promise<void> => {
    for (let n = 0; n < 10; n += 1) await server.redis.ping();
  };
  const beginAnew = async (): Promise<void> => {
    leadership.begin(lease);
    await untilBegun();
    done = [];
  };

  before(async () => {
    server = await startTestRedis();
  });
  after(() => server.close());
  beforeEach(() => {
    driver = `d${(serial += 1)}.example`;
    done = [];
    begun = [];
    lines = [];
    serves = new Set();
    link = { trouble: undefined };
    ownLeader = undefined;
    lease = {
      isLeader: true,
      leadsForMs: 10_000,
      holder: 'sutler_a',
      transitions: 7,
      seen: { lease: undefined, otherHolder: undefined },
      renewNow: async (least = 0) => {
        lease.transitions = Math.max(lease.transitions, least);
        const annotation = leadership.annotations(lease)['sutler.dev/redis-history'] ?? '';
        done.push(`Lease ${annotation.split('/')[0]}, term ${(await termOf())?.split('/')[0]}`);
      },
    };
    journal = {
      begin: (transitions) => {
        done.push(`journal of ${transitions}`);
        journal.isOff = false;
        return Promise.resolve(['u1', 'u2']);
      },
      end: () => undefined,
      isOff: false,
      tidy: () => Promise.resolve(),
      trouble: undefined,
      unfinishedUids: () => ['u1', 'u2'],
    };
    leadership = open();
  });
  afterEach(() => {
    leadership.end('test');
    resync.stop();
  });

  const STEPS = 'ended; Lease 7, term 7; journal of 7; emptied; prepared; begun; queued'.split(
    '; ',
  );

  it('writes its term, then the history to the Lease, reads the journal, and begins (J3)', async () => {
    leadership.begin(lease);
    assert.match(leadership.trouble ?? '', /just begun to lead/);
    assert.ok(serves.has(driver));
    await untilBegun();
    assert.equal(leadership.trouble, undefined);
    assert.deepEqual(done, ['swept', ...STEPS]);
    const { history, isOfHistory } = await readHistory(place());
    assert.deepEqual([begun[0]?.history, isOfHistory], [history, true]);
    assert.equal(leadership.annotations(lease)['sutler.dev/redis-history'], `7/${history}`);
  });

  it('enqueues nothing after its end', async () => {
    await beginAnew();
    leadership.end('test');
    done = [];
    queue.ensureQueued(key);
    leadership.tick(lease.seen);
    await leadership.report(lease.seen);
    assert.deepEqual([done, serves.size], [[], 0]);
  });

  for (const [what, lose] of [
    ['was emptied', () => server.redis.flushall()],
    ['failed over', () => forgetHistory(place())],
  ] as const)
    it(`begins again when it is told that Redis ${what}`, async () => {
      await beginAnew();
      await lose();
      leadership.outdated();
      await untilBegun(2);
      assert.deepEqual(done, STEPS);
      assert.notEqual(begun[1]?.history, begun[0]?.history);
      assert.match(lines.join(''), /Redis has lost its data or failed over/);
    });

  for (const why of ['Redis can be reached again', 'changes may have been missed'] as const)
    it(`resyncs when ${why}`, async () => {
      await beginAnew();
      leadership.request(why);
      await until(() => done.includes('queued'), 'it resyncs');
      assert.deepEqual(done, ['queued']);
    });

  it('tells why it can’t begin, and tries again', async () => {
    const { begin } = journal;
    journal.begin = () => Promise.reject(new Error('the API server is away'));
    leadership.begin(lease);
    await until(() => leadership.trouble?.includes('API server') === true, 'it is told');
    assert.equal(leadership.trouble, 'nothing is enqueued: the API server is away');
    assert.deepEqual(begun, []);
    journal.begin = begin;
    leadership.tick(lease.seen);
    await untilBegun();
    assert.equal(leadership.trouble, undefined);
  });

  it('tries the journal again later where this account may not write it', async (t) => {
    await beginAnew();
    journal.isOff = true;
    leadership.tick(lease.seen);
    await untilSteps();
    assert.deepEqual(done, []);
    const { now } = performance;
    t.mock.method(performance, 'now', () => now.call(performance) + 61_000);
    leadership.tick(lease.seen);
    await untilBegun(2);
    assert.ok((done as readonly string[]).includes('journal of 7'));
  });

  it('raises the Lease’s count of holders where that was deleted and counts from 0', async () => {
    await beginTerm(place(), { transitions: 20, leader: 'of-before' }, false);
    leadership.begin(lease);
    await untilBegun();
    assert.equal(begun[0]?.term.transitions, 21);
    assert.match((await termOf()) ?? '', /^21\//);
  });

  it('names --redis-prefix where another installation has the term', async () => {
    await beginAnew();
    await beginTerm(place(), { transitions: 20, leader: 'of-another' }, false);
    leadership.outdated();
    await until(() => leadership.trouble?.includes('prefix') === true, 'it is told');
    assert.equal(
      leadership.trouble,
      `nothing is enqueued: another installation serves driver ${driver} with this Redis and ` +
        '--redis-prefix=csi: give one of them another --redis-prefix',
    );
    assert.equal(begun.length, 1);
    assert.match((await termOf()) ?? '', /^20\/of-another$/);
  });

  it('does not begin if it leads no more when it could', async () => {
    let wasRead = false;
    journal.begin = () => {
      lease.isLeader = false;
      wasRead = true;
      return Promise.resolve([]);
    };
    leadership.begin(lease);
    await until(() => wasRead, 'the journal is read');
    await untilSteps();
    assert.deepEqual(begun, []);
  });

  describe('with a Redis of its own', () => {
    beforeEach(() => {
      ownLeader = new OwnLeader();
      leadership = open();
      ownLeader.follow(lease);
    });
    const verdict = (): string | undefined => {
      const { history = '' } = begun.at(-1) ?? {};
      return ownLeader?.judge(history, true).kind;
    };

    it('lets jobs call the driver once it has begun, and not after its end', async () => {
      assert.equal(verdict(), 'unclear');
      await beginAnew();
      assert.equal(verdict(), 'may');
      leadership.end('test');
      assert.equal(verdict(), 'unclear');
    });

    for (const [what, transitions, drops] of [
      ['drops its jobs where another process has led since', 9, true],
      ['keeps its jobs where nobody has led since', 7, false],
    ] as const)
      it(what, async () => {
        await beginAnew();
        leadership.end('test');
        lease.transitions = transitions;
        done = [];
        leadership.begin(lease);
        await until(() => begun.length === 2, 'it has begun again');
        assert.equal(done.includes('emptied'), drops, done.join());
        assert.equal(begun[1]?.history !== begun[0]?.history, drops);
      });
  });

  describe('tells people', () => {
    const times = { durationMs: 15_000, acquiredMs: 0, renewedMs: 0, transitions: 7 };
    const seen = (
      otherHolder?: string,
      annotations: Readonly<Record<string, string>> = {},
    ): Parameters<Leadership['report']>[0] => ({
      lease: { record: { holder: otherHolder ?? 'sutler_a', ...times }, annotations },
      otherHolder,
    });

    it('what is in the journal, how many of these claims are in doubt, and who drains', async () => {
      const root = queueRoot('csi', queueName('claim', driver));
      for (const uid of ['u1', 'u2']) await server.redis.hset(root + uid, 'until', 2 ** 42);
      await beginAnew();
      const drain = '{"by":"ann","at":"2026-01-01T00:00:00Z"}';
      await leadership.report(seen(undefined, { 'sutler.dev/drain': drain }));
      const { doubtEndsMs: _, ...told } = await readDriverNote(place());
      const who = { by: 'ann', atMs: Date.UTC(2026, 0, 1) };
      assert.deepEqual(told, { entries: 2, inDoubt: 2, drain: who });
      journal.unfinishedUids = () => ['u1'];
      await leadership.report(seen());
      assert.equal((await readDriverNote(place())).inDoubt, 1);
    });

    it('nothing while another ingest of ours leads, and who else holds the Lease', async () => {
      await leadership.report(seen());
      assert.deepEqual(await readDriverNote(place()), {});
      await leadership.report(seen('upstream-0'));
      assert.deepEqual(await readDriverNote(place()), { otherProvisioner: 'upstream-0' });
    });
  });
});
