import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { NO_CLASS, type PendingEntry, writePending } from '#src/explain/pending-index.ts';
import { writeStatus } from '#src/queue/status.ts';
import { writeDriverNote } from '#src/hints/driver-note.ts';
import { beginLeading } from '../harness/leading.ts';
import { createLogger } from '#src/runtime/log.ts';
import {
  type BoardRedis,
  PREFIX,
  type Reply,
  RIGHT,
  type RunningDashboard,
  startBoardRedis,
  type SendOptions,
  startTestDashboard,
  USER,
} from '../harness/dashboard-server.ts';

const DRIVER = 'd.example';
const HOUR_MS = 3_600_000;
const VIEWER = { user: 'viewer', password: 'reads: only-this', mayAct: false } as const;
const AS_VIEWER: readonly [string, string] = [VIEWER.user, VIEWER.password];
const FULL = 'rpc error: code = ResourceExhausted desc = the pool is full';
const SCRIPTS = /<script|<img/;
const HTML = { accept: 'text/html' };
const FROM_OTHER_SITES = [
  { origin: 'http://evil.example' },
  { origin: 'null' },
  { 'sec-fetch-site': 'cross-site' },
  { 'sec-fetch-site': 'same-site' },
];

function claimOf(n: number, o: Partial<PendingEntry> = {}): PendingEntry {
  const key = { kind: 'claim', uid: `uid-${n}`, namespace: 'ns', name: `claim-${n}` } as const;
  return { key, className: 'gold', sinceMs: Date.now() - HOUR_MS + n, why: '', ...o };
}

