import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import type { JobKey } from '#src/queue/contract.ts';
import { redisActiveGateway } from '#src/records/active-gateway.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { dataEpochKey } from '#src/records/key-names.ts';
import { redisReservedCapacity } from '#src/node-local/reserved-capacity.ts';
import { redisSharedHandles } from '#src/records/shared-handles.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import { makeFolder } from '../harness/csi-folder.ts';
import { plannedRequest } from '../harness/planned-request.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const PREFIX = 'csi';
const DRIVER = 'd.example';
const ID = 'u1';
const JOB: JobKey = { kind: 'claim', uid: ID, namespace: 'ns', name: 'c' };
const HOUR_MS = 3_600_000;
const OWN_MS = 300;
const SETTLE_MS = 300;
/** Within which a wait of OWN_MS and one of SETTLE_MS end. */
const WITHIN_MS = 5_000;

/** What to preload so that a file sets a program's clock: libfaketime, which Debian has, and libc
 * before jemalloc, which reads the clock too early. Undefined where it is not installed: then the
 * record's time in Redis is moved instead. */
const FAKETIME = ['x86_64', 'aarch64']
  .map((arch) => `/usr/lib/${arch}-linux-gnu`)
  .map((folder) => [join(folder, 'faketime/libfaketime.so.1'), join(folder, 'libc.so.6')])
  .find((files) => files.every((file) => existsSync(file)))
  ?.join(':');

/** A Redis whose clock can be set. */
interface SettableRedis extends TestRedis {
  setClock(byMs: number): Promise<void>;
}

/** For the record clock, Redis' clock is set where this field is: nothing else keeps its time. */
async function startWithMovedField(): Promise<SettableRedis> {
  const redis = await startTestRedis();
  const setClock = async (byMs: number): Promise<void> => {
    await redis.redis.hincrby(dataEpochKey(PREFIX, DRIVER), 'clockAt', -byMs);
  };
  return { ...redis, setClock };
}

async function startWithFaketime(preload: string): Promise<SettableRedis> {
  const folder = await makeFolder();
  const file = folder.file('clock');
  await writeFile(file, '+0');
  const env = {
    LD_PRELOAD: preload,
    FAKETIME_TIMESTAMP_FILE: file,
    FAKETIME_NO_CACHE: '1',
    DONT_FAKE_MONOTONIC: '1',
  };
  Object.assign(process.env, env);
  const redis = await startTestRedis().finally(() => {
    for (const name of Object.keys(env)) delete process.env[name];
  });
  let shiftMs = 0;
  return {
    ...redis,
    setClock: async (byMs) => {
      shiftMs += byMs;
      const shown = `${shiftMs < 0 ? '' : '+'}${shiftMs / 1_000}`;
      await writeFile(file, shown);
      await until(async () => {
        const [seconds] = await redis.redis.time();
        return Math.abs(Number(seconds) * 1_000 - Date.now() - shiftMs) < 5_000;
      }, `Redis’ clock is off by ${shown} s`);
    },
    close: async () => {
      await redis.close();
      await folder.remove();
    },
  };
}

