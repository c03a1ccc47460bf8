import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  at,
  listAt,
  namesOf,
  refused,
  textAt,
  type Connection,
  type Fields,
} from './connection.ts';
import { VOLUMES, claim, paths, secret } from './objects.ts';

/** Lists: shape, order, pages, selectors. */
export function describeLists(api: () => Connection): void {
  /** The secrets path of a new namespace with a secret per name. */
  const secretsNamed = async (
    names: readonly string[],
    labels: (name: string) => Fields = () => ({}),
  ): Promise<string> => {
    const { secrets } = paths(await api().namespace());
    await Promise.all(
      names.map((name) =>
        api().create(secrets, secret(name, { metadata: { labels: labels(name) } })),
      ),
    );
    return secrets;
  };

  describe('list', () => {
    it('has a kind, an apiVersion and a resourceVersion, even when it is empty', async () => {
      const { claims } = paths(await api().namespace());
      const list = await api().read(claims);
      assert.equal(at(list, 'kind'), 'PersistentVolumeClaimList');
      assert.equal(at(list, 'apiVersion'), 'v1');
      assert.match(textAt(list, 'metadata', 'resourceVersion'), /^[1-9]\d*$/);
      assert.deepEqual(at(list, 'items'), []);
    });

    it('omits kind and apiVersion from its items', async () => {
      const list = await api().read(await secretsNamed(['a']));
      assert.equal(at(list, 'items', 0, 'kind'), undefined);
      assert.equal(at(list, 'items', 0, 'apiVersion'), undefined);
      assert.equal(at(list, 'items', 0, 'metadata', 'name'), 'a');
    });

    it('is ordered by name', async () => {
      assert.deepEqual(namesOf(await api().read(await secretsNamed(['c', 'a', 'b-1', 'b']))), [
        'a',
        'b',
        'b-1',
        'c',
      ]);
    });

    it('of one namespace contains no objects of another', async () => {
      const here = await secretsNamed(['a']);
      await secretsNamed(['b']);
      assert.deepEqual(namesOf(await api().read(here)), ['a']);
    });

    it('of all namespaces contains the objects of each', async () => {
      const namespaces = await Promise.all([api().namespace(), api().namespace()]);
      for (const namespace of namespaces) await api().create(paths(namespace).claims, claim('a'));
      const list = await api().read('/api/v1/persistentvolumeclaims');
      const found = listAt(list, 'items').map((item) => at(item, 'metadata', 'namespace'));
      for (const namespace of namespaces) assert.ok(found.includes(namespace));
    });

    it('of a namespace that does not exist is empty', async () => {
      assert.deepEqual(namesOf(await api().read(paths('never-made').secrets)), []);
    });

    it('contains every write that was answered before the request', async () => {
      const { secrets } = paths(await api().namespace());
      for (const name of ['a', 'b', 'c']) {
        await api().create(secrets, secret(name));
        assert.ok(namesOf(await api().read(secrets)).includes(name));
      }
    });

    it('has a resourceVersion at least as high as that of every item', async () => {
      const list = await api().read(await secretsNamed(['a', 'b']));
      const own = BigInt(textAt(list, 'metadata', 'resourceVersion'));
      for (const item of listAt(list, 'items'))
        assert.ok(BigInt(textAt(item, 'metadata', 'resourceVersion')) <= own);
    });

    it('is answered with resourceVersion=0, possibly from a cache', async () => {
      const reply = await api().get(await secretsNamed(['a']), { resourceVersion: 0 });
      assert.equal(reply.status, 200);
      assert.equal(at(reply.body, 'kind'), 'SecretList');
    });

    it('is not older than the requested resourceVersion', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(secrets, secret('a'));
      const reply = await api().get(secrets, {
        resourceVersion: textAt(stored, 'metadata', 'resourceVersion'),
        resourceVersionMatch: 'NotOlderThan',
      });
      assert.deepEqual(namesOf(reply.body), ['a']);
    });
  });

  describe('pages of a list', () => {
    it('have at most limit items, in order; the last has no continue token', async () => {
      const secrets = await secretsNamed(['a', 'b', 'c', 'd', 'e']);
      const pages: string[][] = [];
      let query: Record<string, string | number> = { limit: 2 };
      for (;;) {
        const { body } = await api().get(secrets, query);
        pages.push(namesOf(body));
        const token = at(body, 'metadata', 'continue');
        if (token === undefined || token === '') break;
        query = { limit: 2, continue: textAt(body, 'metadata', 'continue') };
      }
      assert.deepEqual(pages, [['a', 'b'], ['c', 'd'], ['e']]);
    });

    it('report the number of remaining items', async () => {
      const { body } = await api().get(await secretsNamed(['a', 'b', 'c']), { limit: 1 });
      assert.equal(at(body, 'metadata', 'remainingItemCount'), 2);
    });

    it('do not report that number with a selector', async () => {
      const secrets = await secretsNamed(['a', 'b', 'c'], () => ({ x: 'y' }));
      const { body } = await api().get(secrets, { limit: 1, labelSelector: 'x=y' });
      assert.equal(at(body, 'metadata', 'remainingItemCount'), undefined);
      assert.notEqual(textAt(body, 'metadata', 'continue'), '');
    });

    it('all show the state at the resourceVersion of the first page', async () => {
      const secrets = await secretsNamed(['a', 'b', 'c']);
      const first = (await api().get(secrets, { limit: 1 })).body;
      await api().create(secrets, secret('b-later'));
      const second = (
        await api().get(secrets, { limit: 10, continue: textAt(first, 'metadata', 'continue') })
      ).body;
      assert.equal(
        at(second, 'metadata', 'resourceVersion'),
        at(first, 'metadata', 'resourceVersion'),
      );
      assert.deepEqual(namesOf(second), ['b', 'c']);
    });

    it('have no continue token if the items fit exactly', async () => {
      const { body } = await api().get(await secretsNamed(['a', 'b']), { limit: 2 });
      assert.equal(at(body, 'metadata', 'continue') ?? '', '');
    });

    it('are refused with 400 for an invalid continue token', async () => {
      const { secrets } = paths(await api().namespace());
      refused(await api().get(secrets, { limit: 1, continue: 'nonsense' }), {
        code: 400,
        reason: 'BadRequest',
        message: /continue/,
      });
    });
  });

  describe('a label selector', () => {
    const LABELS: Readonly<Record<string, Fields>> = {
      a: { tier: 'gold' },
      b: { tier: 'silver' },
      c: { tier: 'gold', old: '' },
      d: {},
    };
    for (const [selector, expected] of [
      ['tier=gold', ['a', 'c']],
      ['tier==gold', ['a', 'c']],
      ['tier!=gold', ['b', 'd']],
      ['tier', ['a', 'b', 'c']],
      ['!tier', ['d']],
      ['tier in (gold,silver)', ['a', 'b', 'c']],
      ['tier notin (gold)', ['b', 'd']],
      ['tier=gold,!old', ['a']],
      ['old=', ['c']],
    ] as const) {
      it(`${selector} selects ${expected.join(', ')}`, async () => {
        const secrets = await secretsNamed(Object.keys(LABELS), (name) => LABELS[name] ?? {});
        assert.deepEqual(
          namesOf((await api().get(secrets, { labelSelector: selector })).body),
          expected,
        );
      });
    }

    it('is answered with 400 if it cannot be parsed', async () => {
      const { secrets } = paths(await api().namespace());
      refused(await api().get(secrets, { labelSelector: 'a in' }), {
        code: 400,
        reason: 'BadRequest',
        message: /unable to parse requirement/,
      });
    });
  });

  describe('a field selector', () => {
    it('selects by metadata.name', async () => {
      const secrets = await secretsNamed(['a', 'b']);
      assert.deepEqual(
        namesOf((await api().get(secrets, { fieldSelector: 'metadata.name=b' })).body),
        ['b'],
      );
      assert.deepEqual(
        namesOf((await api().get(secrets, { fieldSelector: 'metadata.name!=b' })).body),
        ['a'],
      );
    });

    it('selects by metadata.namespace', async () => {
      const namespace = await api().namespace();
      await api().create(paths(namespace).claims, claim('a'));
      const reply = await api().get('/api/v1/persistentvolumeclaims', {
        fieldSelector: `metadata.namespace=${namespace}`,
      });
      assert.deepEqual(namesOf(reply.body), ['a']);
    });

    it('selects cluster-scoped objects by metadata.name', async () => {
      assert.deepEqual(
        namesOf((await api().get(VOLUMES, { fieldSelector: 'metadata.name=never-made' })).body),
        [],
      );
    });

    it('selects secrets by type', async () => {
      const { secrets } = paths(await api().namespace());
      await api().create(secrets, secret('a', { fields: { type: 'sutler.dev/x' } }));
      await api().create(secrets, secret('b'));
      assert.deepEqual(
        namesOf((await api().get(secrets, { fieldSelector: 'type=sutler.dev/x' })).body),
        ['a'],
      );
    });

    it('is answered with 400 for an unsupported field', async () => {
      const { claims } = paths(await api().namespace());
      const reply = await api().get(claims, { fieldSelector: 'spec.volumeName=v' });
      refused(reply, { code: 400, reason: 'BadRequest', message: /spec\.volumeName/ });
    });
  });
}
