import assert from 'node:assert/strict';
import { after, afterEach, beforeEach, describe, it } from 'node:test';
import { Registry } from 'prom-client';
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
import { createLogger, silentLog } from '#src/runtime/log.ts';
import {
  type Handler,
  type OpenWatch,
  plainAccess,
  type Seen,
  startKubeServer,
  statusOf,
} from '../harness/kube-server.ts';
import { until } from '../harness/until.ts';

const server = await startKubeServer(() => {});
const access = plainAccess(server);
const client = createKubeClient({ access, userAgent: 'sutler-test/1', log: silentLog });
after(async () => {
  await client.close();
  await server.close();
});

interface Item extends Transformed {
  readonly size: string;
}
interface Raw {
  readonly metadata: Item['metadata'] & { readonly managedFields: unknown };
  readonly spec: { readonly size: string };
}
const item = (name: string, version: number, o: { uid?: string; size?: string } = {}): Raw => ({
  metadata: {
    name,
    namespace: 'ns',
    uid: o.uid ?? `uid-${name}`,
    resourceVersion: String(version),
    managedFields: [{ manager: 'x' }],
  },
  spec: { size: o.size ?? 'small' },
});
const transform = (raw: unknown): Item => {
  const { metadata, spec } = raw as Raw;
  const { name, namespace = '', uid, resourceVersion } = metadata;
  return { metadata: { name, namespace, uid, resourceVersion }, size: spec.size };
};

/** The server's objects. Tests replace `onList` and `onWatch` to cause failures. */
const cluster: {
  items: object[];
  version: number;
  watches: OpenWatch[];
  onList: Handler;
  onWatch: Handler;
} = { items: [], version: 0, watches: [], onList: () => {}, onWatch: () => {} };
const listAll: Handler = (_, reply) =>
  reply.json(200, { metadata: { resourceVersion: String(cluster.version) }, items: cluster.items });
const openWatch: Handler = (_, reply) => void cluster.watches.push(reply.watch());
const isWatch = (seen: Seen): boolean => seen.query.get('watch') === 'true';
/** Asks only for the version, before a watch that resumes. */
const isVersionCheck = (seen: Seen): boolean => seen.query.get('limit') === '1';
/** Requests of the reflectors of earlier tests may still arrive: each test has its own label. */
let label = 'test=0';
const seenNow = (): Seen[] =>
  server.seen.filter(({ query }) => query.get('labelSelector') === label);
const lists = (): Seen[] => seenNow().filter((seen) => !isWatch(seen) && !isVersionCheck(seen));
const watches = (): Seen[] => seenNow().filter(isWatch);
const lastWatch = (): OpenWatch => cluster.watches.at(-1) ?? assert.fail('no watch');
const untilWatches = (count: number): Promise<void> =>
  until(() => cluster.watches.length === count, `${count} watches were opened`);
const refuse =
  (code: number, headers: Record<string, string> = {}): Handler =>
  (_, reply) =>
    reply.status(code, 'Refused', 'no', headers);
/** Handles `times` requests by `bad`, the others by `good`. */
function firstTimes(times: number, bad: Handler, good: Handler): Handler {
  let left = times;
  return (seen, reply) => (left-- > 0 ? bad(seen, reply) : good(seen, reply));
}

let serial = 0;
let running: Reflector<Item>[] = [];
let changes: string[] = [];
const untilChanges = (count: number): Promise<void> =>
  until(() => changes.length === count, `${count} changes arrived`);
const describeChange = ({ type, object: { metadata } }: Change<Item>): string =>
  `${type} ${metadata.name}@${metadata.resourceVersion}`;
