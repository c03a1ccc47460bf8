import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { ClassTurns, type TurnLimits, type TurnWait } from '#src/queue/class-turns.ts';
import type { JobKey } from '#src/queue/contract.ts';
import type { Outcome } from '#src/queue/outcome.ts';
import { claimKey, QueueBench, sleep, volumeKey } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const limits = (maxInFlight?: number, maxPerSecond?: number): TurnLimits => ({
  className: 'slow',
  maxInFlight,
  maxPerSecond,
});
const [A, B, C] = [claimKey('a'), claimKey('b'), claimKey('c')] as const;
const startOf = (wait: TurnWait | undefined): number => {
  assert.equal(wait?.before, undefined, 'it has its turn');
  return wait?.askInMs ?? 0;
};

describe('the turns of a class', () => {
  let redis: TestRedis;
  let turns: ClassTurns;
  let serial = 0;
  let place: { readonly prefix: string; readonly driver: string };
  before(async () => {
    redis = await startTestRedis();
  });
  after(() => redis.close());
  const open = (keepMs: number): ClassTurns => new ClassTurns(redis.redis, { ...place, keepMs });
  beforeEach(() => {
    place = { prefix: 'csi', driver: `turns-${(serial += 1)}` };
    turns = open(60_000);
  });
  const isTaken = async (key: JobKey, of: TurnLimits): Promise<boolean> =>
    (await turns.take(key, of)) === undefined;

  it('are as many at once as the class says, and the others wait in a line', async () => {
    assert.equal(await isTaken(A, limits(2)), true);
    assert.equal(await isTaken(B, limits(2)), true);
    const next = await turns.take(C, limits(2));
    assert.deepEqual(next, { before: 0, isFull: true, askInMs: 30_000 });
    const last = await turns.take(claimKey('d'), limits(2));
    assert.deepEqual(last, { before: 1, isFull: true, askInMs: 30_100 });
  });

  it('are kept by keys that ask again, and end', async () => {
    await turns.take(A, limits(1));
    assert.equal(await isTaken(A, limits(1)), true);
    assert.equal(await isTaken(B, limits(1)), false);
    await turns.end(A, limits(1));
    assert.equal(await isTaken(C, limits(1)), true, 'B has no job, so it was left out');
  });

  it('are counted for creations and deletions apart, and for each class', async () => {
    await turns.take(A, limits(1));
    assert.equal(await isTaken(volumeKey('a'), limits(1)), true);
    assert.equal(await isTaken(B, { ...limits(1), className: 'other' }), true);
  });

  it('of keys that do not run again expire, and then the first in the line has one', async () => {
    await open(50).take(A, limits(1));
    await turns.take(B, limits(1));
    await turns.take(C, limits(1));
    await until(() => isTaken(B, limits(1)), 'the first one has it');
    assert.equal(await isTaken(C, limits(1)), false);
  });

  it('start one after the other by the limit of a second, each once', async () => {
    const of = limits(undefined, 2);
    const starts = [];
    for (const key of [A, B, C]) starts.push(startOf(await turns.take(key, of)));
    const [first = -1, second = 0, third = 0] = starts;
    assert.equal(first, 0);
    assert.ok(second > 400 && second <= 500 && third > 900 && third <= 1_000, starts.join());
    assert.equal(startOf(await turns.take(A, of)), 0, 'has started');
    assert.ok(startOf(await turns.take(C, of)) <= third, 'keeps its start');
    await turns.end(A, of);
    assert.ok(startOf(await turns.take(A, of)) > 1_300, 'an ended turn starts anew');
  });

  it('are not given far ahead, so that another limit takes effect soon', async () => {
    const of = limits(undefined, 0.15);
    await turns.take(A, of);
    await turns.take(B, of);
    const waits = await turns.take(C, of);
    assert.ok(waits?.before === 0 && !waits.isFull, JSON.stringify(waits));
    assert.ok(waits.askInMs > 7_000 && waits.askInMs < 9_000, String(waits.askInMs));
    assert.ok(startOf(await turns.take(C, limits(undefined, 0.3))) < 10_000);
  });

  it('are held while they wait for their start, with both limits', async () => {
    const of = limits(2, 2);
    await turns.take(A, of);
    assert.ok(startOf(await turns.take(B, of)) > 400);
    assert.equal(await isTaken(C, of), false);
  });

  it('are not given while the class is paused, but kept', async () => {
    await turns.take(A, limits(1));
    assert.equal(await isTaken(A, limits(0)), true);
    assert.equal(await isTaken(B, limits(0)), false);
    assert.equal(await isTaken(B, limits(2)), true);
  });

  it('leave no key in Redis that does not expire', async () => {
    await turns.take(A, limits(1, 5));
    await turns.take(B, limits(1, 5));
    const keys = await redis.redis.keys(`{csi}:turns:claims.${place.driver}:*`);
    assert.equal(keys.length, 3);
    for (const key of keys) assert.ok((await redis.redis.pttl(key)) > 0, key);
  });

  describe('of a queue with workers', () => {
    let bench: QueueBench;
    let most = 0;
    beforeEach(() => {
      bench = new QueueBench(redis, place.driver);
      most = 0;
    });
    afterEach(() => bench.close());
    const runAll = async (of: TurnLimits, count: number, runMs: number): Promise<number[]> => {
      const startsAtMs: number[] = [];
      let running = 0;
      let done = 0;
      const process = async (key: JobKey): Promise<Outcome> => {
        const wait = await turns.take(key, of);
        if (wait !== undefined)
          return { kind: 'later', reason: 'waits', delayMs: wait.askInMs, isTurn: true };
        startsAtMs.push(bench.runsOf(key).at(-1)?.atMs ?? 0);
        most = Math.max(most, (running += 1));
        await sleep(runMs);
        running -= 1;
        await turns.end(key, of);
        done += 1;
        return { kind: 'done' };
      };
      bench.consumer(process);
      bench.consumer(process);
      const producer = bench.producer();
      for (let i = 0; i < count; i += 1) producer.ensureQueued(claimKey(`c${i}`));
      await until(() => done === count, 'all ran', 20_000);
      return startsAtMs;
    };

    it('are passed on at once', async () => {
      await runAll(limits(3), 30, 20);
      assert.equal(most, 3);
    });

    it('are passed on soon after Redis went away as it gave one, so that nobody was told', async () => {
      let isLost = true;
      const answers = async (asked: Promise<unknown>): Promise<unknown> => {
        const answer = await asked;
        return isLost ? Promise.reject(new Error('lost')) : answer;
      };
      const { redis: client } = redis;
      const lossy = new Proxy(client, {
        get: (target, name) =>
          name === 'evalsha' || name === 'eval'
            ? (...args: Parameters<typeof client.evalsha>) => answers(target[name](...args))
            : (Reflect.get(target, name, target) as unknown),
      });
      await turns.take(A, limits(1));
      bench.consumer(async (key) => {
        const wait = await turns.take(key, limits(1));
        return wait === undefined
          ? { kind: 'done' }
          : { kind: 'later', reason: 'waits', delayMs: wait.askInMs, isTurn: true };
      });
      bench.producer().ensureQueued(B);
      await until(() => bench.runsOf(B).some(({ endMs }) => endMs !== undefined), 'B waits');
      const others = new ClassTurns(lossy, { ...place, keepMs: 60_000 });
      await assert.rejects(others.end(A, limits(1)), /lost/);
      isLost = false;
      // By itself it would ask again after half a minute.
      await until(() => bench.runsOf(B).length > 1, 'B runs again', 20_000);
    });

    it('start at the rate of the class', async () => {
      const starts = await runAll(limits(4, 20), 30, 20);
      const tookMs = (starts.at(-1) ?? 0) - (starts[0] ?? 0);
      assert.ok(tookMs > 1_300 && tookMs < 2_500, String(tookMs));
    });
  });
});
