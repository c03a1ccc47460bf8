import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { appRoutes } from '@bull-board/api/dist/routes.js';
import type { Queue } from 'bullmq';
import type { JobKey } from '#src/queue/contract.ts';
import {
  RIGHT,
  startBoardRedis,
  startTestDashboard,
  type BoardRedis,
  type RunningDashboard,
} from '../harness/dashboard-server.ts';

const DRIVER = 'd.example';
const QUEUE = 'claims.d.example';
const key: JobKey = {
  kind: 'claim',
  uid: '3f1c5a52-0c7e-4b5e-9d70-0123456789ab',
  namespace: 'ns',
  name: 'data',
};

/** The routes of the installed Bull Board: a later version's new actions are refused too. */
const routes = appRoutes.api.flatMap((route) =>
  [route.method].flat().flatMap((method) =>
    [route.route].flat().map((path) => ({
      method: method.toUpperCase(),
      path,
      name: `${method.toUpperCase()} ${path}`,
    })),
  ),
);
const actions = routes.filter(({ method }) => method !== 'GET');
function fillIn(path: string, jobId: string): string {
  return `/queues${path
    .replace(':queueName', QUEUE)
    .replace(':jobId', encodeURIComponent(jobId))
    .replace(':queueStatus', 'delayed')
    .replace(':schedulerId', 'resync')}`;
}

const json = { 'content-type': 'application/json' };
const body = JSON.stringify({
  name: 'claim',
  data: {},
  jobData: {},
  options: {},
  delay: 0,
  priority: 1,
  concurrency: 1,
  max: 1,
  duration: 1,
  force: true,
});

describe('actions', () => {
  let redis: BoardRedis;
  let dashboard: RunningDashboard;
  let queue: Queue;
  let jobId: string;

  before(async () => {
    redis = await startBoardRedis();
  });
  beforeEach(async () => {
    await redis.redis.flushall();
    queue = await redis.fill(DRIVER, [key], 3_600_000);
    jobId = key.uid;
    await queue.upsertJobScheduler('resync', { every: 3_600_000 }, { name: 'claim', data: {} });
  });
  afterEach(() => dashboard.close());
  after(() => redis.close());

  it('are all refused and write nothing, also where --dashboard-allow-actions is given', async () => {
    dashboard = await startTestDashboard(redis.server.url, { allowActions: true });
    const before = await redis.contents();
    assert.ok(actions.length > 15);
    for (const { method, path, name } of actions) {
      const reply = await dashboard.send(fillIn(path, jobId), {
        basic: RIGHT,
        method,
        headers: { ...json, origin: dashboard.origin },
        body,
      });
      assert.equal(reply.status, 403, name);
      assert.match(reply.text, /on its own page/);
    }
    assert.deepEqual(await redis.contents(), before);
  });

  it('are refused with other methods and override headers', async () => {
    dashboard = await startTestDashboard(redis.server.url);
    const before = await redis.contents();
    const path = `/queues/api/queues/${QUEUE}/${encodeURIComponent(jobId)}/promote`;
    for (const method of ['POST', 'PATCH', 'DELETE', 'OPTIONS', 'PURGE'])
      assert.equal((await dashboard.send(path, { method, basic: RIGHT })).status, 403, method);
    await dashboard.send(path, { basic: RIGHT, headers: { 'x-http-method-override': 'PUT' } });
    assert.deepEqual(await redis.contents(), before);
  });

  it('are not needed for reading: every GET route answers and writes nothing', async () => {
    dashboard = await startTestDashboard(redis.server.url);
    const before = await redis.contents();
    for (const { path, name } of routes.filter(({ method }) => method === 'GET')) {
      // The first page has the workers, and Redis' address.
      if (path.endsWith('/workers') || path.endsWith('/redis/stats')) continue;
      const reply = await dashboard.send(fillIn(path, jobId), { basic: RIGHT });
      assert.ok([200, 204, 404].includes(reply.status), `${name}: ${reply.status} ${reply.text}`);
    }
    assert.deepEqual(await redis.contents(), before);
  });
});
