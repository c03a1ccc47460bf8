import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  at,
  fieldsAt,
  namesOf,
  refused,
  textAt,
  type Connection,
  type Fields,
  type WatchStream,
} from './connection.ts';
import { paths, secret } from './objects.ts';

const LABELS: Readonly<Record<string, Fields>> = {
  a: { tier: 'gold' },
  b: { tier: 'silver' },
  c: { tier: 'gold', old: '' },
  d: {},
};

/** Lists: shape, order, pages, selectors. */
export function describeLists(api: () => Connection): void {
  /** The secrets path of a new namespace with a secret per name. */
  const secretsNamed = async (names: readonly string[]): Promise<string> => {
    const { secrets } = paths(await api().namespace());
    await Promise.all(
      names.map((name) =>
        api().create(secrets, secret(name, { metadata: { labels: LABELS[name] } })),
      ),
    );
    return secrets;
  };
  const namesAt = async (path: string, query: Record<string, string> = {}): Promise<string[]> =>
    namesOf((await api().get(path, query)).body);

  describe('a list', () => {
    it('omits kind and apiVersion from its items', async () => {
      const list = await api().read(await secretsNamed(['a']));
      assert.deepEqual([at(list, 'kind'), at(list, 'apiVersion')], ['SecretList', 'v1']);
      assert.match(textAt(list, 'metadata', 'resourceVersion'), /^[1-9]\d*$/);
      assert.deepEqual([at(list, 'items', 0, 'kind'), namesOf(list)], [undefined, ['a']]);
    });

    it('is ordered by name; of one namespace it contains no objects of another', async () => {
      const here = await secretsNamed(['c', 'a', 'b-1', 'b']);
      const other = await secretsNamed(['other']);
      assert.deepEqual(await namesAt(here), ['a', 'b', 'b-1', 'c']);
      const all = await namesAt('/api/v1/secrets');
      assert.ok(all.includes('other') && all.includes('b-1'), other);
    });

    it('has pages with at most limit items, in order; the last has no continue token', async () => {
      const secrets = await secretsNamed(['a', 'b', 'c', 'd', 'e']);
      const pages: string[][] = [];
      let token = '';
      do {
        const { body } = await api().get(secrets, { limit: 2, continue: token });
        pages.push(namesOf(body));
        token = textAt({ continue: '', ...fieldsAt(body, 'metadata') }, 'continue');
      } while (token !== '');
      assert.deepEqual(pages, [['a', 'b'], ['c', 'd'], ['e']]);
    });

    it('is refused with 400 for an invalid continue token', async () => {
      const secrets = await secretsNamed([]);
      const reply = await api().get(secrets, { limit: 1, continue: 'nonsense' });
      refused(reply, { code: 400, reason: 'BadRequest', message: /continue/ });
    });
  });

  describe('a label selector', () => {
    it('selects by value, presence and sets of values', async () => {
      const secrets = await secretsNamed(Object.keys(LABELS));
      for (const [labelSelector, expected] of [
        ['tier=gold', ['a', 'c']],
        ['tier!=gold', ['b', 'd']],
        ['tier', ['a', 'b', 'c']],
        ['!tier', ['d']],
        ['tier in (gold,silver)', ['a', 'b', 'c']],
        ['tier notin (gold)', ['b', 'd']],
        ['tier=gold,!old', ['a']],
      ] as const)
        assert.deepEqual(await namesAt(secrets, { labelSelector }), expected, labelSelector);
    });
  });

  it('a field selector selects by metadata.name', async () => {
    const secrets = await secretsNamed(['a', 'b']);
    assert.deepEqual(await namesAt(secrets, { fieldSelector: 'metadata.name=b' }), ['b']);
    assert.deepEqual(await namesAt(secrets, { fieldSelector: 'metadata.name!=b' }), ['a']);
  });
}