describe('waits of records while Redis’ clock is set', () => {
  let redis: SettableRedis;
  let leader: ReturnType<typeof redisDataEpochStore>;
  let ticks: NodeJS.Timeout;
  before(async () => {
    redis = await (FAKETIME === undefined ? startWithMovedField() : startWithFaketime(FAKETIME));
  });
  after(() => redis.close());
  beforeEach(async () => {
    await redis.redis.flushall();
    leader = redisDataEpochStore(redis.redis, PREFIX, DRIVER);
    await leader.advance('');
    await leader.begin({ id: 'e1', quarantineMs: 0, sequence: 0 });
    // As the leader does every second.
    ticks = setInterval(() => void leader.advance('e1'), 100);
  });
  afterEach(() => clearInterval(ticks));

  const records = (ownMs = OWN_MS, settleMs = SETTLE_MS): VolumeRecords =>
    new VolumeRecords({ redis: redis.redis, prefix: PREFIX, driver: DRIVER, ownMs, settleMs });
  const open = (owner: string, store = records()) =>
    store.openCreate(ID, { owner, job: JOB, planned: plannedRequest(), mode: 'plan' });
  const openDelete = (store: VolumeRecords) =>
    store.openDelete(ID, { owner: 'deletion', job: JOB, handle: 'h' });
  /** Leaves the volume stored, after a first call whose end is unknown. */
  const storeAtSecondCall = async (store: VolumeRecords): Promise<void> => {
    await open('first', store);
    await store.leaveAmbiguous(ID, 'first', 'DeadlineExceeded');
    await open('second', store);
    await store.closeStored(ID, 'second');
  };

  it('set back, a dead worker’s record is free when its ownership ends', async () => {
    await open('dead');
    await redis.setClock(-HOUR_MS);
    assert.equal((await open('b')).kind, 'busy');
    await until(async () => (await open('b')).kind === 'replay', 'it is free', WITHIN_MS);
  });

  it('set back, a quarantine lasts no longer', async () => {
    await leader.begin({ id: 'e1', quarantineMs: OWN_MS, sequence: 0 });
    await redis.setClock(-HOUR_MS);
    await until(async () => (await open('a')).kind === 'opened', 'it is over', WITHIN_MS);
  });

  it('set back, a change of gateway is waited for no longer', async () => {
    const active = redisActiveGateway(redis.redis, PREFIX, DRIVER);
    await active.name({ version: 0, endpoint: 'b', waitMs: OWN_MS });
    await redis.setClock(-HOUR_MS);
    await until(async () => (await open('a')).kind === 'opened', 'it is over', WITHIN_MS);
  });

  it('set back, a deletion waits no longer for a call of unknown end', async () => {
    const store = records();
    await storeAtSecondCall(store);
    await redis.setClock(-HOUR_MS);
    await until(async () => (await openDelete(store)).kind === 'opened', 'it begins', WITHIN_MS);
  });

  it('set back, room that a dead run has reserved is free no later', async () => {
    const room = redisReservedCapacity(redis.redis, { prefix: PREFIX, driver: DRIVER }, OWN_MS);
    await room.reserve({ uid: ID, node: 'n', bytes: 5, capacity: 9, madeBefore: 0 });
    await redis.setClock(-HOUR_MS);
    const reserved = async () => (await room.look(['n'])).byNode.get('n')?.reservedBytes;
    await until(async () => (await reserved()) === 0, 'it is free', WITHIN_MS);
  });

  it('set back, what a dead ingest has published of shared handles is used no longer', async () => {
    const handles = redisSharedHandles(redis.redis, PREFIX, DRIVER);
    const volume = { driver: DRIVER, id: 'h', form: 'csi' } as const;
    const { nowMs } = await handles.publish({
      publisher: 'dead',
      version: 1,
      handles: new Map(),
      asOfMs: 0,
    });
    const view = { publisher: 'dead', version: 1, handles: new Map(), asOfMs: nowMs };
    assert.equal((await handles.publish({ ...view, maxAgeMs: OWN_MS })).kind, 'published');
    assert.deepEqual(await handles.sharersOf(volume), []);
    await redis.setClock(-HOUR_MS);
    await until(
      async () => (await handles.sharersOf(volume)) === undefined,
      'it is not used',
      WITHIN_MS,
    );
    const next = { ...view, publisher: 'next', asOfMs: nowMs + HOUR_MS };
    assert.equal((await handles.publish(next)).kind, 'published');
  });

  it('set forward, a live owner keeps its record', async () => {
    await open('alive', records(60_000));
    await redis.setClock(HOUR_MS);
    const found = await open('b');
    assert.equal(found.kind, 'busy', JSON.stringify(found));
  });

  it('set forward, no settle time is skipped', async () => {
    const store = records(20_000, 20_000);
    await storeAtSecondCall(store);
    await redis.setClock(HOUR_MS);
    const found = await openDelete(store);
    assert.ok(found.kind === 'settle' && found.waitMs > 35_000, JSON.stringify(found));
  });

  it('set forward while nobody looked, no settle time is skipped', async () => {
    const store = records(20_000, 20_000);
    await storeAtSecondCall(store);
    clearInterval(ticks);
    await redis.setClock(HOUR_MS);
    // A leader and a worker that have just been started.
    await redisDataEpochStore(redis.redis, PREFIX, DRIVER).advance('e1');
    const started = records(20_000, 20_000);
    await started.rewriteLostRecords();
    const found = await openDelete(started);
    assert.ok(found.kind === 'settle' && found.waitMs > 30_000, JSON.stringify(found));
  });
});

describe('the record clock', () => {
  let redis: TestRedis;
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());

  it('goes on while only a worker lives', async () => {
    const leader = redisDataEpochStore(redis.redis, PREFIX, DRIVER);
    await leader.advance('');
    await leader.begin({ id: 'e1', quarantineMs: 0, sequence: 0 });
    const worker = new VolumeRecords({
      redis: redis.redis,
      prefix: PREFIX,
      driver: DRIVER,
      ownMs: 2_200,
      settleMs: 1,
    });
    await worker.openCreate(ID, { owner: 'a', job: JOB, planned: plannedRequest(), mode: 'plan' });
    await until(async () => {
      await worker.rewriteLostRecords();
      return (await worker.openExisting(ID, { owner: 'b', job: JOB })).kind === 'replay';
    }, 'the ownership has ended');
  });
});
