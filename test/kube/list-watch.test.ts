import assert from 'node:assert/strict';
import { after, afterEach, beforeEach, describe, it } from 'node:test';
import { createKubeClient } from '#src/kube/client.ts';
import { ListWatch, type ListWatchOptions, type ObjectSink } from '#src/kube/list-watch.ts';
import { claims } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import {
  type OpenWatch,
  plainAccess,
  type Reply,
  type Seen,
  startKubeServer,
  statusOf,
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
const END = {
  metadata: { resourceVersion: '20', annotations: { 'k8s.io/initial-events-end': 'true' } },
};

let watches: OpenWatch[] = [];
let done: string[] = [];
let running: ListWatch[] = [];
const isStreamed = (seen: Seen) => seen.query.get('sendInitialEvents') === 'true';
const streamed = (): Seen[] => server.seen.filter(isStreamed);
const pages = (): Seen[] => server.seen.filter((seen) => !seen.query.has('watch'));

/** Answers a list in pages, and watches from a version. */
function servePages(seen: Seen, reply: Reply): void {
  if (seen.query.has('watch')) watches.push(reply.watch());
  else reply.json(200, { metadata: { resourceVersion: '10' }, items: [object('a', '1')] });
}
function serveStreams(seen: Seen, reply: Reply): void {
  if (seen.query.has('watch')) watches.push(reply.watch());
  else reply.json(200, { metadata: { resourceVersion: '1000' }, items: [] });
}

function start(o: Partial<ListWatchOptions> = {}): ListWatch {
  const nameOf = (raw: unknown) => (raw as ReturnType<typeof object>).metadata.name;
  const sink: ObjectSink = {
    size: 0,
    beginList: () => void done.push('begin'),
    put: (raw, how) => void done.push(`${how} ${nameOf(raw)}`),
    remove: (raw) => void done.push(`removed ${nameOf(raw)}`),
    endList: () => void done.push('end'),
  };
  const listWatch = new ListWatch(
    {
      client,
      resource: claims,
      log: silentLog,
      streamsList: true,
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
  server.handler = serveStreams;
});
afterEach(async () => {
  await Promise.all(running.map((each) => each.stop()));
  running = [];
});

describe('a list that is streamed', () => {
  it('is asked for as Kubernetes documents it', async () => {
    start();
    await until(() => watches.length === 1, 'it was asked for');
    const query = Object.fromEntries(watches[0]?.seen.query ?? []);
    const { timeoutSeconds: _, ...rest } = query;
    assert.deepEqual(rest, {
      watch: 'true',
      sendInitialEvents: 'true',
      resourceVersionMatch: 'NotOlderThan',
      allowWatchBookmarks: 'true',
    });
  });

  it('ends with its bookmark, and the watch goes on', async () => {
    const listWatch = start();
    await until(() => watches.length === 1, 'it was asked for');
    const [watch] = watches;
    watch?.send('ADDED', object('a', '1'));
    watch?.send('ADDED', object('b', '2'));
    watch?.send('MODIFIED', object('a', '15'));
    watch?.send('DELETED', object('b', '16'));
    watch?.send('BOOKMARK', { metadata: { resourceVersion: '17' } });
    await until(() => done.length === 5, 'all arrived');
    assert.deepEqual([listWatch.hasSynced, listWatch.isFollowing], [false, false]);
    assert.equal(listWatch.trouble, 'persistentvolumeclaims: not listed yet');
    watch?.send('BOOKMARK', END);
    await until(() => listWatch.hasSynced, 'the list is complete');
    assert.deepEqual([listWatch.isFollowing, listWatch.trouble], [true, undefined]);
    watch?.send('ADDED', object('c', '21'));
    await until(() => done.length === 7, 'it arrived');
    assert.deepEqual(done, [
      'begin',
      'listed a',
      'listed b',
      'listed a',
      'removed b',
      'end',
      'added c',
    ]);
    watch?.end();
    await until(() => watches.length === 2, 'the next is open');
    assert.equal(watches[1]?.seen.query.get('resourceVersion'), '21');
  });

  it('begins again after 410, and after relist()', async () => {
    const listWatch = start();
    await until(() => watches.length === 1, 'it was asked for');
    watches[0]?.send('BOOKMARK', END);
    await until(() => listWatch.hasSynced, 'the list is complete');
    watches[0]?.send('ERROR', statusOf(410, 'Expired', 'too old'));
    await until(() => streamed().length === 2, 'it was asked for again');
    listWatch.relist();
    await until(() => streamed().length === 3, 'and again');
    assert.equal(pages().length, 0);
  });

  const refusals: [string, (seen: Seen, reply: Reply) => void][] = [
    [
      'an ERROR event',
      (_, reply) => reply.watch().send('ERROR', statusOf(500, 'InternalError', 'no progress')),
    ],
    ['422', (_, reply) => reply.status(422, 'Invalid', 'sendInitialEvents is forbidden')],
    ['400', (_, reply) => reply.status(400, 'BadRequest', 'unknown')],
  ];
  for (const [title, refuse] of refusals)
    it(`is read in pages where the server answers with ${title}, and is not tried again`, async () => {
      server.handler = (seen, reply) =>
        isStreamed(seen) ? refuse(seen, reply) : servePages(seen, reply);
      const listWatch = start();
      await until(() => watches.length === 1, 'a watch is open');
      assert.deepEqual(done.slice(-3), ['begin', 'listed a', 'end']);
      listWatch.relist();
      await until(() => watches.length === 2, 'a watch is open again');
      assert.deepEqual([streamed().length, pages().length], [1, 2]);
    });

  it('is tried again after an answer that says nothing about it', async () => {
    let refusals = 0;
    server.handler = (seen, reply) =>
      ++refusals <= 4
        ? reply.status(503, 'ServiceUnavailable', 'starting')
        : serveStreams(seen, reply);
    start();
    await until(() => watches.length === 1, 'a watch is open');
    assert.deepEqual([streamed().length, pages().length], [5, 0]);
  });

  it('is read in pages after it broke off three times', async () => {
    server.handler = (seen, reply) => {
      if (!isStreamed(seen)) return servePages(seen, reply);
      const watch = reply.watch();
      watch.send('ADDED', object('a', '1'));
      watch.end();
    };
    const listWatch = start();
    await listWatch.waitForSync(AbortSignal.timeout(5000));
    assert.deepEqual([streamed().length, pages().length], [3, 1]);
  });
});

describe('a list in pages', () => {
  it('begins again where its first page broke off', async () => {
    let requests = 0;
    server.handler = (seen, reply) => {
      if (seen.query.has('watch') || ++requests > 1) return servePages(seen, reply);
      reply.response.writeHead(200).write('{"items":[{"metadata":{"name":"gone"}}');
      setImmediate(() => reply.response.destroy());
    };
    const listWatch = start({ streamsList: false });
    await listWatch.waitForSync(AbortSignal.timeout(5000));
    assert.deepEqual(done.slice(-3), ['begin', 'listed a', 'end']);
  });

  it('begins again when it is asked for while it is under way', async () => {
    let isAnswering = false;
    server.handler = (seen, reply) => {
      if (isAnswering) servePages(seen, reply);
    };
    const listWatch = start({ streamsList: false });
    await until(() => pages().length === 1, 'it was asked for');
    isAnswering = true;
    listWatch.relist();
    await listWatch.waitForSync(AbortSignal.timeout(5000));
    assert.equal(pages().length, 2);
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
    return start({ streamsList: false, ...o });
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
