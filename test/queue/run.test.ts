import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { redisActiveGateway } from '#src/gateway-client/active-gateway.ts';
import { type Marked, type Run, showDoubts } from '#src/queue/run.ts';
import { forgetHistory } from '#src/queue/history.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Leading, WorkQueue } from '#src/queue/work-queue.ts';
import type { RedisLink } from '#src/redis/connection.ts';
import { beginLeading } from '../harness/leading.ts';
import { claimKey, openTestWorkQueue, QueueBench } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const D_MS = 60_000;

describe('what a job knows of the calls of its runs', () => {
  let server: TestRedis;
  let bench: QueueBench;
  let driver = '';
  let serial = 0;
  let link: RedisLink;
  let queue: WorkQueue;
  let leading: Leading;
  const key = claimKey('data');
  const place = () => ({ redis: server.redis, prefix: 'csi', driver });
  const root = (): string => queueRoot('csi', queueName('claim', driver));
  const fieldOf = (field: string): Promise<string | null> =>
    server.redis.hget(root() + key.uid, field);

  /** Adds the job, and has a worker run it once.
   * @returns what `act` gave */
  async function inRun<T>(act: (run: Run) => Promise<T>, doubtMs?: number): Promise<T> {
    await queue.add('claim', [{ key, isNow: false, doubtMs }], leading);
    return inNextRun(act);
  }
  async function inNextRun<T>(act: (run: Run) => Promise<T>): Promise<T> {
    let given: { readonly value: T } | undefined;
    let failure: unknown;
    const consumer = bench.consumer(async (_, run) => {
      try {
        given = { value: await act(run) };
      } catch (error) {
        failure = error;
      }
      return { kind: 'later', reason: 'test', delayMs: 1_000 };
    });
    await until(() => given !== undefined || failure !== undefined, 'the run has ended');
    await bench.endProcess(consumer, 5_000);
    await queue.promote(key);
    if (given === undefined) throw failure;
    return given.value;
  }
  function assertMarked(marked: Marked): asserts marked is Extract<Marked, { kind: 'marked' }> {
    assert.equal(marked.kind, 'marked');
  }
  const assertLeft = (leftMs: number | undefined, aboutMs: number): void =>
    assert.ok(
      leftMs !== undefined && leftMs <= aboutMs && leftMs > aboutMs - 10_000,
      `${leftMs} ms`,
    );

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

  const shown = async (): Promise<number | undefined> =>
    (await showDoubts(place(), queueName('claim', driver), [key.uid]))[0];

  it('is nothing before its first mark', async () => {
    assert.deepEqual(await inRun((run) => run.begun()), { leftMs: undefined, place: '' });
    assert.equal(await shown(), undefined);
  });

  it('is until when a call may be at work, from its mark on, also in the next run', async () => {
    const marked = await inRun((run) => run.mark(D_MS, ''));
    assertMarked(marked);
    assert.equal(marked.leftMs, undefined, 'nothing was begun before');
    assert.equal(marked.history, leading.history);
    assertLeft((await inNextRun((run) => run.begun())).leftMs, D_MS);
    assertLeft(await shown(), D_MS);
  });

  it('is told by a mark as it was before it', async () => {
    const second = await inRun(async (run) => {
      await run.mark(D_MS, '');
      return run.mark(D_MS, '');
    });
    assertMarked(second);
    assertLeft(second.leftMs, D_MS);
  });

  it('is not shortened by a later mark', async () => {
    const { leftMs } = await inRun(async (run) => {
      await run.mark(D_MS, '');
      await run.mark(1, '');
      return run.begun();
    });
    void leftMs;
    assertLeft(await shown(), D_MS);
  });

  it('is past when that time is over', async () => {
    await inRun((run) => run.mark(1, ''));
    const { leftMs } = await inNextRun((run) => run.begun());
    assert.ok(leftMs !== undefined && leftMs <= 0, `${leftMs} ms`);
  });

  it('is nothing again when the first mark is taken back', async () => {
    await inRun(async (run) => {
      const marked = await run.mark(D_MS, '');
      assertMarked(marked);
      await marked.undo(false);
    });
    assert.equal(await fieldOf('until'), null);
  });

  it('is as before when a later mark is taken back', async () => {
    const before = await inRun(async (run) => {
      await run.mark(D_MS, '');
      const found = await fieldOf('until');
      const marked = await run.mark(10 * D_MS, '');
      assertMarked(marked);
      await marked.undo(false);
      return found;
    });
    assert.equal(await fieldOf('until'), before);
  });

  it('is not changed by a run that has lost its lock', async () => {
    await inRun(async (run) => {
      const marked = await run.mark(D_MS, '');
      assertMarked(marked);
      await server.redis.set(`${root()}${key.uid}:lock`, 'of another');
      await marked.undo(true);
    });
    assert.notEqual(await fieldOf('until'), null);
  });

  it('is not marked by a run that has lost its lock', async () => {
    const marked = await inRun(async (run) => {
      await server.redis.set(`${root()}${key.uid}:lock`, 'of another');
      return run.mark(D_MS, '');
    });
    assert.deepEqual(marked, { kind: 'lock-lost' });
    assert.equal(await fieldOf('until'), null);
  });

  it('is not marked once Redis has another history', async () => {
    const marked = await inRun(async (run) => {
      await forgetHistory(place());
      return run.mark(D_MS, '');
    });
    assert.deepEqual(marked, { kind: 'other-history' });
    assert.equal(await fieldOf('until'), null);
  });

  it('is not marked once another leader has begun with another history', async () => {
    const marked = await inRun(async (run) => {
      await forgetHistory(place());
      await beginLeading(place(), 2);
      return run.mark(D_MS, '');
    });
    assert.deepEqual(marked, { kind: 'lock-lost' });
    assert.equal(await fieldOf('until'), null);
  });

  it('is not marked while calls of another gateway may be under way', async () => {
    await redisActiveGateway(place()).name({ version: 0, endpoint: 'b', waitMs: 30_000 });
    const marked = await inRun((run) => run.mark(D_MS, ''));
    assert.ok(marked.kind === 'wait');
    assertLeft(marked.waitMs, 30_000);
    assert.equal(await fieldOf('until'), null);
  });

  it('names the active gateway in the same step', async () => {
    await redisActiveGateway(place()).name({ version: 0, endpoint: 'b', waitMs: 0 });
    const marked = await inRun((run) => run.mark(D_MS, ''));
    assertMarked(marked);
    assert.equal(marked.endpoint, 'b');
  });

  it('is what the leader gave it, before its first mark', async () => {
    const [begun, marked] = await inRun(
      async (run) => [await run.begun(), await run.mark(D_MS, '')] as const,
      10 * D_MS,
    );
    assertLeft(begun.leftMs, 10 * D_MS);
    assertMarked(marked);
    assertLeft(marked.leftMs, 10 * D_MS);
  });

  it('is shown to people also where the leader gave it', async () => {
    await queue.add('claim', [{ key, isNow: false, doubtMs: D_MS }], leading);
    assertLeft(await shown(), D_MS);
  });

  it('is what the leader gave it when the first mark is taken back', async () => {
    const left = await inRun(async (run) => {
      const marked = await run.mark(100 * D_MS, '');
      assertMarked(marked);
      await marked.undo(false);
      return shown();
    }, 10 * D_MS);
    assertLeft(left, 10 * D_MS);
  });

  it('has the place that the first call asked for, until nothing can exist', async () => {
    const places = await inRun(async (run) => {
      const seen: (string | null)[] = [];
      await run.mark(D_MS, 'zone a');
      const marked = await run.mark(D_MS, 'zone b');
      seen.push(await fieldOf('place'));
      assertMarked(marked);
      await marked.undo(false);
      seen.push(await fieldOf('place'));
      const last = await run.mark(D_MS, 'zone c');
      assertMarked(last);
      await last.undo(true);
      seen.push(await fieldOf('place'));
      return seen;
    });
    assert.deepEqual(places, ['zone a', 'zone a', null]);
  });
});
