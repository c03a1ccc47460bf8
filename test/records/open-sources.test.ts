import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import type { JobKey } from '#src/queue/contract.ts';
import { registerQueues } from '#src/queue/queues.ts';
import { redisDataEpochStore } from '#src/records/data-epoch.ts';
import { openSources } from '#src/records/open-records.ts';
import { RecordsUnavailable } from '#src/records/ask-redis.ts';
import { VolumeRecords } from '#src/records/volume-record.ts';
import type { TemplateSource } from '#src/volumes/persistent-volume.ts';
import { plannedRequest } from '../harness/planned-request.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

const DRIVER = 'd.example';
const listSources = (redis: Redis): Promise<string[]> =>
  openSources(redis, 'csi', DRIVER).then((uids) => [...uids].toSorted());

describe('openSources', () => {
  let redis: TestRedis;
  let records: VolumeRecords;
  const beginDataEpoch = (quarantineMs = 0) =>
    redisDataEpochStore(redis.redis, 'csi', DRIVER).begin({ id: 'e', quarantineMs, sequence: 0 });
  /** Opens a creation of a volume that is filled from a source, or of an empty one. */
  const open = (id: string, from?: TemplateSource) => {
    const job: JobKey = { kind: 'claim', uid: id, namespace: 'ns', name: id };
    return records.openCreate(id, {
      owner: 'a',
      job,
      planned: plannedRequest(from === undefined ? {} : { source: from }),
      mode: 'plan',
    });
  };
  const source = (resource: TemplateSource['resource'], uid: string): TemplateSource => ({
    resource,
    namespace: 'ns',
    name: uid,
    uid,
    isEchoed: true,
    isReleased: false,
  });
  const snapshot = (uid: string): TemplateSource => source('volumesnapshots', uid);

  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  beforeEach(async () => {
    await redis.redis.flushall();
    await beginDataEpoch();
    records = new VolumeRecords({
      redis: redis.redis,
      prefix: 'csi',
      driver: DRIVER,
      ownMs: 60_000,
      settleMs: 60_000,
    });
  });

  it('lists the sources of open creations, until they are closed', async () => {
    await open('plain');
    await open('restore', snapshot('s-1'));
    await open('clone', source('persistentvolumeclaims', 'c-1'));
    assert.deepEqual(await listSources(redis.redis), ['c-1', 's-1']);
    await records.closeStored('restore', 'a');
    assert.deepEqual(await listSources(redis.redis), ['c-1']);
  });

  it('lists the source of an ambiguous and of a suspect creation', async () => {
    await open('restore', snapshot('s-1'));
    await records.leaveAmbiguous('restore', 'a', 'DeadlineExceeded');
    assert.deepEqual(await listSources(redis.redis), ['s-1']);
    await records.openExisting('restore', {
      owner: 'b',
      job: { kind: 'claim', uid: 'restore', namespace: 'ns', name: 'restore' },
    });
    assert.equal(await records.closeRefused('restore', 'b', 'NotFound'), 'suspect');
    assert.deepEqual(await listSources(redis.redis), ['s-1']);
  });

  it('lists no source of a deletion', async () => {
    await open('restore', snapshot('s-1'));
    await redis.redis.hset(`{csi}:volume:${DRIVER}:restore`, 'state', 'deleting');
    assert.deepEqual(await listSources(redis.redis), []);
  });

  it('ignores text that only looks like a source', async () => {
    await open('text', { resource: 'volumesnapshots' } as TemplateSource);
    await open('annotation');
    const key = `{csi}:volume:${DRIVER}:annotation`;
    await redis.redis.hset(
      key,
      'skel',
      JSON.stringify({ volume: { metadata: { annotations: { source: 'x' } } } }),
    );
    assert.deepEqual(await listSources(redis.redis), []);
  });

  describe('with other drivers in the installation', () => {
    const OTHER = 'other.example';
    const beginOther = (quarantineMs = 0) =>
      redisDataEpochStore(redis.redis, 'csi', OTHER).begin({
        id: 'e',
        quarantineMs,
        sequence: 0,
      });
    const openOther = async (): Promise<void> => {
      const planned = plannedRequest({ source: snapshot('s-other') });
      const others = new VolumeRecords({
        redis: redis.redis,
        prefix: 'csi',
        driver: OTHER,
        ownMs: 60_000,
        settleMs: 60_000,
      });
      await others.openCreate('x', {
        owner: 'a',
        job: { kind: 'claim', uid: 'x', namespace: 'ns', name: 'x' },
        planned,
        mode: 'plan',
      });
    };
    beforeEach(() =>
      registerQueues(redis.redis, 'csi', [
        { name: `claims.${OTHER}`, driver: OTHER, kind: 'claim' },
      ]),
    );

    it('lists the sources of their records too', async () => {
      await beginOther();
      await openOther();
      await open('restore', snapshot('s-1'));
      assert.deepEqual(await listSources(redis.redis), ['s-1', 's-other']);
    });

    it('rejects while their records may be lost', async () => {
      await beginOther(60_000);
      await assert.rejects(listSources(redis.redis), RecordsUnavailable);
    });

    it('skips drivers that sutler has never led', async () => {
      await open('restore', snapshot('s-1'));
      assert.deepEqual(await listSources(redis.redis), ['s-1']);
    });
  });

  it('reads many records in pages', async () => {
    const many = 1_000;
    for (let i = 0; i < many; i += 1)
      await open(`u${i}`, i % 100 === 0 ? snapshot(`s-${i}`) : undefined);
    const before = await redis.commands();
    assert.equal((await listSources(redis.redis)).length, many / 100);
    const { evalsha = 0 } = await redis.commands();
    const pages = evalsha - (before['evalsha'] ?? 0);
    assert.ok(pages >= 4 && pages <= 20, `${pages} pages`);
  });

  it('rejects before the data epoch is confirmed, and in the quarantine', async () => {
    await redis.redis.flushall();
    await assert.rejects(listSources(redis.redis), RecordsUnavailable);
    await beginDataEpoch(60_000);
    await assert.rejects(listSources(redis.redis), RecordsUnavailable);
    await beginDataEpoch();
    assert.deepEqual(await listSources(redis.redis), []);
  });

  it('rejects while Redis can’t be reached', async () => {
    const away = new Redis(redis.url, {
      lazyConnect: true,
      maxRetriesPerRequest: 0,
      retryStrategy: () => null,
    });
    away.on('error', () => undefined);
    away.disconnect();
    await assert.rejects(listSources(away), RecordsUnavailable);
  });
});
