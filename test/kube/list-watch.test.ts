import assert from 'node:assert/strict';
import { after, afterEach, beforeEach, describe, it } from 'node:test';
import { createKubeClient } from '#src/kube/client.ts';
import { ListWatch, type ListWatchOptions, type ObjectSink } from '#src/kube/list-watch.ts';
import { claims, rawKey } from '#src/kube/resources.ts';
import { createLogger, silentLog } from '#src/runtime/log.ts';
import {
  type OpenWatch,
  plainAccess,
  type Reply,
  type Seen,
  startKubeServer,
} from '../harness/kube-server.ts';
import { until } from '../harness/until.ts';

const server = await startKubeServer(() => {});
const client = createKubeClient({
  access: plainAccess(server),
  userAgent: 'sutler-test/1',
  log: silentLog,
});
after(async () => {
  await client.close();
  await server.close();
});

const object = (name: string, version: string) => ({
  metadata: { name, resourceVersion: version },
});
let watches: OpenWatch[] = [];
let done: string[] = [];
let running: ListWatch[] = [];
const pages = (): Seen[] => server.seen.filter((seen) => !seen.query.has('watch'));

/** Answers a list in pages, and watches from a version. */
function servePages(seen: Seen, reply: Reply): void {
  if (seen.query.has('watch')) watches.push(reply.watch());
  else reply.json(200, { metadata: { resourceVersion: '10' }, items: [object('a', '1')] });
}
function start(o: Partial<ListWatchOptions> = {}, ownSink: Partial<ObjectSink> = {}): ListWatch {
  const nameOf = (raw: unknown) => (raw as ReturnType<typeof object>).metadata.name;
  const sink: ObjectSink = {
    size: 0,
    beginList: () => void done.push('begin'),
    put: (raw, how) => void done.push(`${how} ${nameOf(raw)}`),
    remove: (raw) => void done.push(`removed ${nameOf(raw)}`),
    endList: () => void done.push('end'),
    ...ownSink,
  };
  const listWatch = new ListWatch(
    {
      client,
      resource: claims,
      log: silentLog,
      backoff: { startMs: 4, maxMs: 20 },
      idleTimeoutMs: 4000,
      ...o,
    },
    sink,
  );
  running.push(listWatch);
  return listWatch;
}

beforeEach(() => {
  server.seen.length = 0;
  [watches, done] = [[], []];
  server.handler = servePages;
});
afterEach(async () => {
  await Promise.all(running.map((each) => each.stop()));
  running = [];
});

describe('a list in pages', () => {
  it('begins again where its first page broke off', async () => {
    let requests = 0;
    server.handler = (seen, reply) => {
      if (seen.query.has('watch') || ++requests > 1) return servePages(seen, reply);
      reply.response.writeHead(200).write('{"items":[{"metadata":{"name":"gone"}}');
      setImmediate(() => reply.response.destroy());
    };
    const listWatch = start();
    await listWatch.waitForSync(AbortSignal.timeout(5000));
    assert.deepEqual(done.slice(-3), ['begin', 'listed a', 'end']);
  });

  it('begins again when it is asked for while it is under way', async () => {
    let isAnswering = false;
    server.handler = (seen, reply) => {
      if (isAnswering) servePages(seen, reply);
    };
    const listWatch = start();
    await until(() => pages().length === 1, 'it was asked for');
    isAnswering = true;
    listWatch.relist();
    await listWatch.waitForSync(AbortSignal.timeout(5000));
    assert.equal(pages().length, 2);
  });

  it('begins once when it is asked for in the turn in which the watch is made', async () => {
    const listWatch = start();
    listWatch.relist();
    await listWatch.waitForSync(AbortSignal.timeout(5000));
    assert.deepEqual([pages().length, done], [1, ['begin', 'listed a', 'end']]);
  });

  it('is not asked for by a watch that is stopped in the turn in which it is made', async () => {
    await start().stop();
    assert.deepEqual([pages().length, done], [0, []]);
  });
});

