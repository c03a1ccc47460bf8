import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import type { JobKey } from '#src/queue/contract.ts';
import { beginTerm, forgetHistory } from '#src/queue/history.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import {
  forgetKey,
  type Leading,
  LeadershipOutdated,
  type WorkQueue,
} from '#src/queue/work-queue.ts';
import type { RedisLink } from '#src/redis/connection.ts';
import { beginLeading } from '../harness/leading.ts';
import { claimKey, openTestWorkQueue, QueueBench, volumeKey } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

describe('WorkQueue', () => {
  let server: TestRedis;
  let bench: QueueBench;
  let driver = '';
  let serial = 0;
  let link: RedisLink;
  let queue: WorkQueue;
  let leading: Leading;
  const key = claimKey('data');
  const place = () => ({ redis: server.redis, prefix: 'csi', driver });
  const rootOf = (kind: 'claim' | 'volume' = 'claim'): string =>
    queueRoot('csi', queueName(kind, driver));
  const add = (each: JobKey = key) => queue.add(each.kind, [{ key: each, isNow: false }], leading);

  before(async () => {
    server = await startTestRedis();
  });
  after(() => server.close());
  beforeEach(async () => {
    driver = `d${(serial += 1)}.example`;
    bench = new QueueBench(server, driver);
    ({ link, queue, leading } = await openTestWorkQueue(server, driver));
  });
  afterEach(async () => {
    await bench.close();
    await queue.close();
    link.close();
  });

  it('writes the key, and what the job has to know, and nothing else', async () => {
    const journal = 'd-example-journal-0';
    const request = { key: { ...key, claim: 'JSON of it' }, isNow: false, journal };
    await queue.add('claim', [request], leading);
    const { data = '' } = await server.redis.hgetall(rootOf() + key.uid);
    assert.deepEqual(JSON.parse(data), { v: 1, ...key, journal });
  });

  it('adds jobs after Redis was frozen between its first look and its first transaction', async (t) => {
    await queue.add('claim', [], leading);
    const { redis } = link;
    const { options } = redis;
    const { commandTimeout } = options;
    options.commandTimeout = 200;
    const watch = redis.watch.bind(redis);
    redis.watch = (async (...keys: string[]) => {
      const answer = await watch(...keys);
      server.freeze();
      return answer;
    }) as typeof redis.watch;
    t.after(() => server.thaw());
    await assert.rejects(add(), /Command timed out/);
    redis.watch = watch;
    options.commandTimeout = commandTimeout;
    server.thaw();
    await add();
    assert.equal(await server.redis.exists(rootOf() + key.uid), 1);
  });

  it('runs claims of a small namespace between those of a large one', async () => {
    const addAll = (count: number, namespace: string) =>
      queue.add(
        'claim',
        Array.from({ length: count }, (_, i) => ({
          key: claimKey(`c${i}`, namespace),
          isNow: false,
        })),
        leading,
      );
    await addAll(100, 'large');
    await addAll(3, 'small');
    const order = await server.redis.zrange(`${rootOf()}prioritized`, 0, '5');
    assert.deepEqual(order, [
      'uid-large-c0',
      'uid-small-c0',
      'uid-large-c1',
      'uid-small-c1',
      'uid-large-c2',
      'uid-small-c2',
    ]);
  });

  describe('refuses', () => {
    const isRefused = async (): Promise<void> => {
      await assert.rejects(add(), LeadershipOutdated);
      assert.equal(await server.redis.exists(rootOf() + key.uid), 0);
    };
    /** Between the look and BullMQ's transaction. */
    const beforeTransaction = (act: () => Promise<unknown>): void => {
      const multi = link.redis.multi.bind(link.redis) as () => ReturnType<typeof link.redis.multi>;
      link.redis.multi = ((): unknown => {
        const transaction = multi();
        const exec = transaction.exec.bind(transaction);
        transaction.exec = async () => {
          await act();
          return exec();
        };
        return transaction;
      }) as typeof link.redis.multi;
    };
    it('the job of a leader whose term ends between its look and its transaction', async () => {
      beforeTransaction(() => beginTerm(place(), { transitions: 2, leader: 'other' }, false));
      await isRefused();
    });

    it('a job where another leader drops all jobs between the look and the transaction', async () => {
      beforeTransaction(async () => {
        await forgetHistory(place());
        await beginLeading(place(), 2);
      });
      await isRefused();
    });
  });

  it('replaces a job that is in no list of its queue, which would never run', async () => {
    for (const [each, list] of [
      [key, 'prioritized'],
      [{ ...volumeKey('pvc-other'), claimUid: 'other' }, 'wait'],
    ] as const) {
      await add(each);
      assert.deepEqual(await add(each), ['waiting']);
      await server.redis.del(rootOf(each.kind) + list);
      assert.deepEqual(await add(each), ['added']);
    }
  });

  it('lists the jobs that are finished, and those of them that have called nothing', async () => {
    const names = ['selecting', 'parked', 'unread'];
    const [selecting, parked, unread] = names.map((name) => claimKey(name));
    assert.ok(selecting && parked && unread);
    const keys = [key, parked, unread].map((each) => ({ key: each, isNow: false, journal: '0' }));
    await queue.add('claim', [...keys, { key: selecting, isNow: false }], leading);
    bench.consumer(({ name }) =>
      name === 'parked' ? { kind: 'parked', reason: 'x', until: [] } : { kind: 'done' },
    );
    await until(async () => (await server.redis.zcard(`${rootOf()}completed`)) === 3, 'they end');
    await server.redis.hset(rootOf() + unread.uid, 'data', '{}');
    const { ended, idle } = (await queue.finished(leading)).claim;
    assert.deepEqual([ended, idle.toSorted()], [[key.uid], [selecting.uid, unread.uid]]);
  });

  it('removes a job that is not finished, and the request to forget it, if it is forced to', async () => {
    await add();
    await server.redis.hset(forgetKey('csi', driver), key.uid, '{}');
    assert.deepEqual((await queue.finished(leading)).forgotten, [key.uid]);
    await queue.remove('claim', [key.uid], leading, true);
    assert.equal(await server.redis.zcard(`${rootOf()}prioritized`), 0);
    assert.equal(await server.redis.exists(rootOf() + key.uid), 0);
    assert.deepEqual((await queue.finished(leading)).forgotten, []);
  });
});
