import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { redisActiveGateway } from '#src/records/active-gateway.ts';
import type { JobKey } from '#src/queue/contract.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { plannedRequest, volumeAnswer } from '../harness/planned-request.ts';
import { sleep } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

const DRIVER = 'd.example';
const A = 'unix:///a';
const B = 'unix:///b';
const id = 'u1';
const job: JobKey = { kind: 'claim', uid: id, namespace: 'ns', name: 'c' };
const planned = plannedRequest({ endpoint: 'unix:///only' });

describe('the active gateway', () => {
  let server: TestRedis;
  const active = () => redisActiveGateway(server.redis, 'csi', DRIVER);
  const name = async (endpoint: string, waitMs = 0): Promise<void> => {
    const { version } = await active().read();
    assert.equal(await active().name({ version, endpoint, waitMs }), true);
  };

  before(async () => (server = await startTestRedis()));
  after(() => server.close());
  beforeEach(async () => {
    await server.redis.flushall();
    await redisDataEpochStore(server.redis, 'csi', DRIVER).begin({
      id: 'e',
      quarantineMs: 0,
      sequence: 0,
    });
  });

  describe('in Redis', () => {
    it('is not named at first', async () => {
      assert.deepEqual(await active().read(), {
        endpoint: '',
        version: 0,
        sinceMs: 0,
        previous: '',
        waitMs: 0,
      });
    });

    it('keeps the previous one, and how long its calls may be under way', async () => {
      await name(A);
      await name(B, 60_000);
      const found = await active().read();
      assert.equal(found.endpoint, B);
      assert.equal(found.previous, A);
      assert.equal(found.version, 2);
      assert.ok(Math.abs(found.sinceMs - Date.now()) < 5_000);
      assert.ok(found.waitMs > 50_000 && found.waitMs <= 60_000);
    });

    it('is named by only one of two leaders that read the same version', async () => {
      await name(A);
      const { version } = await active().read();
      const both = await Promise.all([
        active().name({ version, endpoint: B, waitMs: 0 }),
        active().name({ version, endpoint: A, waitMs: 0 }),
      ]);
      assert.deepEqual(both.toSorted(), [false, true]);
      assert.equal((await active().read()).version, version + 1);
    });

    it('is cleared where the driver runs on each node, and its calls are waited for', async () => {
      await name(A);
      assert.equal(await active().clear(60_000), A);
      const { endpoint, previous, version, waitMs } = await active().read();
      assert.deepEqual([endpoint, previous, version], ['', A, 2]);
      assert.ok(waitMs > 50_000 && waitMs <= 60_000);
      assert.equal(await active().clear(60_000), undefined);
    });

    it('does not shorten a wait when another one is named meanwhile', async () => {
      await name(A);
      await name(B, 60_000);
      await name(A);
      assert.ok((await active().read()).waitMs > 50_000);
    });
  });

  describe('for the volume record', () => {
    const createRecords = (o: { ownMs?: number; settleMs?: number } = {}): VolumeRecords =>
      new VolumeRecords({
        redis: server.redis,
        prefix: 'csi',
        driver: DRIVER,
        ownMs: o.ownMs ?? 60_000,
        settleMs: o.settleMs ?? 60_000,
      });
    const open = (owner: string, records = createRecords()) =>
      records.openCreate(id, { owner, job, planned, mode: 'plan' });
    const remove = (owner: string, records = createRecords()) =>
      records.openDelete(id, { owner, job, handle: 'h' });
    const ep = () => server.redis.hget(`{csi}:volume:${DRIVER}:${id}`, 'ep');

    it('is answered and stored by the script that opens the record', async () => {
      await name(A);
      // Caches the scripts in Redis.
      await open('first');
      await createRecords().revert(id, 'first');
      await server.redis.config('RESETSTAT');
      assert.deepEqual(await open('a'), { kind: 'opened', endpoint: A });
      const commands = await server.commands();
      assert.equal(commands['evalsha'], 1);
      assert.equal(commands['eval'], undefined);
      assert.equal(await ep(), A);
    });

    it('is the planned one while no leader has named any', async () => {
      assert.deepEqual(await open('a'), { kind: 'opened' });
      assert.equal(await ep(), planned.endpoint);
    });

    it('gets a replayed call, and replaces the stored gateway', async () => {
      await name(A);
      await open('a');
      await createRecords().leaveAnswered(id, 'a', volumeAnswer('h'));
      await name(B);
      const replay = await open('b');
      assert.equal(replay.kind === 'replay' && replay.stored.endpoint, B);
      assert.equal(await ep(), B);
    });

    it('is in the answer to a deletion', async () => {
      await name(A);
      assert.deepEqual(await remove('a'), { kind: 'opened', endpoint: A });
      assert.equal(await ep(), A);
    });

    it('lets nothing be opened while calls at the previous one may be under way', async () => {
      await name(A);
      await name(B, 60_000);
      for (const refused of [await open('a'), await remove('b')]) {
        assert.ok(
          refused.kind === 'not-yet' && refused.waitMs > 50_000 && refused.waitMs <= 60_000,
        );
        assert.match(refused.reason, /another gateway/);
      }
      assert.deepEqual(await server.redis.keys('*volume*'), []);
    });

    it('lets records be opened again after that', async () => {
      await name(A);
      await name(B, 20);
      await sleep(30);
      assert.deepEqual(await open('a'), { kind: 'opened', endpoint: B });
    });

    describe('after a call of unknown end', () => {
      const loseAnswer = async (records = createRecords()): Promise<void> => {
        await name(A);
        await open('a', records);
        await records.leaveAmbiguous(id, 'a', 'Unavailable');
      };

      it('gets the repeated call at once if it is the same', async () => {
        await loseAnswer();
        assert.equal((await open('b')).kind, 'replay');
      });

      it('gets no call for that volume before the settle time if it is another', async () => {
        await loseAnswer();
        await name(B);
        const refused = await open('b');
        assert.ok(
          refused.kind === 'not-yet' && refused.waitMs > 100_000 && refused.waitMs <= 120_000,
        );
        assert.match(refused.reason, /behind unix:\/\/\/a/);
        assert.equal(await ep(), A);
      });

      it('gets calls for other volumes meanwhile', async () => {
        await loseAnswer();
        await name(B);
        const other = await createRecords().openCreate('u2', {
          owner: 'x',
          job: { ...job, uid: 'u2' },
          planned,
          mode: 'plan',
        });
        assert.deepEqual(other, { kind: 'opened', endpoint: B });
      });

      it('gets calls for that volume after the settle time', async () => {
        await loseAnswer(createRecords({ ownMs: 1 }));
        await name(B);
        await sleep(10);
        const replay = await open('b', createRecords({ settleMs: 1 }));
        assert.equal(replay.kind === 'replay' && replay.stored.endpoint, B);
      });

      it('gets no call before the settle time of a dead worker’s call', async () => {
        await name(A);
        await open('dead', createRecords({ ownMs: 1 }));
        await sleep(5);
        await name(B);
        assert.equal((await open('b')).kind, 'not-yet');
      });

      it('gets calls at once after answered and unforwarded calls', async () => {
        await name(A);
        await open('a');
        await createRecords().revert(id, 'a');
        await open('b');
        assert.equal(await createRecords().closeRefused(id, 'b', 'ResourceExhausted'), 'removed');
        await name(B);
        assert.deepEqual(await open('c'), { kind: 'opened', endpoint: B });
      });

      it('gets no creation that a deletion has to resolve before the settle time', async () => {
        await loseAnswer();
        await name(B);
        assert.deepEqual(await remove('c'), { kind: 'creating' });
        assert.equal((await createRecords().openExisting(id, { owner: 'c', job })).kind, 'not-yet');
      });

      it('gets no deletion before the settle time of one of unknown end', async () => {
        await name(A);
        await remove('a');
        await createRecords().leaveDeleting(id, 'a', 'Unavailable');
        assert.deepEqual(await remove('b'), { kind: 'opened', endpoint: A });
        await createRecords().leaveDeleting(id, 'b', 'Unavailable');
        await name(B);
        assert.equal((await remove('c')).kind, 'not-yet');
      });

      it('gets no deletion before the settle time of one whose worker died', async () => {
        await name(A);
        await remove('dead', createRecords({ ownMs: 1 }));
        await sleep(5);
        await name(B);
        assert.equal((await remove('b')).kind, 'not-yet');
        assert.deepEqual(await remove('b', createRecords({ settleMs: 1 })), {
          kind: 'opened',
          endpoint: B,
        });
      });

      it('gets a deletion at once after an unforwarded one', async () => {
        await name(A);
        await remove('a');
        await createRecords().revert(id, 'a');
        await name(B);
        assert.deepEqual(await remove('b'), { kind: 'opened', endpoint: B });
      });
    });
  });
});
