import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { at, refused, textAt, type Connection, type WatchStream } from './connection.ts';
import { claim, paths, secret } from './objects.ts';

const INITIAL_EVENTS_END = 'k8s.io/initial-events-end';

/** Watches: what a reflector lives on. */
export function describeWatches(api: () => Connection): void {
  const now = async (path: string): Promise<string> =>
    textAt(await api().read(path), 'metadata', 'resourceVersion');

  describe('watch', () => {
    it('tells each change after a resourceVersion, in order', async () => {
      const { secrets } = paths(await api().namespace());
      await api().create(secrets, secret('before'));
      const watch = await api().watch(secrets, { resourceVersion: await now(secrets) });
      await api().create(secrets, secret('a'));
      await api().patch('merge', `${secrets}/a`, { metadata: { labels: { x: 'y' } } });
      await api().call('DELETE', `${secrets}/a`);
      assert.deepEqual(await watch.take(3), ['ADDED a', 'MODIFIED a', 'DELETED a']);
    });

    it('can be taken up at the resourceVersion of any event that was seen', async () => {
      const { secrets } = paths(await api().namespace());
      const start = await now(secrets);
      const a = await api().create(secrets, secret('a'));
      await api().create(secrets, secret('b'));
      assert.deepEqual(await (await api().watch(secrets, { resourceVersion: start })).take(2), [
        'ADDED a',
        'ADDED b',
      ]);
      const resumed = await api().watch(secrets, {
        resourceVersion: textAt(a, 'metadata', 'resourceVersion'),
      });
      assert.deepEqual(await resumed.take(1), ['ADDED b']);
    });

    it('begins with what is there when no resourceVersion is given', async () => {
      const { secrets } = paths(await api().namespace());
      await api().create(secrets, secret('a'));
      assert.deepEqual(await (await api().watch(secrets)).take(1), ['ADDED a']);
    });

    it('carries whole objects with kind and apiVersion', async () => {
      const { secrets } = paths(await api().namespace());
      const watch = await api().watch(secrets, { resourceVersion: await now(secrets) });
      const stored = await api().create(secrets, secret('a', { fields: { data: { x: 'eA==' } } }));
      assert.deepEqual((await watch.next())?.object, stored);
    });

    it('gives a deleted object as it was last, with the resourceVersion of its deletion', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(secrets, secret('a', { metadata: { labels: { x: 'y' } } }));
      const resourceVersion = textAt(stored, 'metadata', 'resourceVersion');
      const watch = await api().watch(secrets, { resourceVersion });
      await api().call('DELETE', `${secrets}/a`);
      const event = await watch.next();
      assert.equal(event?.type, 'DELETED');
      assert.equal(at(event.object, 'metadata', 'labels', 'x'), 'y');
      assert.ok(
        BigInt(textAt(event.object, 'metadata', 'resourceVersion')) > BigInt(resourceVersion),
      );
    });

    it('tells MODIFIED with a deletionTimestamp, then DELETED, of an object with finalizers', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(
        secrets,
        secret('a', { metadata: { finalizers: ['sutler.dev/held'] } }),
      );
      const watch = await api().watch(secrets, {
        resourceVersion: textAt(stored, 'metadata', 'resourceVersion'),
      });
      await api().call('DELETE', `${secrets}/a`);
      await api().patch('merge', `${secrets}/a`, { metadata: { finalizers: null } });
      const marked = await watch.next();
      assert.equal(marked?.type, 'MODIFIED');
      assert.notEqual(at(marked.object, 'metadata', 'deletionTimestamp'), undefined);
      assert.deepEqual(await watch.take(1), ['DELETED a']);
    });

    it('says nothing of a write that changed nothing', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(secrets, secret('a', { metadata: { labels: { x: 'y' } } }));
      const watch = await api().watch(secrets, {
        resourceVersion: textAt(stored, 'metadata', 'resourceVersion'),
      });
      await api().patch('merge', `${secrets}/a`, { metadata: { labels: { x: 'y' } } });
      await api().create(secrets, secret('b'));
      assert.deepEqual(await watch.take(1), ['ADDED b']);
    });

    it('of one namespace says nothing of another', async () => {
      const [here, there] = [
        paths(await api().namespace()).secrets,
        paths(await api().namespace()).secrets,
      ];
      const watch = await api().watch(here, { resourceVersion: await now(here) });
      await api().create(there, secret('other'));
      await api().create(here, secret('a'));
      assert.deepEqual(await watch.take(1), ['ADDED a']);
    });

    it('of all namespaces tells those of each', async () => {
      const namespaces = await Promise.all([api().namespace(), api().namespace()]);
      const watch = await api().watch('/api/v1/persistentvolumeclaims', {
        resourceVersion: await now('/api/v1/persistentvolumeclaims'),
      });
      for (const namespace of namespaces) await api().create(paths(namespace).claims, claim('a'));
      const missing = new Set<unknown>(namespaces);
      while (missing.size > 0)
        missing.delete(at((await watch.next())?.object, 'metadata', 'namespace'));
    });

    it('with a label selector sends ADDED when an object begins to match, DELETED when it stops', async () => {
      const { secrets } = paths(await api().namespace());
      await api().create(secrets, secret('a'));
      const watch = await api().watch(secrets, {
        resourceVersion: await now(secrets),
        labelSelector: 'x=y',
      });
      await api().patch('merge', `${secrets}/a`, { metadata: { annotations: { n: '1' } } });
      await api().patch('merge', `${secrets}/a`, { metadata: { labels: { x: 'y' } } });
      await api().patch('merge', `${secrets}/a`, { metadata: { annotations: { n: '2' } } });
      await api().patch('merge', `${secrets}/a`, { metadata: { labels: { x: null } } });
      assert.deepEqual(await watch.take(3), ['ADDED a', 'MODIFIED a', 'DELETED a']);
    });

    it('with a field selector tells of one name only', async () => {
      const { secrets } = paths(await api().namespace());
      const watch = await api().watch(secrets, {
        resourceVersion: await now(secrets),
        fieldSelector: 'metadata.name=b',
      });
      await api().create(secrets, secret('a'));
      await api().create(secrets, secret('b'));
      assert.deepEqual(await watch.take(1), ['ADDED b']);
    });

    it('reaches every one of many watchers', async () => {
      const { secrets } = paths(await api().namespace());
      const resourceVersion = await now(secrets);
      const watches = await Promise.all(
        Array.from({ length: 5 }, () => api().watch(secrets, { resourceVersion })),
      );
      await api().create(secrets, secret('a'));
      for (const watch of watches) assert.deepEqual(await watch.take(1), ['ADDED a']);
    });

    it('ends by itself after timeoutSeconds', async () => {
      const { secrets } = paths(await api().namespace());
      const watch = await api().watch(secrets, {
        resourceVersion: await now(secrets),
        timeoutSeconds: 1,
      });
      assert.equal(await watch.next(), undefined);
    });

    it('sends no bookmark that was not asked for', async () => {
      const { secrets } = paths(await api().namespace());
      const watch = await api().watch(secrets, {
        resourceVersion: await now(secrets),
        timeoutSeconds: 4,
      });
      assert.equal(await watch.next(), undefined);
    });

    it('sends a bookmark before it ends, which holds a resourceVersion and nothing else', async () => {
      const { claims } = paths(await api().namespace());
      const resourceVersion = await now(claims);
      const watch = await api().watch(claims, {
        resourceVersion,
        timeoutSeconds: 4,
        allowWatchBookmarks: true,
      });
      const event = await watch.next();
      assert.equal(event?.type, 'BOOKMARK');
      assert.equal(at(event.object, 'kind'), 'PersistentVolumeClaim');
      assert.equal(at(event.object, 'apiVersion'), 'v1');
      assert.ok(
        BigInt(textAt(event.object, 'metadata', 'resourceVersion')) >= BigInt(resourceVersion),
      );
      assert.equal(at(event.object, 'metadata', 'name'), undefined);
    });

    it('from a resourceVersion that is no longer kept gets an ERROR 410 with reason Expired', async () => {
      const { events } = paths(await api().namespace());
      const event = await expired(() =>
        api().watch(events, { resourceVersion: 1, timeoutSeconds: 5 }),
      );
      assert.equal(event?.type, 'ERROR');
      assert.equal(at(event.object, 'kind'), 'Status');
      assert.equal(at(event.object, 'code'), 410);
      assert.equal(at(event.object, 'reason'), 'Expired');
    });

    it('refuses a resourceVersion that is no number', async () => {
      const { secrets } = paths(await api().namespace());
      const watch = await api().watch(secrets, { resourceVersion: 'nonsense' });
      assert.notEqual(watch.status, 200);
      assert.equal((await watch.next())?.type, 'ERROR');
    });
  });

  describe('sendInitialEvents', () => {
    const query = {
      sendInitialEvents: true,
      allowWatchBookmarks: true,
      resourceVersionMatch: 'NotOlderThan',
      timeoutSeconds: 10,
    };

    it('ends the initial events with a bookmark that says so, or with one ERROR event', async () => {
      const { secrets } = paths(await api().namespace());
      for (const name of ['a', 'b']) await api().create(secrets, secret(name));
      const watch = await api().watch(secrets, query);
      const seen: string[] = [];
      for (;;) {
        const event = await watch.next();
        assert.ok(event !== undefined, 'the stream ended without a word');
        if (event.type === 'ERROR') {
          assert.equal(at(event.object, 'kind'), 'Status');
          return;
        }
        if (at(event.object, 'metadata', 'annotations', INITIAL_EVENTS_END) === 'true') break;
        seen.push(`${event.type} ${textAt(event.object, 'metadata', 'name')}`);
      }
      assert.deepEqual(seen.sort(), ['ADDED a', 'ADDED b']);
    });

    it('is refused without resourceVersionMatch', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().get(secrets, { watch: true, sendInitialEvents: true });
      refused(reply, { code: 422, reason: 'Invalid', message: /sendInitialEvents/ });
    });
  });
}

/** How long a server remembers differs: a real one compacts every few minutes, so the watch is
 * repeated until its past is gone. */
async function expired(open: () => Promise<WatchStream>) {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const watch = await open();
    const event = await watch.next();
    watch.close();
    if (event?.type === 'ERROR' || Date.now() > deadline) return event;
  }
}