/** Watches, as reflectors use them. */
export function describeWatches(api: () => Connection): void {
  const now = async (path: string): Promise<string> =>
    textAt(await api().read(path), 'metadata', 'resourceVersion');
  /** A watch of the secrets of a new namespace. */
  const open = async (query: Readonly<Record<string, string | number | boolean>> = {}) => {
    const { secrets } = paths(await api().namespace());
    const create = (name: string, metadata: Fields = {}) =>
      api().create(secrets, secret(name, { metadata }));
    const change = (name: string, metadata: Fields) =>
      api().patch('merge', `${secrets}/${name}`, { metadata });
    const watch = await api().watch(secrets, { resourceVersion: await now(secrets), ...query });
    return { secrets, create, change, watch };
  };

  describe('a watch', () => {
    it('can be resumed at the resourceVersion of any event', async () => {
      const { secrets, create, watch } = await open();
      await create('a');
      await create('b');
      const event = await watch.next();
      const resourceVersion = textAt(event?.object, 'metadata', 'resourceVersion');
      const resumed = await api().watch(secrets, { resourceVersion });
      assert.deepEqual(await resumed.take(1), ['ADDED b']);
    });

    it('begins with the existing objects if no resourceVersion is given', async () => {
      const { secrets, create } = await open();
      await create('a');
      assert.deepEqual(await (await api().watch(secrets)).take(1), ['ADDED a']);
    });

    it('sends the last state of a deleted object, with a new resourceVersion', async () => {
      const { secrets, create, watch } = await open();
      const stored = await create('a', { labels: { x: 'y' } });
      assert.deepEqual((await watch.next())?.object, stored);
      await api().call('DELETE', `${secrets}/a`);
      const event = await watch.next();
      assert.equal(event?.type, 'DELETED');
      assert.equal(at(event.object, 'metadata', 'labels', 'x'), 'y');
      const [before, after] = [stored, event.object].map((each) =>
        BigInt(textAt(each, 'metadata', 'resourceVersion')),
      );
      assert.ok(before !== undefined && after !== undefined && after > before);
    });

    it('sends MODIFIED, then DELETED, for an object with finalizers', async () => {
      const { secrets, create, change, watch } = await open();
      await create('a', { finalizers: ['sutler.dev/one'] });
      await api().call('DELETE', `${secrets}/a`);
      await change('a', { finalizers: null });
      assert.deepEqual(await watch.take(3), ['ADDED a', 'MODIFIED a', 'DELETED a']);
    });

    it('sends no event of another namespace, or for a write that changed nothing', async () => {
      const { create, change, watch } = await open();
      await api().create(paths(await api().namespace()).secrets, secret('other'));
      await create('a', { labels: { x: 'y' } });
      await change('a', { labels: { x: 'y' } });
      await create('b');
      assert.deepEqual(await watch.take(2), ['ADDED a', 'ADDED b']);
    });

    it('sends ADDED and DELETED when an object begins and stops to match', async () => {
      const { create, change, watch } = await open({ labelSelector: 'x=y' });
      await create('a');
      await change('a', { labels: { x: 'y' } });
      await change('a', { annotations: { n: '2' } });
      await change('a', { labels: { x: null } });
      assert.deepEqual(await watch.take(3), ['ADDED a', 'MODIFIED a', 'DELETED a']);
    });

    it('ends after timeoutSeconds', async () => {
      const { watch } = await open({ timeoutSeconds: 1 });
      assert.equal(await watch.next(), undefined);
    });

    it('sends a bookmark with only a resourceVersion before it ends', async () => {
      const { watch } = await open({ timeoutSeconds: 4, allowWatchBookmarks: true });
      const event = await watch.next();
      assert.deepEqual([event?.type, at(event?.object, 'kind')], ['BOOKMARK', 'Secret']);
      assert.match(textAt(event?.object, 'metadata', 'resourceVersion'), /^\d+$/);
      assert.equal(at(event?.object, 'metadata', 'name'), undefined);
    });

    it('sends an ERROR 410 Expired for a resourceVersion that is too old', async () => {
      const { events } = paths(await api().namespace());
      const event = await watchUntilExpired(() =>
        api().watch(events, { resourceVersion: 1, timeoutSeconds: 5 }),
      );
      assert.equal(event?.type, 'ERROR');
      assert.deepEqual(
        ['kind', 'code', 'reason'].map((name) => at(event.object, name)),
        ['Status', 410, 'Expired'],
      );
    });

    it('is silent up to a resourceVersion that the server has not reached yet', async () => {
      const { secrets, create } = await open();
      const versionOf = async (name: string): Promise<bigint> =>
        BigInt(textAt(await create(name), 'metadata', 'resourceVersion'));
      const future = (await versionOf('first')) + 30n;
      const watch = await api().watch(secrets, { resourceVersion: String(future) });
      let version = 0n;
      for (let n = 0; version <= future; n += 1) version = await versionOf(`later-${n}`);
      const event = await watch.next();
      assert.equal(textAt(event?.object, 'metadata', 'resourceVersion'), String(version));
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
