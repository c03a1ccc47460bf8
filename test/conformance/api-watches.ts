import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { at, refused, textAt, type Connection, type WatchStream, invalid } from './connection.ts';
import { claim, paths, secret } from './objects.ts';

const INITIAL_EVENTS_END = 'k8s.io/initial-events-end';

/** Watches, as reflectors use them. */
export function describeWatches(api: () => Connection): void {
  const now = async (path: string): Promise<string> =>
    textAt(await api().read(path), 'metadata', 'resourceVersion');

  describe('watch', () => {
    it('sends each change after a resourceVersion, in order', async () => {
      const { secrets } = paths(await api().namespace());
      await api().create(secrets, secret('before'));
      const watch = await api().watch(secrets, { resourceVersion: await now(secrets) });
      await api().create(secrets, secret('a'));
      await api().patch('merge', `${secrets}/a`, { metadata: { labels: { x: 'y' } } });
      await api().call('DELETE', `${secrets}/a`);
      assert.deepEqual(await watch.take(3), ['ADDED a', 'MODIFIED a', 'DELETED a']);
    });

    it('can be resumed at the resourceVersion of any event', async () => {
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

    it('begins with the existing objects if no resourceVersion is given', async () => {
      const { secrets } = paths(await api().namespace());
      await api().create(secrets, secret('a'));
      assert.deepEqual(await (await api().watch(secrets)).take(1), ['ADDED a']);
    });

    it('sends whole objects with kind and apiVersion', async () => {
      const { secrets } = paths(await api().namespace());
      const watch = await api().watch(secrets, { resourceVersion: await now(secrets) });
      const stored = await api().create(secrets, secret('a', { fields: { data: { x: 'eA==' } } }));
      assert.deepEqual((await watch.next())?.object, stored);
    });

    it('sends the last state of a deleted object, with a new resourceVersion', async () => {
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

    it('sends MODIFIED, then DELETED, for an object with finalizers', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(
        secrets,
        secret('a', { metadata: { finalizers: ['sutler.dev/one'] } }),
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

    it('sends no event for a write that changed nothing', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(secrets, secret('a', { metadata: { labels: { x: 'y' } } }));
      const watch = await api().watch(secrets, {
        resourceVersion: textAt(stored, 'metadata', 'resourceVersion'),
      });
      await api().patch('merge', `${secrets}/a`, { metadata: { labels: { x: 'y' } } });
      await api().create(secrets, secret('b'));
      assert.deepEqual(await watch.take(1), ['ADDED b']);
    });

    it('of one namespace sends no events of another', async () => {
      const [here, there] = [
        paths(await api().namespace()).secrets,
        paths(await api().namespace()).secrets,
      ];
      const watch = await api().watch(here, { resourceVersion: await now(here) });
      await api().create(there, secret('other'));
      await api().create(here, secret('a'));
      assert.deepEqual(await watch.take(1), ['ADDED a']);
    });

    it('of all namespaces sends the events of each', async () => {
      const namespaces = await Promise.all([api().namespace(), api().namespace()]);
      const watch = await api().watch('/api/v1/persistentvolumeclaims', {
        resourceVersion: await now('/api/v1/persistentvolumeclaims'),
      });
      for (const namespace of namespaces) await api().create(paths(namespace).claims, claim('a'));
      const missing = new Set<unknown>(namespaces);
      while (missing.size > 0)
        missing.delete(at((await watch.next())?.object, 'metadata', 'namespace'));
    });

    it('sends ADDED and DELETED when an object begins and stops to match', async () => {
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

    it('with a field selector sends events of one name only', async () => {
      const { secrets } = paths(await api().namespace());
      const watch = await api().watch(secrets, {
        resourceVersion: await now(secrets),
        fieldSelector: 'metadata.name=b',
      });
      await api().create(secrets, secret('a'));
      await api().create(secrets, secret('b'));
      assert.deepEqual(await watch.take(1), ['ADDED b']);
    });

    it('sends a change to each of many watchers', async () => {
      const { secrets } = paths(await api().namespace());
      const resourceVersion = await now(secrets);
      const watches = await Promise.all(
        Array.from({ length: 5 }, () => api().watch(secrets, { resourceVersion })),
      );
      await api().create(secrets, secret('a'));
      for (const watch of watches) assert.deepEqual(await watch.take(1), ['ADDED a']);
    });

    it('ends after timeoutSeconds', async () => {
      const { secrets } = paths(await api().namespace());
      const watch = await api().watch(secrets, {
        resourceVersion: await now(secrets),
        timeoutSeconds: 1,
      });
      assert.equal(await watch.next(), undefined);
    });

    it('sends no bookmark unless it is requested', async () => {
      const { secrets } = paths(await api().namespace());
      const watch = await api().watch(secrets, {
        resourceVersion: await now(secrets),
        timeoutSeconds: 4,
      });
      assert.equal(await watch.next(), undefined);
    });

    it('sends a bookmark with only a resourceVersion before it ends', async () => {
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

    it('sends an ERROR 410 Expired for a resourceVersion that is too old', async () => {
      const { events } = paths(await api().namespace());
      const event = await watchUntilExpired(() =>
        api().watch(events, { resourceVersion: 1, timeoutSeconds: 5 }),
      );
      assert.equal(event?.type, 'ERROR');
      assert.equal(at(event.object, 'kind'), 'Status');
      assert.equal(at(event.object, 'code'), 410);
      assert.equal(at(event.object, 'reason'), 'Expired');
    });

    it('is silent up to a resourceVersion that the server has not reached yet', async () => {
      const { secrets } = paths(await api().namespace());
      const create = async (name: string): Promise<bigint> =>
        BigInt(textAt(await api().create(secrets, secret(name)), 'metadata', 'resourceVersion'));
      const future = (await create('first')) + 30n;
      const watch = await api().watch(secrets, { resourceVersion: String(future) });
      assert.equal(watch.status, 200);
      let version = 0n;
      for (let n = 0; version <= future; n += 1) version = await create(`later-${n}`);
      const event = await watch.next();
      assert.equal(textAt(event?.object, 'metadata', 'resourceVersion'), String(version));
    });

    it('refuses a resourceVersion that is not a number', async () => {
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

    it('ends the initial events with a bookmark, or is refused by an ERROR', async () => {
      const { secrets } = paths(await api().namespace());
      for (const name of ['a', 'b']) await api().create(secrets, secret(name));
      const watch = await api().watch(secrets, query);
      const seen: string[] = [];
      for (;;) {
        const event = await watch.next();
        assert.ok(event !== undefined, 'the stream ended without an ERROR event');
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
      refused(reply, invalid(/sendInitialEvents/));
    });
  });
}

/** Repeats the watch until the server has dropped that part of its history: a real one compacts
 * only every few minutes.
 * @returns the first ERROR event, or the last event after a minute */
async function watchUntilExpired(open: () => Promise<WatchStream>) {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const watch = await open();
    const event = await watch.next();
    watch.close();
    if (event?.type === 'ERROR' || Date.now() > deadline) return event;
  }
}
