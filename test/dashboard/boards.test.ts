import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { appRoutes } from '@bull-board/api/dist/routes.js';
import type { JobKey } from '#src/queue/contract.ts';
import { registerDriver } from '#src/queue/queues.ts';
import {
  type BoardRedis,
  PREFIX,
  RIGHT,
  type RunningDashboard,
  startBoardRedis,
  startTestDashboard,
} from '../harness/dashboard-server.ts';
import { startTestRedis } from '../harness/redis.ts';
import { until } from '../harness/until.ts';

const UID = '3f1c5a52-0c7e-4b5e-9d70-0123456789ab';
const claim: JobKey = { kind: 'claim', uid: UID, namespace: 'ns', name: 'data' };
const volume: JobKey = { kind: 'volume', uid: 'u2', namespace: '', name: 'pvc-u2' };

interface ShownJob {
  readonly name: string;
  readonly data: unknown;
  readonly externalUrl?: { readonly href: string };
}

interface ShownQueue {
  readonly name: string;
  readonly readOnlyMode: boolean;
  readonly statuses: readonly string[];
  readonly counts: Readonly<Record<string, number>>;
  readonly jobs: readonly ShownJob[];
}

describe('boards', () => {
  let redis: BoardRedis;
  let dashboard: RunningDashboard;

  const shown = async (activeQueue = ''): Promise<readonly ShownQueue[]> => {
    const reply = await dashboard.send(`/queues/api/queues?activeQueue=${activeQueue}`, {
      basic: RIGHT,
    });
    assert.equal(reply.status, 200, reply.text);
    return (JSON.parse(reply.text) as { readonly queues: readonly ShownQueue[] }).queues;
  };

  before(async () => {
    redis = await startBoardRedis();
  });
  beforeEach(async () => {
    await redis.redis.flushall();
    dashboard = await startTestDashboard(redis.server.url);
  });
  afterEach(() => dashboard.close());
  after(() => redis.close());

  it('show the registered queues read-only, and each job with its object’s name', async () => {
    await redis.fill('d.example', [claim]);
    await redis.fill('d.example', [volume]);
    const [claims] = await shown('claims.d.example');
    assert.equal(claims?.name, 'claims.d.example');
    assert.equal(claims.readOnlyMode, true);
    assert.equal(claims.counts['prioritized'], 1);
    assert.deepEqual(
      claims.jobs.map(({ name, data }) => [name, data]),
      [['claim ns/data', { v: 1, ...claim }]],
    );
    const [, opened] = await shown('volumes.d.example');
    assert.equal(opened?.jobs[0]?.name, 'volume pvc-u2');
  });

  it('link a job to the page that explains why its object waits', async () => {
    await redis.fill('d.example', [claim], 60_000);
    const [queue] = await shown('claims.d.example');
    assert.equal(queue?.jobs[0]?.externalUrl?.href, '/claims/ns/data');
  });

  it('follow the registry without a restart', async () => {
    assert.deepEqual(await shown(), []);
    await redis.fill('one.example', [claim]);
    assert.deepEqual(
      (await shown()).map(({ name }) => name),
      ['claims.one.example', 'volumes.one.example'],
    );
    await redis.fill('two.example', [claim]);
    assert.deepEqual(
      (await shown()).map(({ name }) => name),
      ['one', 'two'].flatMap((name) => [`claims.${name}.example`, `volumes.${name}.example`]),
    );
  });

  it('refuse every action and write nothing, also where --dashboard-allow-actions is given', async () => {
    await dashboard.close();
    dashboard = await startTestDashboard(redis.server.url, { allowActions: true });
    await redis.fill('d.example', [claim], 3_600_000);
    const stored = await redis.contents();
    // Those of the installed Bull Board: a later version's new actions are refused too.
    const actions = appRoutes.api
      .flatMap(({ method, route }) =>
        [method].flat().flatMap((each) => [route].flat().map((path) => [each, path] as const)),
      )
      .filter(([method]) => method !== 'get');
    assert.ok(actions.length > 15);
    for (const [method, path] of actions) {
      const filled = path
        .replace(':queueName', 'claims.d.example')
        .replace(':jobId', UID)
        .replace(':queueStatus', 'delayed')
        .replace(':schedulerId', 'resync');
      const reply = await dashboard.send(`/queues${filled}`, {
        basic: RIGHT,
        method: method.toUpperCase(),
        headers: { origin: dashboard.origin },
      });
      assert.equal(reply.status, 403, `${method} ${path}`);
      assert.match(reply.text, /on its own page/);
    }
    assert.deepEqual(await redis.contents(), stored);
  });

  it('serve a page with its assets below the mount path, and let it load none of elsewhere', async () => {
    const page = await dashboard.send('/queues/', { basic: RIGHT });
    assert.equal(page.status, 200);
    assert.match(page.text, /<base href="\/queues\/"/);
    const policy = String(page.headers['content-security-policy']);
    assert.match(policy, /style-src 'self' 'unsafe-inline';.*font-src 'self' data:;/);
    const parts = [...page.text.matchAll(/(?:href|src)="(static\/[^"]+)"/g)].map(
      ([, part]) => part,
    );
    assert.ok(parts.length >= 3);
    for (const part of parts)
      assert.equal((await dashboard.send(`/queues/${part}`, { basic: RIGHT })).status, 200, part);
  });

  it('answer 503 while Redis hangs, and recover', async () => {
    await redis.fill('d.example', [claim]);
    assert.equal((await shown()).length, 2);
    process.kill(redis.server.pid, 'SIGSTOP');
    try {
      const [api, page] = await Promise.all([
        dashboard.send('/queues/api/queues', { basic: RIGHT }),
        dashboard.send('/queues/', { basic: RIGHT, headers: { accept: 'text/html' } }),
      ]);
      assert.deepEqual([api.status, page.status], [503, 503]);
      assert.match(api.text, /Redis at .*Command timed out/);
      assert.match(page.text, /<h1>Service Unavailable<\/h1>/);
      assert.equal(page.headers.refresh, '3');
    } finally {
      process.kill(redis.server.pid, 'SIGCONT');
    }
    assert.equal((await shown()).length, 2);
  });
});

describe('boards without Redis', () => {
  it('answer 503 with the reason, and recover with Redis', async () => {
    const redis = await startTestRedis();
    const dashboard = await startTestDashboard(redis.url);
    await registerDriver({ redis: redis.redis, prefix: PREFIX, driver: 'd.example' }, '');
    await redis.kill();
    await until(() => dashboard.link.trouble !== undefined, 'the loss is noticed');
    const { host, password } = new URL(redis.url);
    for (const path of ['/queues/api/queues', '/queues/']) {
      const { status, text } = await dashboard.send(path, { basic: RIGHT });
      assert.equal(status, 503);
      assert.match(text, new RegExp(`Redis at ${host}`));
      assert.doesNotMatch(text, /timed out/);
      assert.ok(password === '' || !text.includes(password));
    }
    await redis.start();
    await until(async () => {
      const { status } = await dashboard.send('/queues/api/queues', { basic: RIGHT });
      return status === 200;
    }, 'the board is back');
    await dashboard.close();
    await redis.close();
  });
});
