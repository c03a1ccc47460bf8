import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { type ChangeNotice, redisNoticeStream } from '#src/webhooks/notices.ts';
import { NoticeReader } from '#src/ingest/notices/notice-reader.ts';
import { openRedis } from '#src/redis/connection.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startTestRedis } from '../../harness/redis.ts';
import { until } from '../../harness/until.ts';

const notice = (name: string): ChangeNotice => ({
  resource: 'persistentvolumeclaims',
  namespace: 'n',
  name,
  isEarly: false,
});

/** A Redis, a sender, and a reader that notes what it reads. */
async function openBed(t: TestContext) {
  const closers = new Closers();
  t.after(() => closers.close());
  const server = await startTestRedis();
  closers.add('Redis', () => server.close());
  const sender = redisNoticeStream(server.redis, 'csi');
  const link = openRedis({ url: server.url, role: 'plain', log: silentLog });
  const read: string[] = [];
  const bed = {
    server,
    read,
    isLeading: true,
    due: 0,
    losses: 0,
    cleared: 0,
    send: (...names: readonly string[]) => sender.appendNotices(names.map(notice)),
    signal: new AbortController().signal,
  };
  const reader = new NoticeReader({
    stream: redisNoticeStream(link.redis, 'csi'),
    looks: {
      add: ({ name }) => void read.push(name),
      clear: () => void (bed.cleared += 1),
      get due() {
        return bed.due;
      },
    },
    isLeading: () => bed.isLeading,
    clock: systemClock,
    log: silentLog,
  });
  reader.lost.subscribe(() => void (bed.losses += 1));
  closers.add('reader', async () => {
    link.close();
    await reader.stop();
  });
  return { ...bed, bed, reader };
}

// Side by side, because they wait most of the time.
describe('notice reader', { concurrency: true }, () => {
  it('reads the notices that are sent from when it begins', async (t) => {
    const { read, reader, send, signal } = await openBed(t);
    await reader.waitUntilReading(signal);
    await send('a', 'b');
    await send('c');
    await until(() => read.length === 3, 'all are read');
    assert.deepEqual(read, ['a', 'b', 'c']);
  });

  it('reads nothing while this process leads no driver, and begins when it does', async (t) => {
    const { bed, read, reader, send, signal } = await openBed(t);
    bed.isLeading = false;
    await until(() => bed.cleared > 0, 'the command under way has ended', 10_000);
    await send('missed');
    bed.isLeading = true;
    await reader.waitUntilReading(signal);
    await send('a');
    await until(() => read.includes('a'), 'it is read');
    assert.deepEqual(read, ['a']);
  });

  it('leaves notices in the stream while too many objects wait for their look', async (t) => {
    const { bed, read, reader, send, signal } = await openBed(t);
    await reader.waitUntilReading(signal);
    bed.due = 2_000;
    await send('a');
    await until(() => read.length === 1, 'the command under way is answered');
    await send('b');
    await systemClock.sleep(100);
    assert.deepEqual(read, ['a']);
    bed.due = 0;
    await until(() => read.length === 2, 'b is read');
  });

  it('reports that notices were lost when Redis was emptied, and goes on', async (t) => {
    const { bed, read, reader, send, server, signal } = await openBed(t);
    await reader.waitUntilReading(signal);
    await send('a');
    await until(() => read.length === 1, 'a is read');
    await server.redis.flushall();
    await send('b');
    await until(() => bed.losses === 1, 'the loss is reported', 10_000);
    await send('c');
    await until(() => read.includes('c'), 'c is read', 10_000);
  });

  it('lets a list begin without it while Redis is away, and reports what that may have missed', async (t) => {
    const { bed, reader, server, signal } = await openBed(t);
    bed.isLeading = false;
    await until(() => bed.cleared > 0, 'it has begun', 10_000);
    await server.kill();
    bed.isLeading = true;
    const startedMs = Date.now();
    await reader.waitUntilReading(signal);
    assert.ok(Date.now() - startedMs >= 4_900);
    await server.start();
    await until(() => bed.losses === 1, 'the loss is reported', 20_000);
  });

  it('goes on after Redis was away', async (t) => {
    const { read, reader, send, server, signal } = await openBed(t);
    await reader.waitUntilReading(signal);
    await server.kill();
    await server.start();
    await send('a');
    await until(() => read.includes('a'), 'a is read', 20_000);
  });
});