describe('the first page of the dashboard', () => {
  let redis: BoardRedis;
  let dashboard: RunningDashboard;
  let logged = '';

  const get = async (path: string): Promise<string> => {
    const { status, text } = await dashboard.send(path, { basic: RIGHT });
    assert.equal(status, 200, text);
    return text;
  };
  const post = (path: string, basic = RIGHT, headers = {}): Promise<Reply> =>
    dashboard.send(path, { method: 'POST', basic, headers });
  const list = async (entries: readonly PendingEntry[], driver = DRIVER): Promise<void> => {
    await writePending({ redis: redis.redis, prefix: PREFIX, driver }, entries);
  };
  const fail = (entry: PendingEntry, reason: string, atMs = Date.now()): Promise<unknown> =>
    writeStatus(
      redis.redis,
      { prefix: PREFIX, driver: DRIVER, key: entry.key },
      { outcome: 'retry', reason, atMs },
    );
  /** As a leader and a worker of the driver write. */
  const beAtWork = async (): Promise<void> => {
    const entry = { version: '1', drivers: [DRIVER], lines: [] };
    const inAnHourMs = Date.now() + HOUR_MS;
    await beginLeading({ redis: redis.redis, prefix: PREFIX, driver: DRIVER });
    for (const process of ['ingest', 'jobs']) {
      const text = `${inAnHourMs} ${JSON.stringify({ ...entry, process })}`;
      await redis.redis.hset('{csi}:processes', `${process}-1`, text);
    }
  };
  const rowsIn = (text: string): readonly string[] =>
    [...text.matchAll(/<tr><td.*?<\/tr>/gs)].map(([row]) =>
      row
        .replaceAll(/<[^>]*>/g, ' ')
        .replaceAll(/\s+/g, ' ')
        .trim(),
    );
  /** The rows of the table of faults, and those of objects. */
  const tablesOf = (text: string): readonly (readonly string[])[] =>
    [...text.matchAll(/<table.*?<\/table>/gs)].map(([table]) => rowsIn(table));

  before(async () => {
    redis = await startBoardRedis();
  });
  beforeEach(async () => {
    logged = '';
    await redis.redis.flushall();
    await beAtWork();
    await redis.fill(DRIVER, [claimOf(1).key], HOUR_MS);
    dashboard = await startTestDashboard(redis.server.url, {
      allowActions: true,
      log: createLogger({
        name: 'test',
        verbosity: 0,
        format: 'json',
        write: (line) => (logged += line),
      }),
    });
  });
  afterEach(() => dashboard.close());
  after(() => redis.close());

  it('lists what is pending, the oldest first, with class, age, cause, runs and next run', async () => {
    await list([claimOf(2), claimOf(1)]);
    await fail(claimOf(1), FULL);
    const [, objects] = tablesOf(await get('/'));
    assert.match(objects?.[0] ?? '', /^ns\/claim-1 gold 60m ResourceExhausted 1 in (60m|1h)$/);
    assert.equal(objects?.[1], 'ns/claim-2 gold 60m Queued 0');
    assert.equal(objects?.length, 2);
  });

  it('shows a fault of many claims once, with its count, next step and oldest claim', async () => {
    const entries = Array.from({ length: 60 }, (_, n) => claimOf(n));
    await list(entries);
    for (const [n, entry] of entries.slice(0, 58).entries())
      await fail(entry, `${FULL}: ${n} MiB are left for ns/${entry.key.name}`);
    await fail(claimOf(58), `${FULL} of another kind`);
    const [faults] = tablesOf(await get('/'));
    const step = 'administrator: free or add capacity, or raise the quota of the storage';
    assert.deepEqual(faults, [
      `ResourceExhausted ${FULL}: 0 MiB are left for ns/claim-0 ${step} 58 claims ns/claim-0 60m`,
      `ResourceExhausted ${FULL} of another kind ${step} 1 claim ns/claim-58 60m`,
      'Queued it waits for a worker nobody: wait 1 claim ns/claim-59 60m',
    ]);
  });

  it('lists a claim whose class does not exist once, however many drivers do', async () => {
    await redis.fill('other.example', [claimOf(9).key]);
    const orphan = claimOf(3, { why: NO_CLASS, className: 'absent' });
    for (const driver of [DRIVER, 'other.example']) await list([orphan], driver);
    const [faults, objects] = tablesOf(await get('/'));
    assert.equal(objects?.length, 1);
    assert.match(faults?.join() ?? '', /^ClassNotFound StorageClass &quot;absent&quot; does not/);
  });

  it('says what keeps all claims of a driver waiting', async () => {
    await redis.redis.del('{csi}:processes');
    assert.match(
      await get('/'),
      /no ingest leads driver d\.example, .*; administrator: see \/readyz of ingest/,
    );
  });

  it('has fifty rows, and finds the others by page, fault, name, class and namespace', async () => {
    const key = { kind: 'claim', uid: 'x', namespace: 'team-b', name: 'data' } as const;
    const silver = claimOf(80, { key, className: 'silver' });
    await list([...Array.from({ length: 70 }, (_, n) => claimOf(n)), silver]);
    await fail(claimOf(5), 'error getting secret a in namespace b: not found');
    const rows = async (query: string): Promise<readonly string[]> =>
      tablesOf(await get(`/?${query}`))[1] ?? [];
    const [, fault = ''] = /"\/\?(fault=\w+)#list"[^>]*>1 claim</.exec(await get('/')) ?? [];
    assert.equal((await rows('')).length, 50);
    assert.match((await rows('page=2'))[0] ?? '', /^ns\/claim-50 /);
    assert.equal((await rows('page=999')).length, 21, 'the last page');
    for (const [query, object] of [
      [fault, 'ns/claim-5'],
      ['name=claim-69', 'ns/claim-69'],
      ['class=silver', 'team-b/data'],
      ['namespace=team-b', 'team-b/data'],
    ] as const)
      assert.deepEqual(
        (await rows(query)).map((row) => row.split(' ')[0]),
        [object],
        query,
      );
    assert.match(await get('/?name=other'), /Nothing that matches the filter/);
  });

  it('has a page for each object, with the time since its runs fail for the same reason', async () => {
    await list([claimOf(1)]);
    await fail(claimOf(1), 'the first reason', Date.parse('2026-01-02T03:04:05Z'));
    await fail(claimOf(1), 'the second reason');
    const text = await get('/claims/ns/claim-1');
    assert.match(text, /<title>ns\/claim-1 · sutler<\/title>/);
    assert.match(text, /the second reason/);
    assert.match(text, /2 since 2026-01-02T03:04:05Z, the last at /);
    assert.match(text, /1 for this reason, since \d{4}-\d\d-\d\dT/);
    assert.match(text, /in \d+\w, or at once: sutler retry ns\/claim-1/);
  });

  it('shows names and reasons as text, never as markup', async () => {
    const evil = "\"><script>alert(1)</script><img src=x onerror='a'>";
    const key = { ...claimOf(1).key, name: evil };
    await list([claimOf(1, { key, className: evil })]);
    await fail(claimOf(1), evil);
    const pages = [
      await get(`/?namespace=${encodeURIComponent(evil)}`),
      await get('/'),
      await get(`/claims/ns/${encodeURIComponent(evil)}`),
      (
        await dashboard.send(`/claims/x/${encodeURIComponent(evil)}`, {
          basic: RIGHT,
          headers: HTML,
        })
      ).text,
    ];
    for (const page of pages)
      assert.doesNotMatch(page.replace('<script src="/renewal.js" defer></script>', ''), SCRIPTS);
  });

  it('retries a claim for an operator, and logs that', async () => {
    await list([claimOf(1)]);
    assert.match(await get('/claims/ns/claim-1'), /<button>Retry<\/button>/);
    const reply = await post('/claims/ns/claim-1/retry');
    assert.equal(reply.headers.location, '/claims/ns/claim-1?said=promoted');
    assert.equal(await redis.redis.zcard(`{csi}:claims.${DRIVER}:delayed`), 0);
    assert.match(await get('/claims/ns/claim-1?said=promoted'), /It is retried now/);
    assert.match(
      logged,
      new RegExp(`"user":"${USER}","path":"/claims/ns/claim-1/retry","address":"127.0.0.1"`),
    );
  });

  it('says who has drained a driver, the command for it, and what is in the journal', async () => {
    const place = { redis: redis.redis, prefix: PREFIX, driver: DRIVER };
    const journal = { entries: 12, inDoubt: 3, doubtEndsMs: Date.UTC(2126, 0, 1) };
    await writeDriverNote(place, { ...journal, drain: { by: 'ann', atMs: 0 } });
    const page = await get('/');
    assert.match(page, /<code>sutler drain --driver-name=d\.example<\/code>/);
    assert.match(page, /<dt>Drain<\/dt><dd>.*by ann since 1970-/s);
    assert.match(page, /12.*3.*2126-01-01T00:00:00Z/s);
  });

  it('lets nobody else act: a viewer, another site, or without --dashboard-allow-actions', async () => {
    const { server } = redis;
    const accounts = [{ user: RIGHT[0], password: RIGHT[1], mayAct: true }, VIEWER];
    await dashboard.close();
    dashboard = await startTestDashboard(server.url, { accounts });
    await list([claimOf(1)]);
    const path = '/claims/ns/claim-1/retry';
    const before = await redis.contents();
    const page = await dashboard.send('/claims/ns/claim-1', { basic: AS_VIEWER });
    assert.equal(page.status, 200);
    assert.doesNotMatch(page.text, /Retry/);
    assert.equal((await post(path, AS_VIEWER)).status, 403);
    for (const headers of FROM_OTHER_SITES)
      assert.equal((await post(path, RIGHT, headers)).status, 403, JSON.stringify(headers));
    const asBrowser = { 'sec-fetch-site': 'same-origin', ...HTML };
    assert.match((await post(path, AS_VIEWER, asBrowser)).text, /<h1>Forbidden<\/h1>/);
    await dashboard.close();
    dashboard = await startTestDashboard(server.url);
    assert.equal((await post(path)).status, 403);
    assert.deepEqual(await redis.contents(), before);
  });

  it('refuses what it does not understand, as a page or as RFC 9457 says', async () => {
    await list([claimOf(1)]);
    const long = 'a'.repeat(254);
    for (const [path, status, o] of [
      ['/?page=0', 400],
      ['/?class=a&class=b', 400],
      [`/?namespace=${long}`, 400],
      ['/claims/ns/%ff', 400],
      ['/claims/ns/absent', 404],
      ['/queues/api/queues/absent', 404],
      ['/', 401, {}],
      ['/claims/ns/claim-1/retry', 401, { method: 'POST' }],
      ['/claims/ns/absent/retry', 404, { method: 'POST', basic: RIGHT }],
      [
        '/claims/ns/claim-1/retry',
        403,
        { method: 'POST', basic: RIGHT, headers: FROM_OTHER_SITES[0] },
      ],
    ] as readonly (readonly [string, number, SendOptions?])[]) {
      const request: SendOptions = o ?? { basic: RIGHT };
      const reply = await dashboard.send(path, request);
      const name = `${request.method ?? 'GET'} ${path.slice(0, 60)} ${JSON.stringify(o)}`;
      assert.equal(reply.status, status, name);
      assert.equal(reply.headers['content-type'], 'application/problem+json; charset=utf-8', name);
      const page = await dashboard.send(path, {
        ...request,
        headers: { ...request.headers, ...HTML },
      });
      assert.match(page.text, /<p class="note" role="alert">/, name);
    }
  });
});
