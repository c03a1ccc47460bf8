import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { redisActiveGateway } from '#src/gateway-client/active-gateway.ts';
import { type Marked, type Run, showDoubts } from '#src/queue/run.ts';
import { queueName, queueRoot } from '#src/queue/queue-keys.ts';
import type { Leading, WorkQueue } from '#src/queue/work-queue.ts';
import type { RedisLink } from '#src/redis/connection.ts';
import { claimKey, openTestWorkQueue, QueueBench } from '../harness/queue.ts';
import { startTestRedis, type TestRedis } from '../harness/redis.ts';

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

  /** Adds the job, and has a worker run it.
   * @returns what `act` gave */
  async function inRun<T>(act: (run: Run) => Promise<T>): Promise<T> {
    await queue.add('claim', [{ key, isNow: false }], leading);
    return new Promise((resolve, reject) => {
      bench.consumer(async (_, run) => {
        await act(run).then(resolve, reject);
        return { kind: 'parked', reason: 'test', until: [] };
      });
    });
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

  const shown = async ({ uid } = key): Promise<number | undefined> =>
    (await showDoubts(place(), queueName('claim', driver), [uid]))[0];

  it('is shown to people from its mark on, also where the leader gave it', async () => {
    const marked = await inRun((run) => run.mark(D_MS, ''));
    assertMarked(marked);
    assert.equal(marked.history, leading.history);
    assertLeft(await shown(), D_MS);
    const given = claimKey('given');
    await queue.add('claim', [{ key: given, isNow: false, doubtMs: D_MS }], leading);
    assertLeft(await shown(given), D_MS);
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
