import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import type { JobKey } from '#src/queue/contract.ts';
import { dataEpochKey } from '#src/records/key-names.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { redisDrain } from '#src/records/provisioning-pause.ts';
import { openJobs } from '#src/records/open-records.ts';
import { RecordsUnavailable } from '#src/records/ask-redis.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { encodeRequest } from '#src/records/stored-request.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { plannedRequest, volumeAnswer } from '../harness/planned-request.ts';
import { startRedisServer, type TcpRedisServer } from '../harness/redis-server.ts';
import { until } from '../harness/until.ts';

const planned = plannedRequest();
const job: JobKey = { kind: 'claim', uid: 'u1', namespace: 'ns', name: 'c' };
const id = 'u1';

// What each script does to a record in each state is compared with the model by
// test/model/record-conformance.test.ts; this has what the model is without.
describe('volume record', () => {
  let server: TcpRedisServer;
  let redis: Redis;
  let dir: string;
  const createRecords = (
    o: { redis?: Redis; ownMs?: number; settleMs?: number; otherHolder?: string } = {},
  ): VolumeRecords =>
    new VolumeRecords({
      redis: o.redis ?? redis,
      prefix: 'csi',
      driver: 'd.example',
      ownMs: o.ownMs ?? 60_000,
      settleMs: o.settleMs ?? 60_000,
      otherHolder: () => o.otherHolder,
    });
  const records = (): VolumeRecords => createRecords();
  const beginDataEpoch = (dataEpoch: string, quarantineMs = 0) =>
    redisDataEpochStore(redis, 'csi', 'd.example').begin({
      id: dataEpoch,
      quarantineMs,
      sequence: 0,
    });
  const open = (owner: string, r: VolumeRecords = records()) =>
    r.openCreate(id, { owner, job, planned, mode: 'plan' });

  before(async () => {
    dir = await mkdtemp(join(tmpdir(), 'sutler-record-'));
    server = await startRedisServer({ dataDir: dir });
    redis = new Redis(server.url);
  });
  after(async () => {
    redis.disconnect();
    await server.close();
    await rm(dir, { recursive: true, force: true });
  });
  beforeEach(async () => {
    await redis.flushall();
    await beginDataEpoch('e1');
  });

  /** Opens a record for an owner whose ownership has ended when this resolves. */
  async function openAndAbandon(owner: string): Promise<void> {
    await open(owner, createRecords({ ownMs: 1 }));
    await systemClock.sleep(5);
  }

  it('takes two Redis commands for a volume that is created at the first attempt', async () => {
    // Caches the scripts in Redis.
    await open('a');
    await records().closeStored(id, 'a');
    await redis.del('{csi}:volume:d.example:u1');
    await redis.config('RESETSTAT');
    await open('b');
    await records().closeStored(id, 'b');
    const stats = await redis.info('commandstats');
    assert.match(stats, /cmdstat_evalsha:calls=2,/);
    assert.doesNotMatch(stats, /cmdstat_eval:/);
  });

  it('stays under 4 KiB with the longest texts that Redis stores compactly', async () => {
    const identity = 'y'.repeat(1000 - encodeRequest(planned).pvTemplate.length);
    await records().openCreate(id, {
      owner: 'a',
      job,
      planned: {
        ...planned,
        request: Buffer.alloc(750),
        pvTemplate: { ...planned.pvTemplate, identity },
      },
      mode: 'plan',
    });
    assert.ok(Number(await redis.memory('USAGE', '{csi}:volume:d.example:u1')) < 4096);
  });

  describe('record rule 1, fence', () => {
    it('refuses a creation once the volume is gone, until no earlier call can arrive', async () => {
      const r = createRecords({ ownMs: 100, settleMs: 400 });
      await r.openDelete(id, { owner: 'a', job, handle: 'h' });
      await r.closeGone(id, 'a');
      const refused = await open('b', r);
      assert.ok(refused.kind === 'closed' && refused.state === 'gone', refused.kind);
      assert.ok(refused.waitMs > 0 && refused.waitMs <= 500, String(refused.waitMs));
      await until(async () => (await open('b', r)).kind === 'opened', 'it is forgotten', 2_000);
    });

    it('refuses no longer where Redis keeps the record of a deleted volume too long', async () => {
      const r = createRecords({ ownMs: 100, settleMs: 400 });
      await r.openDelete(id, { owner: 'a', job, handle: 'h' });
      await r.endDeletion(id, 'a', 'gone');
      // as Redis does whose clock was set back.
      await redis.expire(`{csi}:volume:d.example:${id}`, 86_400);
      const refused = await open('b', r);
      assert.ok(refused.kind === 'closed' && refused.waitMs <= 500, JSON.stringify(refused));
      await until(async () => (await open('b', r)).kind === 'opened', 'it is forgotten', 2_000);
    });

    it('deletes a second volume of a claim though the first attempt sent nothing', async () => {
      await records().openDelete(id, { owner: 'a', job, handle: 'h' });
      await records().closeGone(id, 'a');
      await records().openDelete(id, { owner: 'b', job, handle: 'second' });
      await records().revert(id, 'b');
      const again = await records().openDelete(id, { owner: 'c', job, handle: 'second' });
      assert.equal(again.kind, 'opened');
    });
  });

  describe('record rule 2, take-over', () => {
    it('hands the stored request to the next owner and marks the record ambiguous', async () => {
      await openAndAbandon('dead');
      const taken = await records().openCreate(id, {
        owner: 'b',
        job,
        planned: plannedRequest({ request: Buffer.from('other') }),
        mode: 'plan',
      });
      assert.equal(taken.kind, 'replay');
      assert.ok(taken.kind === 'replay' && taken.ambiguous);
      assert.equal(await redis.hget('{csi}:volume:d.example:u1', 'n'), '2');
      assert.deepEqual(taken.kind === 'replay' && taken.stored, planned);
    });
  });

  describe('record rule 5, resolve before deleting', () => {
    it('opens no deletion before the settle time, although our repetition has succeeded', async () => {
      await open('a');
      await records().leaveAmbiguous(id, 'a', 'DeadlineExceeded');
      await records().openExisting(id, { owner: 'b', job });
      await records().closeStored(id, 'b');
      const next = await records().openDelete(id, { owner: 'c', job, handle: 'h' });
      assert.ok(next.kind === 'settle' && next.waitMs > 100_000, JSON.stringify(next));
    });

    it('says how long a call of unknown end may still be at work', async () => {
      await open('a');
      await records().leaveAmbiguous(id, 'a', 'DeadlineExceeded');
      const next = await open('b');
      assert.ok(next.kind === 'replay' && next.settlesInMs > 100_000, JSON.stringify(next));
    });

    it('says that no call is at work when the settle time is over', async () => {
      const quick = createRecords({ ownMs: 1, settleMs: 1 });
      await open('a', quick);
      await quick.leaveAmbiguous(id, 'a', 'DeadlineExceeded');
      await systemClock.sleep(10);
      const next = await open('b', quick);
      assert.ok(next.kind === 'replay' && next.ambiguous && next.settlesInMs === 0);
    });
  });

  describe('record rule 6, lost data', () => {
    const empty = async (quarantineMs: number): Promise<void> => {
      await redis.flushall();
      await beginDataEpoch('e2', quarantineMs);
    };

    it('opens nothing during the quarantine, and says how long it lasts', async () => {
      await empty(60_000);
      const refused = await open('a');
      assert.ok(refused.kind === 'not-yet' && refused.waitMs > 50_000 && refused.waitMs <= 60_000);
    });

    it('has the worker rewrite what it left open, ambiguous and without owner', async () => {
      const worker = records();
      await open('a', worker);
      await empty(1);
      assert.deepEqual(await worker.rewriteLostRecords(), [job]);
      assert.deepEqual([...(await openJobs(redis, 'csi', 'd.example')).keys()], [id]);
      await systemClock.sleep(5);
      const next = await open('b');
      assert.ok(next.kind === 'replay' && next.ambiguous);
      assert.deepEqual(next.kind === 'replay' && next.stored, planned);
    });

    it('rewrites nothing that was closed, by this worker or another', async () => {
      const worker = records();
      await open('a', worker);
      await worker.leaveAmbiguous(id, 'a', 'Unavailable');
      await open('b', records());
      await records().closeStored(id, 'b');
      assert.deepEqual(await worker.rewriteLostRecords(), []);
      await empty(1);
      assert.deepEqual(await worker.rewriteLostRecords(), []);
      assert.equal(worker.leftOpen, 0);
    });
  });

  it('checks what was left open with a script for each thousand, and sends no request', async () => {
    const worker = records();
    const openings = Array.from({ length: 2_500 }, (_, at) =>
      worker.openCreate(`u${at}`, { owner: 'a', job, planned, mode: 'plan' }),
    );
    await Promise.all(openings);
    await worker.rewriteLostRecords();
    await redis.config('RESETSTAT');
    assert.deepEqual(await worker.rewriteLostRecords(), []);
    const stats = (await redis.info('commandstats')) + (await redis.info('stats'));
    assert.match(stats, /cmdstat_evalsha:calls=3,/);
    const bytes = Number(/total_net_input_bytes:(\d+)/.exec(stats)?.[1]);
    assert.ok(bytes < 2_500 * 20, `${bytes} bytes`);
    assert.equal(worker.leftOpen, 2_500);
  });

  describe('a run whose connection to Redis breaks', () => {
    let link: Redis;
    let worker: VolumeRecords;
    /** What the connection loses: nothing, what is sent, or the answer to it. */
    let loses: 'nothing' | 'command' | 'answer';
    beforeEach(async () => {
      link = new Redis(server.url);
      worker = createRecords({ redis: link });
      loses = 'nothing';
      await open('0', worker);
      await worker.closeRefused(id, '0', 'Internal');
      const send = link.evalsha.bind(link);
      link.evalsha = (async (...args: Parameters<typeof send>) => {
        const answer = loses === 'command' ? undefined : await send(...args);
        if (loses !== 'nothing') throw new Error('Connection is closed.');
        return answer;
      }) as typeof link.evalsha;
    });
    afterEach(() => link.disconnect());

    const ends = {
      closeStored: () => worker.closeStored(id, 'a'),
      closeRefused: () => worker.closeRefused(id, 'a', 'Internal'),
      leaveAmbiguous: () => worker.leaveAmbiguous(id, 'a', 'Unavailable'),
      leaveAnswered: () => worker.leaveAnswered(id, 'a', volumeAnswer('h')),
      revert: () => worker.revert(id, 'a'),
    };
    for (const [name, end] of Object.entries(ends))
      it(`ends its creation when Redis is back: ${name}`, async () => {
        await open('a', worker);
        loses = 'command';
        await assert.rejects(end(), RecordsUnavailable);
        assert.equal((await open('b')).kind, 'busy');
        loses = 'nothing';
        await worker.rewriteLostRecords();
        assert.notEqual((await open('b')).kind, 'busy');
      });

    const openDelete = (owner: string, r: VolumeRecords) =>
      r.openDelete(id, { owner, job, handle: 'h' });
    const deletionEnds = {
      closeGone: () => worker.closeGone(id, 'a'),
      leaveDeleting: () => worker.leaveDeleting(id, 'a', 'Unavailable'),
      revert: () => worker.revert(id, 'a'),
    };
    for (const [name, end] of Object.entries(deletionEnds))
      it(`ends its deletion when Redis is back: ${name}`, async () => {
        await openDelete('a', worker);
        loses = 'command';
        await assert.rejects(end(), RecordsUnavailable);
        assert.equal((await openDelete('b', records())).kind, 'busy');
        loses = 'nothing';
        await worker.rewriteLostRecords();
        assert.notEqual((await openDelete('b', records())).kind, 'busy');
      });

    for (const [name, begin] of Object.entries({ creation: open, deletion: openDelete }))
      it(`gives back a ${name} that it does not know to be open`, async () => {
        loses = 'answer';
        await assert.rejects(begin('a', worker), RecordsUnavailable);
        assert.equal((await begin('b', records())).kind, 'busy');
        loses = 'nothing';
        await worker.rewriteLostRecords();
        assert.equal((await begin('b', records())).kind, 'opened');
      });

    it('does not keep the next run of the same process waiting', async () => {
      await openDelete('a', worker);
      loses = 'command';
      await assert.rejects(worker.revert(id, 'a'), RecordsUnavailable);
      loses = 'nothing';
      assert.equal((await openDelete('b', worker)).kind, 'opened');
    });

    it('leaves the record to the run that has it by now', async () => {
      const quick = createRecords({ redis: link, ownMs: 1 });
      await openDelete('a', quick);
      loses = 'command';
      await assert.rejects(quick.closeGone(id, 'a'), RecordsUnavailable);
      loses = 'nothing';
      await systemClock.sleep(5);
      await openDelete('b', records());
      await quick.rewriteLostRecords();
      assert.equal((await openDelete('c', records())).kind, 'busy');
    });
  });

  describe('record rule 8, a Redis that went back', () => {
    /** Brings Redis back to what it had before `between`, as a failover to a replica that lagged
     * behind does. */
    async function loseWritesOf(between: () => Promise<unknown>): Promise<void> {
      const keys = await redis.keys('*');
      const dumps = await Promise.all(keys.map((key) => redis.dumpBuffer(key)));
      await between();
      await redis.flushall();
      for (const [at, key] of keys.entries()) {
        const dump = dumps[at];
        if (dump) await redis.restore(key, 0, dump);
      }
    }
    let goBack: () => void = () => undefined;
    const confirmed = () => redis.hget('{csi}:blessing:d.example', 'epoch');
    const states = async (): Promise<string | null> =>
      redis.hget('{csi}:volume:d.example:u1', 'state');

    it('is noticed by the next opening of the same worker', async () => {
      const worker = records();
      await loseWritesOf(() => open('a', worker));
      const other = { owner: 'b', job, planned, mode: 'plan' } as const;
      assert.equal((await worker.openCreate('u2', other)).kind, 'not-yet');
      assert.equal(await confirmed(), null);
    });

    it('is noticed when a deletion’s opening was lost', async () => {
      const worker = records();
      await loseWritesOf(() => worker.openDelete(id, { owner: 'a', job, handle: 'h' }));
      await worker.rewriteLostRecords();
      assert.equal(await confirmed(), null);
    });

    it('is noticed although an opening that was under way counts again', async () => {
      const link = new Redis(server.url);
      const worker = createRecords({ redis: link });
      const first = () => open('a', worker);
      const second = () =>
        worker.openCreate('u2', { owner: 'b', job, planned, mode: 'plan' }).then(() => undefined);
      let underWay = Promise.resolve();
      await loseWritesOf(async () => {
        const opened = first();
        // Its arguments are those of now, but it reaches Redis only after it went back.
        const send = link.evalsha.bind(link);
        const wentBack = new Promise<void>((resolve) => (goBack = resolve));
        link.evalsha = ((...args: Parameters<typeof send>) =>
          wentBack.then(() => send(...args))) as typeof link.evalsha;
        underWay = second();
        link.evalsha = send;
        await opened;
      });
      goBack();
      await underWay;
      await worker.rewriteLostRecords();
      assert.equal(await confirmed(), null);
      await beginDataEpoch('e2');
      assert.ok((await worker.rewriteLostRecords()).length > 0);
      assert.equal(await states(), 'creating');
      link.disconnect();
    });

    it('begins only one new data epoch for one loss', async () => {
      const [first, second] = [records(), records()];
      await loseWritesOf(async () => {
        await open('a', first);
        await second.openCreate('u2', { owner: 'b', job, planned, mode: 'plan' });
      });
      await first.rewriteLostRecords();
      await beginDataEpoch('e2');
      await second.rewriteLostRecords();
      assert.equal(await confirmed(), 'e2');
    });
  });

  describe('an opening that is sent again because its answer was lost', () => {
    const asAgain = { owner: 'a', job, planned, mode: 'plan' } as const;

    it('answers with the stored request again', async () => {
      await open('z');
      await records().leaveAnswered(id, 'z', volumeAnswer('h'));
      const first = await open('a');
      assert.deepEqual(await records().openCreate(id, asAgain), first);
      assert.equal(await redis.hget('{csi}:volume:d.example:u1', 'n'), '2');
    });

    it('opens a deletion only once', async () => {
      await records().openDelete(id, { owner: 'a', job, handle: 'h' });
      assert.deepEqual(await records().openDelete(id, { owner: 'a', job, handle: 'h' }), {
        kind: 'opened',
      });
      assert.equal(await redis.hget('{csi}:volume:d.example:u1', 'n'), '1');
    });

    it('is no loss of data', async () => {
      const worker = records();
      await open('a', worker);
      await worker.openCreate(id, asAgain);
      await worker.rewriteLostRecords();
      assert.equal(await redis.hget('{csi}:blessing:d.example', 'epoch'), 'e1');
    });
  });

  describe('while another provisioner leads', () => {
    const setOtherProvisioner = (holder: string) =>
      redisDataEpochStore(redis, 'csi', 'd.example').setOtherProvisioner(holder);

    it('opens nothing new, and says who leads', async () => {
      await setOtherProvisioner('csi-provisioner-0');
      const refused = await open('a');
      assert.ok(refused.kind === 'not-yet' && refused.reason.startsWith('csi-provisioner-0 holds'));
      assert.equal(
        (await records().openDelete(id, { owner: 'a', job, handle: 'h' })).kind,
        'not-yet',
      );
    });

    it('opens nothing new in a process that sees it by itself', async () => {
      const worker = createRecords({ otherHolder: 'csi-provisioner-0' });
      assert.equal((await open('a', worker)).kind, 'not-yet');
      assert.equal((await open('b')).kind, 'opened');
    });

    it('tells a run without an open record before it reads its object', async () => {
      const worker = records();
      await setOtherProvisioner('csi-provisioner-0');
      assert.equal(await worker.haltUnlessOpen([id]), undefined, 'not known yet');
      await open('a', worker);
      assert.match((await worker.haltUnlessOpen([id]))?.reason ?? '', /^csi-provisioner-0 holds/);
    });

    it('lets the run of an open record go on', async () => {
      await open('a');
      const worker = createRecords({ otherHolder: 'csi-provisioner-0' });
      assert.equal(await worker.haltUnlessOpen(['other', id]), undefined);
      assert.notEqual(await worker.haltUnlessOpen(['other']), undefined);
    });
  });

  describe('while sutler is drained', () => {
    const drain = () => redisDrain(redis, 'csi', 'd.example');
    beforeEach(() => drain().begin({ by: 'me', atMs: 1 }));

    it('opens nothing new', async () => {
      const refused = await open('a');
      assert.ok(refused.kind === 'not-yet' && refused.isHalt && /drained/.test(refused.reason));
      const deletion = await records().openDelete(id, { owner: 'a', job, handle: 'h' });
      assert.equal(deletion.kind, 'not-yet');
    });

    it('opens again when the drain was ended', async () => {
      assert.equal(await drain().end(), true);
      assert.equal((await open('a')).kind, 'opened');
    });

    it('stays drained when a leader begins its term', async () => {
      const store = redisDataEpochStore(redis, 'csi', 'd.example');
      const { isDrained } = await store.advance('e1', { id: 't', transitions: 3 });
      assert.equal(isDrained, true);
      assert.equal((await open('a')).kind, 'not-yet');
    });
  });

  describe('after a leader of ours has begun its term', () => {
    const advance = (term: string, transitions = 0) =>
      redisDataEpochStore(redis, 'csi', 'd.example').advance('e1', { id: term, transitions });

    it('opens nothing for a run that read its object before', async () => {
      const worker = records();
      const before = await worker.seenDataEpoch();
      await advance('t1');
      const openAs = (dataEpoch: string) =>
        worker.openCreate(id, { owner: 'a', job, planned, mode: 'plan', dataEpoch });
      const refused = await openAs(before);
      assert.ok(refused.kind === 'not-yet' && refused.waitMs === 0 && !refused.isHalt);
      assert.equal((await openAs(await worker.seenDataEpoch())).kind, 'opened');
    });

    it('opens the deletion of no run that read its volume before', async () => {
      const worker = records();
      await advance('t1');
      const dataEpoch = await worker.seenDataEpoch();
      await advance('t2');
      const attempt = { owner: 'a', job, handle: 'h', dataEpoch };
      assert.equal((await worker.openDelete(id, attempt)).kind, 'not-yet');
    });

    it('says so of a creation that was opened before', async () => {
      await advance('t1');
      await open('a');
      await records().leaveAmbiguous(id, 'a', 'Unavailable');
      const isOfEarlierTerm = async (owner: string): Promise<boolean> => {
        const replay = await records().openExisting(id, { owner, job });
        assert.ok(replay.kind === 'replay');
        await records().leaveAmbiguous(id, owner, 'Unavailable');
        return replay.isOfEarlierTerm;
      };
      assert.equal(await isOfEarlierTerm('b'), false);
      await advance('t2');
      assert.equal(await isOfEarlierTerm('c'), true);
    });

    it('takes no creation that was left open for lost', async () => {
      const worker = records();
      await open('a', worker);
      await worker.closeRefused(id, 'a', 'InvalidArgument');
      await open('b', worker);
      await records().closeStored(id, 'b');
      await redis.del('{csi}:volume:d.example:u1');
      await advance('t1');
      assert.deepEqual(await worker.rewriteLostRecords(), []);
    });

    for (const [what, transitions, isAfterOther] of [
      ['the next holder', 6, false],
      ['the same holder', 5, false],
      ['not the next holder', 7, true],
      ['the holder of a new Lease', 1, true],
    ] as const)
      it(`tells ${what} ${isAfterOther ? 'that another may have led' : 'of no other'}`, async () => {
        await advance('t1', 5);
        assert.equal((await advance('t2', transitions)).isAfterOther, isAfterOther);
        assert.equal((await advance('t2', transitions)).isAfterOther, false, 'only once');
      });

    for (const [what, foreign, transitions, isNew] of [
      ['goes on when a leader of ours follows one of ours', '', 6, false],
      ['begins anew after another provisioner was named', 'host-1', 6, true],
      ['begins anew when another held the Lease between', '', 7, true],
      ['begins anew when nothing is known of the Lease', '', 0, true],
    ] as const)
      it(what, async () => {
        const term = () => redis.hget(dataEpochKey('csi', 'd.example'), 'term');
        await advance('t1', 5);
        if (foreign !== '')
          await redisDataEpochStore(redis, 'csi', 'd.example').setOtherProvisioner(foreign);
        await advance('t2', transitions);
        await advance('t2', transitions);
        assert.equal(await term(), isNew ? 't2' : 't1');
      });

    it('tells the first leader of a Lease that another held', async () => {
      assert.equal((await advance('t1', 4)).isAfterOther, true);
    });

    it('tells the first leader of a new Lease of no other', async () => {
      assert.equal((await advance('t1', 0)).isAfterOther, false);
    });

    it('tells a leader after another provisioner that was seen', async () => {
      await advance('t1', 5);
      await redisDataEpochStore(redis, 'csi', 'd.example').setOtherProvisioner('u');
      assert.equal((await advance('t2', 6)).isAfterOther, true);
    });
  });

  describe('reverted, because nothing was forwarded', () => {
    it('remembers a duplicate that was left, also when a later run can’t use the record', async () => {
      await open('a');
      await records().leaveAmbiguous(id, 'a', 'DuplicateVolume');
      await open('b');
      await records().revert(id, 'b', 'UnusableRecord');
      const next = await open('c');
      assert.ok(next.kind === 'replay');
      assert.equal(next.lastCode, 'DuplicateVolume');
    });
  });

  it('gives the driver’s answer to the next owner when only the PV write failed', async () => {
    await open('a');
    await records().leaveAnswered(id, 'a', volumeAnswer('h'));
    const next = await open('b');
    assert.ok(next.kind === 'replay' && next.answer?.handle === 'h' && !next.ambiguous);
  });

  it('keeps the code of the last attempt', async () => {
    const lastCode = () => redis.hget('{csi}:volume:d.example:u1', 'code');
    await open('a');
    assert.equal(await lastCode(), null);
    await records().leaveAmbiguous(id, 'a', 'DeadlineExceeded');
    await open('b');
    assert.equal(await lastCode(), 'DeadlineExceeded');
    await records().leaveAmbiguous(id, 'b', 'Unavailable');
    assert.equal(await lastCode(), 'Unavailable');
  });

  it('forgets a volume a day after it was stored', async () => {
    await open('a');
    await records().closeStored(id, 'a');
    assert.ok((await redis.ttl('{csi}:volume:d.example:u1')) > 86_000);
  });

  it('rejects while Redis can’t be reached', async () => {
    const unreachable = new Redis({
      host: '127.0.0.1',
      port: 1,
      lazyConnect: true,
      maxRetriesPerRequest: 0,
      retryStrategy: () => null,
    });
    unreachable.on('error', () => undefined);
    const records = new VolumeRecords({
      redis: unreachable,
      prefix: 'csi',
      driver: 'd.example',
      ownMs: 1000,
      settleMs: 1000,
    });
    await assert.rejects(
      records.openCreate(id, { owner: 'a', job, planned, mode: 'plan' }),
      RecordsUnavailable,
    );
    unreachable.disconnect();
  });
});