describe('when a watch last brought something', () => {
  it('is from before the list on which it builds', async () => {
    let answer = (): void => undefined;
    server.handler = (seen, reply) => {
      if (seen.query.has('watch')) return servePages(seen, reply);
      answer = () => servePages(seen, reply);
    };
    const listWatch = start();
    await until(() => pages().length === 1, 'it was asked for');
    const askedMs = performance.now();
    answer();
    await until(() => listWatch.isFollowing, 'the watch is open');
    assert.ok((listWatch.heardMs ?? Infinity) <= askedMs);
  });

  it('is unknown when it is opened again, until it brings something', async () => {
    const listWatch = start();
    await until(() => listWatch.isFollowing, 'the watch is open');
    watches[0]?.end();
    await until(() => watches.length === 2 && listWatch.isFollowing, 'it is open again');
    assert.equal(listWatch.heardMs, undefined);
    watches[1]?.send('ADDED', object('b', '11'));
    await until(() => listWatch.heardMs !== undefined, 'it has brought something');
  });
});

describe('an object whose handler throws', () => {
  it('is logged and skipped, in a list and in a watch, which go on', async () => {
    const lines: string[] = [];
    const log = createLogger({
      name: 'test',
      verbosity: 0,
      format: 'text',
      write: (line) => void lines.push(line),
    });
    const listWatch = start(
      { log },
      {
        put: (raw) => {
          const name = rawKey(raw) ?? '';
          if (name.length === 1) throw new Error('handler broke');
          done.push(name);
        },
      },
    );
    await until(() => watches.length === 1, 'the watch is open');
    watches[0]?.send('ADDED', object('b', '11'));
    watches[0]?.send('ADDED', object('good', '12'));
    await until(() => done.includes('good'), 'the next one arrives');
    assert.deepEqual([done, watches.length], [['begin', 'end', 'good'], 1]);
    const failures = lines.filter((line) => line.includes('handler broke'));
    assert.deepEqual(
      failures.map((line) => /object=(\S+)/.exec(line)?.[1]),
      ['a', 'b'],
    );
    assert.equal(listWatch.trouble, undefined);
  });
});

describe('a watch that is opened again', () => {
  /** The version of everything, as a list tells it. */
  let serverVersion: string;
  const watchPages = (o: Partial<ListWatchOptions> = {}): ListWatch => {
    serverVersion = '1500';
    server.handler = (seen, reply) => {
      if (seen.query.has('watch')) watches.push(reply.watch());
      else reply.json(200, { metadata: { resourceVersion: serverVersion }, items: [] });
    };
    return start(o);
  };
  const lists = (): Seen[] => pages().filter((seen) => seen.query.get('limit') !== '1');

  for (const [title, end] of [
    ['broke off', (watch?: OpenWatch) => watch?.drop()],
    ['was ended by the server', (watch?: OpenWatch) => watch?.end()],
  ] as const)
    it(`after it ${title} lists, where the server went back to an older version`, async () => {
      await watchPages().waitForSync();
      await until(() => watches.length === 1, 'a watch is open');
      serverVersion = '1000';
      end(watches[0]);
      await until(() => watches.length === 2, 'a new watch');
      assert.equal(watches[1]?.seen.query.get('resourceVersion'), '1000');
      assert.equal(lists().length, 2);
    });

  it('resumes without a list where the server knows its version', async () => {
    const listWatch = watchPages({ idleTimeoutMs: 40 });
    await listWatch.waitForSync();
    serverVersion = '1600';
    await until(() => watches.length === 6, 'some watches fell silent');
    assert.equal(lists().length, 1);
    assert.ok(watches.every((each) => each.seen.query.get('resourceVersion') === '1500'));
    assert.ok(pages().length <= watches.length + 1, 'the version is checked once before each');
    assert.equal(listWatch.trouble, undefined);
  });
});