function start(o: Partial<ReflectorOptions<Item>> = {}): Reflector<Item> {
  const reflector = startReflector<Item>({
    client,
    resource: claims,
    labelSelector: label,
    transform,
    onChange: (change) => void changes.push(describeChange(change)),
    log: silentLog,
    backoff: { startMs: 4, maxMs: 20 },
    idleTimeoutMs: 4000,
    ...o,
  });
  running.push(reflector);
  return reflector;
}
/** Starts one, and waits until its watch is open. */
async function follow(o: Partial<ReflectorOptions<Item>> = {}): Promise<Reflector<Item>> {
  const reflector = start(o);
  await reflector.waitForSync(AbortSignal.timeout(5000));
  await until(() => reflector.trouble === undefined, 'the watch is open');
  return reflector;
}
/** A clock that records sleeps and shortens them. */
function recordSleeps(): { readonly sleptMs: number[]; readonly clock: Clock } {
  const sleptMs: number[] = [];
  const sleep: Clock['sleep'] = (ms, signal) => (sleptMs.push(ms), systemClock.sleep(1, signal));
  return { sleptMs, clock: { nowMs: () => Date.now(), sleep } };
}
/** Checks that each sleep was longer than the one before, with jitter, up to the limit. */
function assertBackoff(sleptMs: readonly number[], startMs: number, maxMs: number): void {
  for (const [i, ms] of sleptMs.entries()) {
    const full = Math.min(maxMs, startMs * 2 ** i);
    assert.ok(ms >= full / 2 && ms <= full, String(sleptMs));
  }
}
function recordLog() {
  const lines: string[] = [];
  const write = (line: string): void => void lines.push(line);
  const log = createLogger({ name: 'test', verbosity: 0, format: 'text', write });
  return { log, errors: () => lines.filter((line) => line.includes('ERROR')) };
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
  label = `test=${(serial += 1)}`;
  server.handler = (seen, reply) => {
    if (seen.query.get('labelSelector') !== label) return void seen.raw.socket.destroy();
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

describe('a reflector', () => {
  it('lists, then watches from that version, with bookmarks and a time limit', async () => {
    const reflector = start();
    assert.deepEqual(
      [reflector.hasSynced, reflector.trouble],
      [false, 'persistentvolumeclaims: not listed yet'],
    );
    await until(() => watches().length === 1, 'it watches');
    assert.deepEqual([reflector.size, changes], [2, ['added a@1', 'added b@2']]);
    const {
      timeoutSeconds,
      labelSelector: _,
      ...query
    } = Object.fromEntries(watches()[0]?.query ?? []);
    assert.deepEqual(query, { watch: 'true', resourceVersion: '10', allowWatchBookmarks: 'true' });
    assert.ok(Number(timeoutSeconds) >= 300 && Number(timeoutSeconds) <= 600, timeoutSeconds);
  });

  it('applies the events of the watch to transformed objects, and passes the state before', async () => {
    const seen: Change<Item>[] = [];
    const reflector = await follow({ onChange: (change) => seen.push(change) });
    lastWatch().send('ADDED', item('c', 11));
    lastWatch().send('MODIFIED', item('a', 12, { size: 'large' }));
    lastWatch().send('DELETED', item('b', 13));
    await until(() => seen.length === 5, 'all events arrived');
    assert.deepEqual(
      seen.slice(2).map((each) => [describeChange(each), each.previous?.size, each.object.size]),
      [
        ['added c@11', undefined, 'small'],
        ['modified a@12', 'small', 'large'],
        ['deleted b@2', 'small', 'small'],
      ],
    );
    assert.deepEqual([...reflector.list()], [reflector.get('ns/a'), reflector.get('ns/c')]);
    assert.equal(JSON.stringify([...reflector.list()]).includes('managedFields'), false);
  });

  it('passes namespace, selectors and the form of objects to list and watch', async () => {
    const selection = { fieldSelector: 'metadata.name=a', labelSelector: label };
    await follow({ namespace: 'ns', metadataOnly: true, ...selection });
    const form = 'g=meta.k8s.io;v=v1,application/json';
    const accepts = [
      `application/json;as=PartialObjectMetadataList;${form}`,
      `application/json;as=PartialObjectMetadata;${form}`,
    ];
    for (const [at, seen] of seenNow().entries()) {
      const { fieldSelector, labelSelector } = Object.fromEntries(seen.query);
      assert.equal(seen.path, '/api/v1/namespaces/ns/persistentvolumeclaims');
      assert.deepEqual({ fieldSelector, labelSelector }, selection);
      assert.equal(seen.headers.accept, accepts[at]);
    }
  });

  it('keeps an object while it is wanted, and reports its last state with the change', async () => {
    const seen: Change<Item>[] = [];
    const isKept = ({ size }: Item): boolean => size === 'small';
    const reflector = await follow({ isKept, onChange: (change) => seen.push(change) });
    lastWatch().send('MODIFIED', item('a', 11, { size: 'large' }));
    lastWatch().send('MODIFIED', item('a', 12, { size: 'larger' }));
    await until(() => seen.length === 4, 'both events arrived');
    assert.equal(reflector.size, 1);
    assert.deepEqual(
      seen.slice(2).map(({ type, previous }) => [type, previous?.size]),
      [
        ['modified', 'small'],
        ['modified', undefined],
      ],
    );
  });

  it('reports an object of the same name with another UID as deleted and added', async () => {
    await follow();
    lastWatch().send('MODIFIED', item('a', 12, { uid: 'other' }));
    await untilChanges(4);
    assert.deepEqual(changes.slice(2), ['deleted a@1', 'added a@12']);
  });

  it('lists in pages of 100', async () => {
    const items = Array.from({ length: 225 }, (_, i) => item(`n${i}`, i));
    cluster.onList = (seen, reply) => {
      const at = Number(seen.query.get('continue') ?? 0);
      const next = at + Number(seen.query.get('limit'));
      const metadata = {
        resourceVersion: '7',
        continue: next < items.length ? String(next) : undefined,
      };
      reply.json(200, { metadata, items: items.slice(at, next) });
    };
    const reflector = await follow();
    assert.deepEqual([reflector.size, lists().length, changes.length], [225, 3, 225]);
  });
});

describe('after a watch has ended, a reflector', () => {
  it('resumes from the last bookmark, without relisting, if the server ended it', async () => {
    const { clock, sleptMs } = recordSleeps();
    await follow({ clock });
    lastWatch().send('ADDED', item('c', 11));
    lastWatch().send('BOOKMARK', { metadata: { resourceVersion: '99' } });
    await untilChanges(3);
    lastWatch().end();
    await untilWatches(2);
    lastWatch().send('ADDED', item('d', 100));
    await untilChanges(4);
    const versions = watches().map((seen) => seen.query.get('resourceVersion'));
    assert.deepEqual([versions, lists().length, sleptMs], [['10', '99'], 1, []]);
  });

  for (const [what, fail, times, sleeps] of [
    ['ends', (_, reply) => reply.watch().end(), 6, 5],
    ['refuses', refuse(500), 9, 9],
  ] satisfies readonly (readonly [string, Handler, number, number])[])
    it(`backs off if the server ${what} it at once again and again, and restarts after progress`, async () => {
      const { clock, sleptMs } = recordSleeps();
      cluster.onWatch = firstTimes(times, fail, openWatch);
      await follow({ clock, backoff: { startMs: 500, maxMs: 30_000 } });
      await untilWatches(1);
      assert.equal(sleptMs.length, sleeps);
      assertBackoff(sleptMs, 500, 30_000);
      lastWatch().send('ADDED', item('c', 50));
      await untilChanges(3);
      lastWatch().drop();
      await untilWatches(2);
      assert.ok((sleptMs[sleeps] ?? 0) <= 500, String(sleptMs));
    });

  it('resumes from its version, without a list or trouble, if it fell silent', async () => {
    const reflector = await follow({ idleTimeoutMs: 40 });
    await untilWatches(4);
    assert.deepEqual([lists().length, reflector.trouble], [1, undefined]);
    assert.ok(watches().every((seen) => seen.query.get('resourceVersion') === '10'));
  });

  for (const [title, end] of [
    ['HTTP 410', (watch: OpenWatch) => watch.end()],
    [
      'an ERROR event of 410',
      (watch: OpenWatch) =>
        watch.send('ERROR', statusOf(410, 'Expired', 'too old resource version')),
    ],
  ] as const)
    it(`relists at once after ${title}, and reports what has changed meanwhile`, async () => {
      const { clock, sleptMs } = recordSleeps();
      await follow({ clock });
      if (title === 'HTTP 410') cluster.onWatch = firstTimes(1, refuse(410), openWatch);
      Object.assign(cluster, { items: [item('a', 1), item('c', 15)], version: 20 });
      lastWatch().send('BOOKMARK', { metadata: { resourceVersion: '11' } });
      end(lastWatch());
      await untilWatches(2);
      assert.deepEqual(changes.slice(2), ['added c@15', 'deleted b@2']);
      assert.equal(watches().at(-1)?.query.get('resourceVersion'), '20');
      assert.deepEqual([lists().length, sleptMs], [2, []]);
    });

  it('follows the collection only while a watch is open', async () => {
    const duringLists: boolean[] = [];
    cluster.onList = (seen, reply) => {
      duringLists.push(reflector.isFollowing);
      return listAll(seen, reply);
    };
    const reflector = start();
    await until(() => reflector.isFollowing, 'the watch is open');
    cluster.onWatch = firstTimes(1, refuse(410), openWatch);
    lastWatch().end();
    await until(() => lists().length === 2 && reflector.isFollowing, 'it follows again');
    assert.deepEqual(duringLists, [false, false]);
    await reflector.stop();
    assert.ok(!reflector.isFollowing);
  });

  it('backs off between the lists after repeated 410', async () => {
    const { clock, sleptMs } = recordSleeps();
    cluster.onWatch = firstTimes(4, refuse(410), openWatch);
    await follow({ clock });
    assert.deepEqual([lists().length, sleptMs.length], [5, 3]);
  });

  it('reports another ERROR event, also as the first event, and resumes', async () => {
    const troubles: (string | undefined)[] = [];
    const failLate: Handler = (_, reply) => {
      troubles.push(reflector.trouble);
      const watch = reply.watch();
      watch.send('ERROR', statusOf(500, 'InternalError', 'storage lacks RequestWatchProgress'));
      watch.end();
    };
    cluster.onWatch = firstTimes(3, failLate, openWatch);
    const reflector = start();
    await untilWatches(1);
    const trouble =
      'persistentvolumeclaims: watch persistentvolumeclaims: HTTP 500: ' +
      'storage lacks RequestWatchProgress';
    assert.deepEqual([troubles.slice(1), lists().length], [[trouble, trouble], 1]);
  });
});

describe('while the API server refuses', () => {
  // 400, 500 and 504 may mean that the server does not know the version: listed after three.
  for (const [code, hint, listed] of [
    [400, 'no', 2],
    [401, 'renew the credentials', 1],
    [403, 'grant list and watch', 1],
    [404, 'does not serve this resource', 1],
    [429, 'no', 1],
    [500, 'no', 2],
    [504, 'no', 2],
  ] as const)
    it(`a watch with ${code}, a reflector keeps its objects, says so, and resumes`, async () => {
      const troubles = new Set<string | undefined>();
      const reflector = await follow();
      const note: Handler = (seen, reply) => {
        troubles.add(reflector.trouble);
        return refuse(code)(seen, reply);
      };
      cluster.onWatch = firstTimes(4, note, openWatch);
      lastWatch().end();
      await untilWatches(2);
      await until(() => reflector.trouble === undefined, 'trouble is over');
      assert.ok([...troubles].join().includes(hint), [...troubles].join());
      assert.deepEqual([reflector.size, lists().length], [2, listed]);
    });

  it('a watch with Retry-After, a reflector waits as long', async () => {
    const { clock, sleptMs } = recordSleeps();
    cluster.onWatch = firstTimes(1, refuse(429, { 'retry-after': '7' }), openWatch);
    await follow({ clock });
    assert.equal(sleptMs.length, 1);
    assert.ok((sleptMs[0] ?? 0) >= 7000, String(sleptMs));
  });

  it('a continue token that is too old, a reflector restarts the list', async () => {
    const firstPage: Handler = (_, reply) => {
      const metadata = { resourceVersion: '5', continue: 'old' };
      reply.json(200, { metadata, items: [item('a', 1), item('gone', 3)] });
    };
    cluster.onList = firstTimes(1, firstPage, firstTimes(1, refuse(410), listAll));
    await follow();
    assert.deepEqual(
      lists().map((seen) => seen.query.get('continue')),
      [null, 'old', null],
    );
    assert.deepEqual(changes, ['added a@1', 'added gone@3', 'added b@2', 'deleted gone@3']);
  });

  it('connections, a reflector keeps its objects and says so', async () => {
    const other = await startKubeServer(server.handler);
    // Its repetitions of a request take no time.
    const { clock } = recordSleeps();
    const to = { access: plainAccess(other), userAgent: 'x', log: silentLog, clock };
    const lone = createKubeClient(to);
    const reflector = await follow({ client: lone });
    await other.close();
    await until(() => reflector.trouble?.includes('ECONNREFUSED') === true, 'it says so');
    assert.equal(reflector.size, 2);
    await reflector.stop();
    await lone.close();
  });

  it('a list, a reflector is not synced, says so, and retries', async () => {
    cluster.onList = refuse(403);
    const reflector = start();
    const trouble = 'persistentvolumeclaims: list persistentvolumeclaims: HTTP 403: no';
    const hint = ' (grant list and watch)';
    await until(() => reflector.trouble === trouble + hint, 'the trouble is reported');
    assert.equal(reflector.hasSynced, false);
    cluster.onList = listAll;
    await reflector.waitForSync(AbortSignal.timeout(5000));
    assert.equal(reflector.size, 2);
  });
});

describe('a caller of the reflector', () => {
  it('may throw in onChange: that is logged and changes nothing', async () => {
    const { log, errors } = recordLog();
    const onChange = ({ object }: Change<Item>): never => {
      changes.push(object.metadata.name);
      throw new Error('handler broke');
    };
    const reflector = await follow({ log, onChange });
    lastWatch().send('ADDED', item('c', 11));
    await untilChanges(3);
    assert.deepEqual([reflector.size, errors().length, cluster.watches.length], [3, 3, 1]);
    assert.match(errors()[0] ?? '', /ns\/a.*handler broke/);
  });

  it('may throw in transform: that object is logged and skipped', async () => {
    const { log, errors } = recordLog();
    const unreadable = { metadata: { name: 'bad', namespace: 'ns' } };
    cluster.items = [item('a', 1), unreadable, {}, item('c', 3)];
    const reflector = await follow({ log });
    assert.deepEqual([...reflector.list()], [reflector.get('ns/a'), reflector.get('ns/c')]);
    assert.equal(errors().length, 1);
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

  it('sees lists, reconnections and objects by resource in the metrics', async () => {
    const metrics = new Registry();
    await follow({ metrics });
    await follow({ metrics });
    lastWatch().end();
    await untilWatches(3);
    const text = await metrics.metrics();
    for (const [name, value] of [
      ['lists_total', 2],
      ['watch_ends_total', 1],
      ['objects', 4],
    ] as const)
      assert.ok(
        text.includes(`sutler_kube_reflector_${name}{resource="persistentvolumeclaims"} ${value}`),
        text,
      );
  });
});
