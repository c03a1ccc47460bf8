import assert from 'node:assert/strict';
import { after, afterEach, beforeEach, describe, it } from 'node:test';
import { Registry } from 'prom-client';
import { pino } from 'pino';
import { createKubeClient } from '#src/kube/client.ts';
import {
  type Change,
  type Reflector,
  type ReflectorOptions,
  startReflector,
  type Transformed,
} from '#src/kube/reflector.ts';
import { claims } from '#src/kube/resources.ts';
import { type Clock, systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import {
  type Handler,
  type OpenWatch,
  plainAccess,
  type Reply,
  type Seen,
  startKubeServer,
  statusOf,
} from '../harness/kube-server.ts';
import { until } from '../harness/until.ts';

const unhandled: unknown[] = [];
process.on('unhandledRejection', (reason) => unhandled.push(reason));

const server = await startKubeServer(() => {});
const client = createKubeClient({
  access: plainAccess(server),
  userAgent: 'sutler-test/1',
  log: silentLog,
});
after(async () => {
  await client.close();
  await server.close();
  assert.deepEqual(unhandled, [], 'every rejection was handled');
});

interface Item extends Transformed {
  readonly size?: string;
}
const item = (name: string, version: number, o: { uid?: string; size?: string } = {}): object => ({
  metadata: {
    name,
    namespace: 'ns',
    uid: o.uid ?? `uid-${name}`,
    resourceVersion: String(version),
    managedFields: [{ manager: 'x' }],
  },
  spec: { size: o.size ?? 'small' },
});
function isItem(raw: unknown): raw is { metadata: Item['metadata']; spec: { size: string } } {
  return typeof raw === 'object' && raw !== null && 'metadata' in raw && 'spec' in raw;
}
const transform = (raw: unknown): Item => {
  assert.ok(isItem(raw));
  const { metadata, spec } = raw;
  const { name, namespace, uid, resourceVersion } = metadata;
  return {
    metadata: { name, ...(namespace === undefined ? {} : { namespace }), uid, resourceVersion },
    size: spec.size,
  };
};

/** The server's objects. Tests replace `onList` and `onWatch` to cause failures. */
const cluster: {
  items: object[];
  version: number;
  watches: OpenWatch[];
  onList: Handler;
  onWatch: Handler;
} = {
  items: [],
  version: 0,
  watches: [],
  onList: () => {},
  onWatch: () => {},
};
const listAll: Handler = (_, reply) =>
  reply.json(200, { metadata: { resourceVersion: String(cluster.version) }, items: cluster.items });
const openWatch: Handler = (_, reply) => void cluster.watches.push(reply.watch());
const isWatch = (seen: Seen): boolean => seen.query.get('watch') === 'true';
/** Asks only for the version, before a watch that resumes. */
const isVersionCheck = (seen: Seen): boolean => seen.query.get('limit') === '1';
const lists = (): Seen[] => server.seen.filter((seen) => !isWatch(seen) && !isVersionCheck(seen));
const watches = (): Seen[] => server.seen.filter(isWatch);
const lastWatch = (): OpenWatch => cluster.watches.at(-1) ?? assert.fail('no watch');
const refuse =
  (code: number, reason: string, message = 'no', headers: Record<string, string> = {}): Handler =>
  (_, reply) =>
    reply.status(code, reason, message, headers);
/** Handles `times` requests by `bad`, the others by `good`. */
function firstTimes(times: number, bad: Handler, good: Handler): Handler {
  let left = times;
  return (seen, reply) => (left-- > 0 ? bad(seen, reply) : good(seen, reply));
}

let running: Reflector<Item>[] = [];
let changes: string[] = [];
function start(o: Partial<ReflectorOptions<Item>> = {}): Reflector<Item> {
  const onChange = (change: Change<Item>): void =>
    void changes.push(
      `${change.type} ${change.object.metadata.name}@${change.object.metadata.resourceVersion}`,
    );
  const reflector = startReflector<Item>({
    client,
    resource: claims,
    transform,
    onChange,
    log: silentLog,
    backoff: { startMs: 4, maxMs: 20 },
    idleTimeoutMs: 4000,
    ...o,
  });
  running.push(reflector);
  return reflector;
}
/** A clock that records sleeps and shortens them. */
function recordSleeps(): { readonly sleptMs: number[]; readonly clock: Clock } {
  const sleptMs: number[] = [];
  return {
    sleptMs,
    clock: {
      nowMs: () => Date.now(),
      sleep: (ms, signal) => (sleptMs.push(ms), systemClock.sleep(1, signal)),
    },
  };
}

beforeEach(() => {
  server.seen.length = 0;
  changes = [];
  Object.assign(cluster, {
    items: [item('a', 1), item('b', 2)],
    version: 10,
    watches: [],
    onList: listAll,
    onWatch: openWatch,
  });
  server.handler = (seen: Seen, reply: Reply) => {
    if (isVersionCheck(seen))
      return reply.json(200, { metadata: { resourceVersion: '1000' }, items: [] });
    return isWatch(seen) ? cluster.onWatch(seen, reply) : cluster.onList(seen, reply);
  };
});
afterEach(async () => {
  await Promise.all(running.map((reflector) => reflector.stop()));
  await until(() => cluster.watches.every((watch) => watch.isClosed), 'no watch is left');
  running = [];
});

const synced = async (reflector: Reflector<Item>): Promise<void> => {
  await reflector.waitForSync(AbortSignal.timeout(5000));
  await until(() => reflector.trouble === undefined, 'the watch is open');
};

describe('Reflector', () => {
  it('lists, then watches from that version, with bookmarks and a time limit', async () => {
    const reflector = start();
    assert.deepEqual(
      [reflector.hasSynced, reflector.trouble],
      [false, 'persistentvolumeclaims: not listed yet'],
    );
    await synced(reflector);
    assert.deepEqual(
      [reflector.hasSynced, reflector.size, changes],
      [true, 2, ['added a@1', 'added b@2']],
    );
    const query = watches()[0]?.query;
    assert.deepEqual(
      [query?.get('resourceVersion'), query?.get('allowWatchBookmarks')],
      ['10', 'true'],
    );
    const seconds = Number(query?.get('timeoutSeconds'));
    assert.ok(seconds >= 300 && seconds <= 600, String(seconds));
    assert.equal(lists()[0]?.query.get('limit'), '100');
  });

  it('applies the events of the watch to transformed objects, and tells what was before', async () => {
    const seen: Change<Item>[] = [];
    const reflector = start({ onChange: (change) => seen.push(change) });
    await synced(reflector);
    lastWatch().send('ADDED', item('c', 11));
    lastWatch().send('MODIFIED', item('a', 12, { size: 'large' }));
    lastWatch().send('DELETED', item('b', 13));
    await until(() => seen.length === 5, 'all events arrived');
    assert.deepEqual(
      seen
        .slice(2)
        .map(({ type, object, previous }) => [
          type,
          object.metadata.name,
          previous?.size,
          object.size,
        ]),
      [
        ['added', 'c', undefined, 'small'],
        ['modified', 'a', 'small', 'large'],
        ['deleted', 'b', 'small', 'small'],
      ],
    );
    assert.deepEqual(
      [...reflector.list()].map((object) => object.metadata.name),
      ['a', 'c'],
    );
    assert.deepEqual([reflector.get('ns/a')?.size, reflector.get('ns/b')], ['large', undefined]);
    assert.equal(JSON.stringify([...reflector.list()]).includes('managedFields'), false);
  });

  it('passes namespace and selectors to list and watch', async () => {
    await synced(
      start({ namespace: 'ns', fieldSelector: 'metadata.name=a', labelSelector: 'x=y' }),
    );
    for (const seen of server.seen) {
      assert.equal(seen.path, '/api/v1/namespaces/ns/persistentvolumeclaims');
      assert.deepEqual(
        [seen.query.get('fieldSelector'), seen.query.get('labelSelector')],
        ['metadata.name=a', 'x=y'],
      );
    }
  });

  it('reports an object of the same name with another UID as deleted and added', async () => {
    await synced(start());
    lastWatch().send('MODIFIED', item('a', 12, { uid: 'other' }));
    await until(() => changes.length === 4, 'it arrived');
    assert.deepEqual(changes.slice(2), ['deleted a@1', 'added a@12']);
  });

  it('ignores the deletion of an unknown object', async () => {
    await synced(start());
    lastWatch().send('DELETED', item('unknown', 12));
    lastWatch().send('ADDED', item('c', 13));
    await until(() => changes.length === 3, 'the next arrived');
    assert.deepEqual(changes.slice(2), ['added c@13']);
  });

  it('lists page by page and lets other work run between pages', async () => {
    const items = Array.from({ length: 225 }, (_, i) => item(`n${i}`, i));
    cluster.onList = (seen, reply) => {
      const at = Number(seen.query.get('continue') ?? 0);
      const limit = Number(seen.query.get('limit'));
      const next = at + limit < items.length ? String(at + limit) : '';
      reply.json(200, {
        metadata: { resourceVersion: '7', continue: next },
        items: items.slice(at, at + limit),
      });
    };
    const reflector = start();
    await synced(reflector);
    assert.deepEqual([reflector.size, lists().length, changes.length], [225, 3, 225]);
  });
});

describe('after a watch has ended', () => {
  it('resumes from the last version or bookmark, without relisting, if the server ended it', async () => {
    const { clock, sleptMs } = recordSleeps();
    await synced(start({ clock }));
    lastWatch().send('ADDED', item('c', 11));
    lastWatch().send('BOOKMARK', {
      kind: 'PersistentVolumeClaim',
      metadata: { resourceVersion: '99' },
    });
    await until(() => changes.length === 3, 'both arrived');
    lastWatch().end();
    await until(() => cluster.watches.length === 2, 'the next is open');
    lastWatch().send('ADDED', item('d', 100));
    await until(() => changes.length === 4, 'its event arrived');
    assert.deepEqual(
      watches().map((seen) => seen.query.get('resourceVersion')),
      ['10', '99'],
    );
    assert.deepEqual([lists().length, sleptMs], [1, []]);
  });

  it('backs off, without trouble, if the server ends it at once again and again', async () => {
    const { clock, sleptMs } = recordSleeps();
    cluster.onWatch = firstTimes(6, (_, reply) => reply.watch().end(), openWatch);
    const reflector = start({ clock, backoff: { startMs: 500, maxMs: 30_000 } });
    await until(() => cluster.watches.length === 1, 'one stays open');
    await synced(reflector);
    assert.equal(sleptMs.length, 5);
    for (const [i, ms] of sleptMs.entries())
      assert.ok(ms >= 250 * 2 ** i && ms <= 500 * 2 ** i, String(sleptMs));
    assert.equal(lists().length, 1);
  });

  it('loses no change and reports none twice if it was reset within a line', async () => {
    await synced(start());
    const text = `${JSON.stringify({ type: 'ADDED', object: item('ü', 11) })}\n`;
    const bytes = Buffer.from(text);
    lastWatch().write(bytes.subarray(0, bytes.indexOf(0xbc)));
    lastWatch().drop();
    await until(() => cluster.watches.length === 2, 'the next is open');
    assert.equal(watches()[1]?.query.get('resourceVersion'), '10');
    lastWatch().write(bytes);
    await until(() => changes.length === 3, 'the event arrived');
    assert.deepEqual([changes[2], lists().length], ['added ü@11', 1]);
  });

  it('resumes from the last version, without trouble, if it fell silent', async () => {
    const { clock, sleptMs } = recordSleeps();
    const reflector = start({ idleTimeoutMs: 500, clock });
    await synced(reflector);
    await until(() => cluster.watches.length === 2, 'another was opened');
    assert.deepEqual([lists().length, reflector.trouble, sleptMs], [1, undefined, []]);
  });

  for (const [title, end] of [
    ['HTTP 410', (watch: OpenWatch) => watch.end()],
    [
      'an ERROR event of 410',
      (watch: OpenWatch) =>
        watch.send('ERROR', statusOf(410, 'Expired', 'too old resource version')),
    ],
  ] as const) {
    it(`relists at once after ${title}, and reports what has changed meanwhile`, async () => {
      const { clock, sleptMs } = recordSleeps();
      const reflector = start({ clock });
      await synced(reflector);
      if (title === 'HTTP 410')
        cluster.onWatch = firstTimes(1, refuse(410, 'Expired', 'too old'), openWatch);
      Object.assign(cluster, { items: [item('a', 1), item('c', 15)], version: 20 });
      lastWatch().send('BOOKMARK', { metadata: { resourceVersion: '11' } });
      end(lastWatch());
      await until(
        () => lists().length === 2 && cluster.watches.length === 2,
        'it listed again and watches',
      );
      assert.deepEqual(changes.slice(2), ['added c@15', 'deleted b@2']);
      assert.equal(watches().at(-1)?.query.get('resourceVersion'), '20');
      assert.deepEqual(sleptMs, []);
    });
  }

  it('follows the collection only while a watch is open', async () => {
    const duringLists: boolean[] = [];
    cluster.onList = (seen, reply) => {
      duringLists.push(reflector.isFollowing);
      return listAll(seen, reply);
    };
    const reflector = start();
    await until(() => reflector.isFollowing, 'the watch is open');
    cluster.onWatch = firstTimes(1, refuse(410, 'Expired', 'too old'), openWatch);
    lastWatch().end();
    await until(() => lists().length === 2 && reflector.isFollowing, 'it follows again');
    assert.deepEqual(duringLists, [false, false]);
    await reflector.stop();
    assert.ok(!reflector.isFollowing);
  });

  it('backs off between the lists after repeated 410', async () => {
    const { clock, sleptMs } = recordSleeps();
    cluster.onWatch = firstTimes(4, refuse(410, 'Expired'), openWatch);
    await synced(start({ clock }));
    assert.deepEqual([lists().length, sleptMs.length], [5, 3]);
  });

  for (const code of [400, 504])
    it(`relists when its version was refused three times by ${code}`, async () => {
      cluster.onWatch = firstTimes(3, refuse(code, 'Invalid', 'version'), openWatch);
      await synced(start());
      assert.equal(lists().length, 2);
    });

  it('reports another ERROR event, also as the first event, and resumes', async () => {
    const troubles: (string | undefined)[] = [];
    cluster.onWatch = firstTimes(
      3,
      (_, reply) => {
        troubles.push(reflector.trouble);
        const watch = reply.watch();
        watch.send('ERROR', statusOf(500, 'InternalError', 'storage lacks RequestWatchProgress'));
        watch.end();
      },
      openWatch,
    );
    const reflector = start();
    await until(() => cluster.watches.length === 1, 'one stays open');
    await synced(reflector);
    const trouble =
      'persistentvolumeclaims: watch persistentvolumeclaims: HTTP 500: ' +
      'storage lacks RequestWatchProgress';
    assert.deepEqual(troubles.slice(1), [trouble, trouble]);
    assert.equal(lists().length, 1);
  });

  it('reconnects after bytes that are not an event', async () => {
    await synced(start());
    lastWatch().write('<html>\n');
    await until(() => cluster.watches.length === 2, 'the next is open');
    assert.equal(lists().length, 1);
  });
});

describe('while the API server refuses', () => {
  for (const [code, reason, hint] of [
    [500, 'InternalError', 'no'],
    [401, 'Unauthorized', 'the credentials are refused'],
    [403, 'Forbidden', 'grant list and watch'],
    [404, 'NotFound', 'does not serve this resource'],
    [429, 'TooManyRequests', 'no'],
  ] as const) {
    it(`a watch with ${code}: keeps its objects, says so, and resumes`, async () => {
      const troubles = new Set<string | undefined>();
      const reflector = start();
      await synced(reflector);
      cluster.onWatch = firstTimes(
        4,
        (seen, reply) => {
          troubles.add(reflector.trouble);
          void refuse(code, reason)(seen, reply);
        },
        openWatch,
      );
      lastWatch().end();
      await until(() => cluster.watches.length === 2, 'it is open again');
      await until(() => reflector.trouble === undefined, 'trouble is over');
      assert.ok(
        [...troubles].some((trouble) => trouble?.includes(hint)),
        [...troubles].join(),
      );
      // It may mean that the server does not know the version: listed again after three.
      assert.deepEqual([reflector.size, lists().length], [2, code === 500 ? 2 : 1]);
    });
  }

  it('waits as long as Retry-After asks', async () => {
    const { clock, sleptMs } = recordSleeps();
    cluster.onWatch = firstTimes(
      1,
      refuse(429, 'TooManyRequests', 'no', { 'retry-after': '7' }),
      openWatch,
    );
    await synced(start({ clock }));
    assert.deepEqual(
      sleptMs.map((ms) => ms >= 7000),
      [true],
    );
  });

  it('a continue token that is too old: restarts the list', async () => {
    cluster.onList = firstTimes(
      1,
      (_, reply) =>
        reply.json(200, {
          metadata: { resourceVersion: '5', continue: 'old' },
          items: [item('a', 1), item('gone', 3)],
        }),
      firstTimes(1, refuse(410, 'Expired', 'The provided continue parameter is too old'), listAll),
    );
    const reflector = start();
    await synced(reflector);
    assert.deepEqual(
      lists().map((seen) => seen.query.get('continue')),
      [null, 'old', null],
    );
    assert.deepEqual(changes, ['added a@1', 'added gone@3', 'added b@2', 'deleted gone@3']);
  });

  it('backs off up to the limit, with jitter, and starts again after progress', async () => {
    const { clock, sleptMs } = recordSleeps();
    cluster.onWatch = firstTimes(9, refuse(500, 'InternalError'), openWatch);
    await synced(start({ clock, backoff: { startMs: 500, maxMs: 30_000 } }));
    assert.equal(sleptMs.length, 9);
    for (const [i, ms] of sleptMs.entries()) {
      const full = Math.min(30_000, 500 * 2 ** i);
      assert.ok(ms >= full / 2 && ms <= full, String(sleptMs));
    }
    lastWatch().send('ADDED', item('c', 50));
    await until(() => changes.length === 3, 'it arrived');
    lastWatch().drop();
    await until(() => cluster.watches.length === 2, 'it is open again');
    assert.ok((sleptMs[9] ?? 0) <= 500, String(sleptMs));
  });

  it('connections, because it is down: reconnects later', async () => {
    const other = await startKubeServer(server.handler);
    const access = plainAccess(other);
    // Its repetitions of a request take no time.
    const { clock } = recordSleeps();
    const lone = createKubeClient({ access, userAgent: 'x', log: silentLog, clock });
    const reflector = start({ client: lone });
    await synced(reflector);
    await other.close();
    await until(
      () => reflector.trouble?.includes('ECONNREFUSED') === true,
      'the trouble is reported',
    );
    assert.equal(reflector.size, 2, 'the copy stays');
    await reflector.stop();
    await lone.close();
  });

  it('a list: is not synced, says so, and retries', async () => {
    cluster.onList = firstTimes(4, refuse(500, 'InternalError'), listAll);
    const reflector = start();
    assert.equal(reflector.hasSynced, false);
    await synced(reflector);
    assert.equal(reflector.size, 2);
  });

  it('reports the trouble while it waits', async () => {
    cluster.onList = refuse(
      403,
      'Forbidden',
      'persistentvolumeclaims is forbidden: User "x" cannot list resource',
    );
    const reflector = start({ backoff: { startMs: 5000, maxMs: 5000 } });
    await until(
      () =>
        reflector.trouble?.includes('User "x" cannot list resource (grant list and watch)') ===
        true,
      'the trouble is reported',
    );
    assert.equal(reflector.hasSynced, false);
  });
});

describe('a caller of the reflector', () => {
  it('may throw in onChange: that is logged and changes nothing', async () => {
    const lines: string[] = [];
    const log = pino({ level: 'error' }, { write: (line: string) => void lines.push(line) });
    const reflector = start({
      log,
      onChange: (change) => {
        changes.push(change.object.metadata.name);
        throw new Error('handler broke');
      },
    });
    await synced(reflector);
    lastWatch().send('ADDED', item('c', 11));
    await until(() => changes.length === 3, 'the next arrived, too');
    assert.deepEqual([reflector.size, lines.length, cluster.watches.length], [3, 3, 1]);
    assert.ok(lines[0]?.includes('handler broke') && lines[0].includes('ns/a'), lines[0]);
  });

  it('may throw in transform: only that object is skipped', async () => {
    const lines: string[] = [];
    const log = pino({ level: 'error' }, { write: (line: string) => void lines.push(line) });
    cluster.items = [
      item('a', 1),
      { metadata: { name: 'bad', namespace: 'ns', uid: 'u', resourceVersion: '2' } },
      item('c', 3),
    ];
    const reflector = start({ log });
    await synced(reflector);
    assert.deepEqual(
      [...reflector.list()].map((object) => object.metadata.name),
      ['a', 'c'],
    );
    assert.equal(lines.length, 1);
  });

  it('can stop it during a slow list, and no watch is opened', async () => {
    cluster.onList = () => {};
    const reflector = start();
    await until(() => lists().length === 1, 'the list was requested');
    const waiting = assert.rejects(reflector.waitForSync(), /is stopped/);
    await reflector.stop();
    await waiting;
    assert.deepEqual([watches().length, reflector.trouble], [0, 'persistentvolumeclaims: stopped']);
  });

  it('can wait for synced until a signal aborts', async () => {
    cluster.onList = () => {};
    const reflector = start();
    await assert.rejects(reflector.waitForSync(AbortSignal.timeout(10)), { name: 'TimeoutError' });
    await assert.rejects(reflector.waitForSync(AbortSignal.abort(new Error('no time'))), /no time/);
  });

  it('sees lists, reconnections and objects by resource in the metrics', async () => {
    const metrics = new Registry();
    await synced(start({ metrics }));
    await synced(start({ metrics }));
    lastWatch().end();
    await until(() => cluster.watches.length === 3, 'it is open again');
    const text = await metrics.metrics();
    assert.match(text, /sutler_kube_reflector_lists_total\{resource="persistentvolumeclaims"\} 2/);
    assert.match(
      text,
      /sutler_kube_reflector_watch_ends_total\{resource="persistentvolumeclaims"\} 1/,
    );
    assert.match(text, /sutler_kube_reflector_objects\{resource="persistentvolumeclaims"\} 4/);
  });

  it('gets no changes after stop', async () => {
    const reflector = start();
    await synced(reflector);
    lastWatch().send('ADDED', item('c', 11));
    await reflector.stop();
    const reported = changes.length;
    await until(() => lastWatch().isClosed, 'the connection is closed');
    assert.equal(changes.length, reported);
  });
});
