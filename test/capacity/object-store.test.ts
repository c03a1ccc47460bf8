import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { ObjectStore } from '#src/capacity/object-store.ts';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { type KubeServer, plainAccess, startKubeServer } from '../harness/kube-server.ts';
import { until } from '../harness/until.ts';

/** Answers lists of CSIStorageCapacity by version: with an empty list, or with a status. */
type Answers = Readonly<Record<'v1' | 'v1beta1', number>>;

describe('the version of CSIStorageCapacity', () => {
  let server: KubeServer;
  let client: KubeClient;
  let answers: Answers;
  let store: ObjectStore;
  before(async () => {
    server = await startKubeServer(({ path, query }, reply) => {
      if (query.has('watch')) return void reply.watch();
      const version = path.includes('/v1beta1/') ? 'v1beta1' : 'v1';
      const code = answers[version];
      if (code === 404) return reply.text(404, '404 page not found');
      if (code !== 200) return reply.status(code, 'Forbidden', 'refused');
      reply.json(200, { metadata: { resourceVersion: '1' }, items: [] });
    });
    client = createKubeClient({
      access: plainAccess(server),
      userAgent: 'test',
      log: silentLog,
    });
  });
  beforeEach(() => {
    store = new ObjectStore({
      client,
      namespace: 'ns',
      manager: { driver: 'driver', managedBy: 'external-provisioner' },
      onChange: () => undefined,
      clock: { ...systemClock, sleep: (ms, signal) => systemClock.sleep(ms / 100, signal) },
      log: silentLog,
      metrics: new Registry(),
    });
  });
  afterEach(() => store.stop());
  after(async () => {
    await client.close();
    await server.close();
  });

  for (const [title, given, version] of [
    ['v1 where the API server has it (R-31)', { v1: 200, v1beta1: 200 }, 'v1'],
    ['v1beta1 where it has no other (R-31)', { v1: 404, v1beta1: 200 }, 'v1beta1'],
  ] as const) {
    it(`is ${title}`, async () => {
      answers = given;
      await store.open();
      assert.equal(store.resource.version, version);
      await until(() => store.trouble === undefined, 'it follows the objects');
    });
  }

  it('is asked for again while the API server has none or does not answer, and says so (R-31)', async () => {
    answers = { v1: 404, v1beta1: 404 };
    const opening = store.open();
    await until(() => /404/.test(store.trouble ?? ''), 'it says so');
    answers = { v1: 404, v1beta1: 200 };
    await opening;
    assert.equal(store.resource.version, 'v1beta1');
  });

  it('is v1 where listing is refused, which is said with the right that lacks (R-31)', async () => {
    answers = { v1: 403, v1beta1: 404 };
    const opening = store.open();
    await until(() => /grant list and watch/.test(store.trouble ?? ''), 'it says what to grant');
    answers = { v1: 200, v1beta1: 404 };
    await opening;
    assert.equal(store.resource.version, 'v1');
  });
});
