import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { appRoutes } from '@bull-board/api/dist/routes.js';
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

const fillIn = (path: string): string =>
  `/queues${path
    .replace(':queueName', QUEUE)
    .replace(':jobId', key.uid)
    .replace(':queueStatus', 'delayed')
    .replace(':schedulerId', 'resync')}`;

describe('actions', () => {
  let redis: BoardRedis;
  let dashboard: RunningDashboard;
  let stored: Awaited<ReturnType<BoardRedis['contents']>>;

  before(async () => {
    redis = await startBoardRedis();
    await redis.fill(DRIVER, [key], 3_600_000);
    dashboard = await startTestDashboard(redis.server.url, { allowActions: true });
    stored = await redis.contents();
  });
  after(async () => {
    await dashboard.close();
    await redis.close();
  });

  it('are all refused and write nothing, also where --dashboard-allow-actions is given', async () => {
    assert.ok(actions.length > 15);
    for (const { method, path, name } of actions) {
      const headers = { origin: dashboard.origin };
      const reply = await dashboard.send(fillIn(path), { basic: RIGHT, method, headers });
      assert.equal(reply.status, 403, name);
      assert.match(reply.text, /on its own page/);
    }
    assert.deepEqual(await redis.contents(), stored);
  });

  it('are refused with other methods and override headers', async () => {
    const path = `/queues/api/queues/${QUEUE}/${key.uid}/promote`;
    for (const method of ['POST', 'PATCH', 'DELETE', 'OPTIONS', 'PURGE'])
      assert.equal((await dashboard.send(path, { method, basic: RIGHT })).status, 403, method);
    await dashboard.send(path, { basic: RIGHT, headers: { 'x-http-method-override': 'PUT' } });
    assert.deepEqual(await redis.contents(), stored);
  });

  it('are not needed for reading: every GET route answers and writes nothing', async () => {
    for (const { path, name } of routes.filter(({ method }) => method === 'GET')) {
      // The first page has the workers, and Redis' address.
      if (path.endsWith('/workers') || path.endsWith('/redis/stats')) continue;
      const reply = await dashboard.send(fillIn(path), { basic: RIGHT });
      assert.ok([200, 204, 404].includes(reply.status), `${name}: ${reply.status} ${reply.text}`);
    }
    assert.deepEqual(await redis.contents(), stored);
  });
});
