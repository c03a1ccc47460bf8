import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { type ChangeNotice, NoticeStream } from '#src/webhooks/notices.ts';
import { NoticeReader } from '#src/ingest/notices/notice-reader.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { ObjectRef, Resource } from '#src/kube/resources.ts';
import { openRedis } from '#src/redis/connection.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { Closers } from '#src/runtime/closers.ts';
import { Listeners } from '#src/runtime/listeners.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { startTestRedis } from '../../harness/redis.ts';
import { until } from '../../harness/until.ts';

const notice = (name: string): ChangeNotice => ({
  resource: 'persistentvolumeclaims',
  namespace: 'n',
  name,
});

function failure(code: number, serverMessage: string): KubeError {
  return new KubeError({ code, reason: 'Test', serverMessage, request: 'get' });
}

/** A Redis, a sender, and a reader that has begun to read. */
async function openBed(t: TestContext) {
  const closers = new Closers();
  t.after(() => closers.close());
  const server = await startTestRedis();
  closers.add('Redis', () => server.close());
  const senderLink = openRedis({ url: server.url, role: 'plain', log: silentLog });
  closers.add('sender', () => senderLink.close());
  await until(() => senderLink.trouble === undefined, 'Redis is usable');
  const sender = new NoticeStream(senderLink, 'csi');
  const link = openRedis({ url: server.url, role: 'plain', log: silentLog });
  const bed = {
    server,
    /** Names of the objects that were passed on, and whether each exists. */
    looks: [] as string[],
    reads: [] as string[],
    answer: (_name: string): Promise<unknown> => Promise.resolve({ metadata: {} }),
    isLeading: true,
    /** How often the reader has asked whether it leads. */
    leadLooks: 0,
    misses: 0,
    /** Added to the time. */
    laterMs: 0,
    send: (...names: readonly string[]) => sender.append(names.map(notice)),
  };
  const metrics = new Registry();
  const missed = new Listeners<void>();
  const reader = new NoticeReader({
    stream: new NoticeStream(link, 'csi'),
    client: {
      // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- its type
      get<T>({ plural }: Resource, { namespace = '', name }: ObjectRef) {
        bed.reads.push(`${plural}/${namespace}/${name}`);
        return bed.answer(name) as Promise<T | undefined>;
      },
    },
    source: {
      get isLeading() {
        bed.leadLooks += 1;
        return bed.isLeading;
      },
      looked: ({ target, object }) =>
        void bed.looks.push(object === undefined ? `no ${target.name}` : target.name),
      missed,
    },
    clock: { ...systemClock, nowMs: () => Date.now() + bed.laterMs },
    log: silentLog,
    metrics,
  });
  missed.subscribe(() => void (bed.misses += 1));
  closers.add('reader', async () => {
    link.close();
    await reader.stop();
  });
  // It has begun when it reads a notice.
  await until(async () => {
    await bed.send('begin');
    return bed.looks.length > 0;
  }, 'it reads');
  await bed.send('begun');
  await until(() => bed.looks.includes('begun'), 'it has read all');
  Object.assign(bed, { looks: [], reads: [] });
  return { bed, reader, metrics };
}

// Side by side, because they wait most of the time.
describe('notice reader', { concurrency: true }, () => {
  it('reads the object that each notice names, and passes on that it does not exist', async (t) => {
    const { bed } = await openBed(t);
    bed.answer = (name) => Promise.resolve(name === 'gone' ? undefined : { metadata: {} });
    await bed.send('a', 'gone');
    await bed.send('b');
    await until(() => bed.looks.length === 3, 'all are read');
    assert.deepEqual(bed.looks.toSorted(), ['a', 'b', 'no gone']);
    assert.deepEqual(bed.reads[0], 'persistentvolumeclaims/n/a');
  });

  it('leaves further notices in the stream while 32 objects are being read', async (t) => {
    const { bed } = await openBed(t);
    const answers: (() => void)[] = [];
    bed.answer = () => new Promise((resolve) => answers.push(() => resolve({ metadata: {} })));
    await bed.send(...Array.from({ length: 200 }, (_, n) => `c${n}`));
    let most = 0;
    await until(() => {
      most = Math.max(most, answers.length);
      for (const answer of answers.splice(0)) answer();
      return bed.looks.length === 200;
    }, 'all are read');
    assert.ok(most <= 32, String(most));
  });

  it('skips notices while this process leads no driver', async (t) => {
    const { bed } = await openBed(t);
    bed.isLeading = false;
    bed.leadLooks = 0;
    await bed.send('skipped');
    await until(() => bed.leadLooks > 0, 'a read is over');
    await bed.send('skipped or not');
    await until(() => bed.leadLooks > 1, 'another read is over');
    bed.isLeading = true;
    await bed.send('a');
    await until(() => bed.looks.includes('a'), 'it is read');
    assert.ok(!bed.looks.includes('skipped'));
  });

  it('reports that changes may have been missed when Redis was emptied, and goes on', async (t) => {
    const { bed } = await openBed(t);
    const before = bed.misses;
    bed.laterMs += 30_000;
    await bed.server.redis.flushall();
    await bed.send('b');
    await until(() => bed.misses === before + 1, 'the loss is reported', 10_000);
    await bed.send('c');
    await until(() => bed.looks.includes('c'), 'c is read', 10_000);
  });

  it('reports it when an object could not be read, once in 30 s', async (t) => {
    const { bed, metrics } = await openBed(t);
    bed.laterMs += 30_000;
    const before = bed.misses;
    bed.answer = (name) =>
      name === 'a' ? Promise.reject(failure(500, 'no')) : Promise.resolve({ metadata: {} });
    await bed.send('a');
    await until(() => bed.misses === before + 1, 'it is reported');
    await bed.send('a');
    await bed.send('b');
    await until(() => bed.looks.includes('b'), 'b is read');
    assert.equal(bed.misses, before + 1);
    assert.match(await metrics.metrics(), /sutler_notices_dropped_total 2/);
  });

  it('names the right that is missing, for half a minute, and lists nothing for that', async (t) => {
    const { bed, reader } = await openBed(t);
    bed.laterMs += 30_000;
    const before = bed.misses;
    const text = 'cannot get resource "persistentvolumeclaims" in API group ""';
    bed.answer = () => Promise.reject(failure(403, text));
    await bed.send('a');
    await until(() => reader.trouble !== undefined, 'it is said');
    assert.match(reader.trouble ?? '', /cannot get resource "persistentvolumeclaims"/);
    bed.laterMs += 30_000;
    assert.equal(reader.trouble, undefined);
    assert.equal(bed.misses, before);
  });
});
