import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { memberAt, textAt } from '../../../sandbox/api/json-value.ts';
import {
  nameOfEvent,
  namesIn,
  openSandboxHttp,
  type SandboxHttp,
} from '../../harness/sandbox-http.ts';

const MAPS = '/api/v1/namespaces/default/configmaps';
let made = 0;

/** Creates a config map.
 * @returns its name and resourceVersion */
async function make(http: SandboxHttp, labels: Record<string, string> = {}) {
  const name = `map-${(made += 1)}`;
  const { body } = await http.call('POST', MAPS, { body: { metadata: { name, labels } } });
  return { name, revision: textAt(body, 'metadata', 'resourceVersion') };
}

describe('watches of the sandbox API', () => {
  let http: SandboxHttp;
  before(async () => {
    http = await openSandboxHttp({ historySize: 10, bookmarkIntervalMs: 20 });
  });
  after(() => http.close());

  it('resume from recent revisions and get 410 for older ones', async () => {
    const first = await make(http);
    for (let i = 0; i < 25; i += 1) await make(http);
    const { name: before, revision } = await make(http);
    const { name } = await make(http);
    const late = await http.watch(`${MAPS}?watch=1&resourceVersion=${first.revision}`);
    const error = await late.next();
    assert.equal(error?.type, 'ERROR');
    assert.deepEqual(
      [memberAt(error?.object, 'code'), memberAt(error?.object, 'reason')],
      [410, 'Expired'],
    );
    assert.match(textAt(error?.object, 'message'), /^too old resource version: \d+ \(\d+\)$/);
    assert.equal(await late.next(), undefined);
    const fresh = await http.watch(`${MAPS}?watch=1&resourceVersion=${revision}`);
    assert.equal(nameOfEvent(await fresh.next()), `ADDED ${name}`, `after ${before}`);
    fresh.close();
  });

  it('get 410 after a compaction, as do lists at an old revision', async () => {
    const { revision } = await make(http);
    await make(http);
    const page = await http.call('GET', `${MAPS}?limit=1`);
    await make(http);
    http.api.store.compact();
    const watch = await http.watch(`${MAPS}?watch=1&resourceVersion=${revision}`);
    assert.equal((await watch.next())?.type, 'ERROR');
    const next = await http.call(
      'GET',
      `${MAPS}?limit=1&continue=${textAt(page.body, 'metadata', 'continue')}`,
    );
    assert.deepEqual([next.code, memberAt(next.body, 'reason')], [410, 'Expired']);
    const exact = await http.call(
      'GET',
      `${MAPS}?resourceVersion=${revision}&resourceVersionMatch=Exact`,
    );
    assert.equal(exact.code, 410);
    assert.equal((await http.call('GET', MAPS)).code, 200);
  });

  it('send requested bookmarks with the latest resourceVersion', async () => {
    const { revision } = await make(http);
    const watch = await http.watch(
      `${MAPS}?watch=1&resourceVersion=${revision}&allowWatchBookmarks=true`,
    );
    const bookmark = await watch.next();
    assert.equal(bookmark?.type, 'BOOKMARK');
    assert.ok(Number(textAt(bookmark?.object, 'metadata', 'resourceVersion')) >= Number(revision));
    assert.deepEqual(
      [memberAt(bookmark?.object, 'kind'), memberAt(bookmark?.object, 'spec')],
      ['ConfigMap', undefined],
    );
    watch.close();
  });

  it('mark the end of the initial events with sendInitialEvents', async () => {
    const { name } = await make(http, { initial: 'yes' });
    const query =
      'watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan' +
      '&allowWatchBookmarks=true&labelSelector=initial';
    const watch = await http.watch(`${MAPS}?${query}`);
    assert.equal(nameOfEvent(await watch.next()), `ADDED ${name}`);
    const end = await watch.next();
    assert.equal(end?.type, 'BOOKMARK');
    assert.equal(
      textAt(end?.object, 'metadata', 'annotations', 'k8s.io/initial-events-end'),
      'true',
    );
    watch.close();
  });

  it('send objects that begin or stop to match, with the new revision', async () => {
    const { name, revision } = await make(http);
    const watch = await http.watch(
      `${MAPS}?watch=1&resourceVersion=${revision}&labelSelector=on%3D1`,
    );
    await http.patch('merge', `${MAPS}/${name}`, { metadata: { labels: { on: '1' } } });
    const off = await http.patch('merge', `${MAPS}/${name}`, {
      metadata: { labels: { on: null } },
    });
    assert.equal(nameOfEvent(await watch.next()), `ADDED ${name}`);
    const gone = await watch.next();
    assert.equal(nameOfEvent(gone), `DELETED ${name}`);
    assert.equal(textAt(gone?.object, 'metadata', 'labels', 'on'), '1');
    assert.equal(
      textAt(gone?.object, 'metadata', 'resourceVersion'),
      textAt(off.body, 'metadata', 'resourceVersion'),
    );
    watch.close();
  });

  it('send tables, with the columns only once', async () => {
    const { name, revision } = await make(http);
    const accept = 'application/json;as=Table;g=meta.k8s.io;v=v1';
    const watch = await http.watch(`${MAPS}?watch=1&resourceVersion=${revision}`, { accept });
    await http.patch('merge', `${MAPS}/${name}`, { data: { a: '1' } });
    await http.patch('merge', `${MAPS}/${name}`, { data: { b: '2' } });
    const [first, second] = [await watch.next(), await watch.next()];
    assert.equal((memberAt(first?.object, 'columnDefinitions') as unknown[]).length, 3);
    assert.deepEqual(memberAt(second?.object, 'columnDefinitions'), []);
    assert.equal(memberAt(second?.object, 'kind'), 'Table');
    watch.close();
  });

  it('can be cut, ended and expired by a test', async () => {
    const { revision } = await make(http);
    for (const how of ['cut', 'end', 'expire'] as const) {
      const watch = await http.watch(`${MAPS}?watch=1&resourceVersion=${revision}`);
      assert.equal(http.api.watchCount('configmaps'), 1);
      assert.equal(http.api.stopWatches(how, 'secrets'), 0);
      assert.equal(http.api.stopWatches(how, 'configmaps'), 1);
      for (let event = await watch.next(); event !== undefined; event = await watch.next()) {
        if (event.type === 'ERROR') assert.equal(how, 'expire');
      }
      assert.equal(http.api.watchCount(), 0);
    }
  });

  it('stop when their client disconnects', async () => {
    const watch = await http.watch(`${MAPS}?watch=1`);
    await watch.next();
    watch.close();
    while (http.api.watchCount() > 0) await new Promise(setImmediate);
  });
});

describe('pages of one list', () => {
  it('show one revision although objects are written in between', async () => {
    const http = await openSandboxHttp();
    for (const name of ['a', 'b', 'c', 'd'])
      await http.call('POST', MAPS, { body: { metadata: { name } } });
    const first = await http.call('GET', `${MAPS}?limit=2`);
    await http.call('DELETE', `${MAPS}/d`);
    await http.call('POST', MAPS, { body: { metadata: { name: 'bb' } } });
    await http.patch('merge', `${MAPS}/c`, { data: { changed: 'yes' } });
    const second = await http.call(
      'GET',
      `${MAPS}?limit=2&continue=${textAt(first.body, 'metadata', 'continue')}`,
    );
    assert.deepEqual(
      [namesIn(first.body), namesIn(second.body)],
      [
        ['a', 'b'],
        ['c', 'd'],
      ],
    );
    assert.equal(memberAt(second.body, 'items', '0', 'data'), undefined);
    assert.equal(
      textAt(second.body, 'metadata', 'resourceVersion'),
      textAt(first.body, 'metadata', 'resourceVersion'),
    );
    assert.deepEqual(namesIn((await http.call('GET', MAPS)).body), ['a', 'b', 'bb', 'c']);
    await http.close();
  });
});
