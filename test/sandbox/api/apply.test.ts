import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { memberAt, textAt, type JsonObject } from '../../../sandbox/api/json-value.ts';
import { openSandboxHttp, type SandboxHttp } from '../../harness/sandbox-http.ts';

// The expected answers are those of a real API server.
describe('server-side apply', () => {
  let http: SandboxHttp;
  let names = 0;
  before(async () => {
    http = await openSandboxHttp();
  });
  after(() => http.close());

  const path = (name: string) => `/api/v1/namespaces/default/configmaps/${name}`;
  const map = (name: string, data: JsonObject, metadata: JsonObject = {}) => ({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name, ...metadata },
    data,
  });
  const apply = (name: string, query: string, body: JsonObject) =>
    http.patch('apply', `${path(name)}?${query}`, body);

  it('creates an object, and does not change it if applied again', async () => {
    const name = `a-${(names += 1)}`;
    const created = await apply(name, 'fieldManager=one', map(name, { a: '1' }));
    const again = await apply(name, 'fieldManager=one', map(name, { a: '1' }));
    assert.deepEqual([created.code, again.code], [201, 200]);
    assert.deepEqual(again.body, created.body);
    const entry = memberAt(created.body, 'metadata', 'managedFields') as JsonObject[];
    assert.deepEqual(entry[0]?.['fieldsV1'], { 'f:data': { 'f:a': {} } });
  });

  it('removes fields that the manager no longer applies, and no others', async () => {
    const name = `a-${(names += 1)}`;
    await apply(name, 'fieldManager=one', map(name, { a: '1', b: '1' }, { labels: { l: '1' } }));
    await http.patch('merge', path(name), { data: { other: 'x' } });
    const { body } = await apply(name, 'fieldManager=one', map(name, { b: '2' }));
    assert.deepEqual(memberAt(body, 'data'), { b: '2', other: 'x' });
    assert.equal(memberAt(body, 'metadata', 'labels'), undefined);
  });

  it('refuses a field that another manager owns, unless forced', async () => {
    const name = `a-${(names += 1)}`;
    await apply(name, 'fieldManager=one', map(name, { a: '1', b: '1' }));
    const refused = await apply(name, 'fieldManager=two', map(name, { a: '2' }));
    assert.equal(refused.code, 409);
    assert.equal(
      textAt(refused.body, 'message'),
      'Apply failed with 1 conflict: conflict with "one": .data.a',
    );
    assert.equal(
      (await apply(name, 'fieldManager=two&force=true', map(name, { a: '2' }))).code,
      200,
    );
    const dropped = await apply(name, 'fieldManager=one', map(name, { c: '3' }));
    assert.deepEqual(memberAt(dropped.body, 'data'), { a: '2', c: '3' });
  });

  it('lets two managers own a field with the same value', async () => {
    const name = `a-${(names += 1)}`;
    await apply(name, 'fieldManager=one', map(name, { a: '1' }));
    assert.equal((await apply(name, 'fieldManager=two', map(name, { a: '1' }))).code, 200);
    const { body } = await apply(name, 'fieldManager=one', map(name, {}));
    assert.deepEqual(memberAt(body, 'data'), { a: '1' });
  });

  it('tracks the owner of each finalizer', async () => {
    const name = `a-${(names += 1)}`;
    await apply(name, 'fieldManager=one', map(name, {}, { finalizers: ['x.dev/one'] }));
    await apply(name, 'fieldManager=two', map(name, {}, { finalizers: ['x.dev/two'] }));
    const { body } = await apply(name, 'fieldManager=one', map(name, {}));
    assert.deepEqual(memberAt(body, 'metadata', 'finalizers'), ['x.dev/two']);
  });

  it('requires the name of the manager', async () => {
    const { code, body } = await apply('unnamed', 'force=true', map('unnamed', {}));
    assert.equal(code, 422);
    assert.match(textAt(body, 'message'), /fieldManager: Required value/);
  });
});
