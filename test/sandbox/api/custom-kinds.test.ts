import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { memberAt, textAt, type JsonObject } from '../../../sandbox/api/json-value.ts';
import {
  nameOfEvent,
  namesIn,
  openSandboxHttp,
  type SandboxHttp,
} from '../../harness/sandbox-http.ts';

const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
const THINGS = '/apis/x.dev/v1/namespaces/default/things';

const version = (name: string, storage: boolean): JsonObject => ({
  name,
  served: true,
  storage,
  subresources: { status: {} },
  schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
  additionalPrinterColumns: [{ name: 'Size', type: 'string', jsonPath: '.spec.size' }],
});

const definition: JsonObject = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'things.x.dev' },
  spec: {
    group: 'x.dev',
    scope: 'Namespaced',
    names: { plural: 'things', kind: 'Thing', shortNames: ['th'] },
    versions: [version('v1', true), version('v1beta1', false)],
  },
};

describe('custom kinds', () => {
  let http: SandboxHttp;
  before(async () => {
    http = await openSandboxHttp();
  });
  after(() => http.close());

  it('are added with their definition and removed with it and their objects', async () => {
    assert.equal((await http.call('GET', THINGS)).code, 404);
    assert.equal((await http.call('POST', DEFINITIONS, { body: definition })).code, 201);
    assert.deepEqual(namesIn((await http.call('GET', THINGS)).body), []);
    assert.equal(
      (await http.call('POST', THINGS, { body: { metadata: { name: 'a' } } })).code,
      201,
    );
    const watch = await http.watch(`${THINGS}?watch=1`);
    assert.equal(nameOfEvent(await watch.next()), 'ADDED a');
    assert.equal((await http.call('DELETE', `${DEFINITIONS}/things.x.dev`)).code, 200);
    assert.equal(nameOfEvent(await watch.next()), 'DELETED a');
    assert.equal((await http.call('GET', THINGS)).code, 404);
    await http.call('POST', DEFINITIONS, { body: definition });
    assert.deepEqual(namesIn((await http.call('GET', THINGS)).body), []);
    watch.close();
  });

  it('are listed by discovery', async () => {
    const { body } = await http.call('GET', '/apis/x.dev/v1');
    const resources = memberAt(body, 'resources') as JsonObject[];
    assert.deepEqual(
      resources.map((each) => each['name']),
      ['things', 'things/status'],
    );
    assert.deepEqual(resources[0]?.['shortNames'], ['th']);
    assert.equal(
      textAt((await http.call('GET', '/apis/x.dev')).body, 'preferredVersion', 'version'),
      'v1',
    );
  });

  it('keep all members, and separate spec and status', async () => {
    const created = await http.call('POST', THINGS, {
      body: { metadata: { name: 'g' }, spec: { size: 'L', deep: [{ x: 1 }] }, status: { no: 1 } },
    });
    assert.deepEqual(memberAt(created.body, 'spec'), { size: 'L', deep: [{ x: 1 }] });
    assert.equal(memberAt(created.body, 'status'), undefined);
    const status = await http.patch('merge', `${THINGS}/g/status`, {
      spec: { size: 'XL' },
      status: { phase: 'Ready' },
    });
    assert.deepEqual(
      [memberAt(status.body, 'metadata', 'generation'), memberAt(status.body, 'spec', 'size')],
      [1, 'L'],
    );
    const spec = await http.patch('merge', `${THINGS}/g`, {
      spec: { size: 'S' },
      status: { phase: 'Lost' },
    });
    assert.deepEqual(
      [memberAt(spec.body, 'metadata', 'generation'), memberAt(spec.body, 'status', 'phase')],
      [2, 'Ready'],
    );
  });

  it('are one object with one history in all their versions', async () => {
    await http.call('POST', THINGS, { body: { metadata: { name: 'v' } } });
    const beta = '/apis/x.dev/v1beta1/namespaces/default/things';
    const seen = await http.call('GET', `${beta}/v`);
    assert.equal(textAt(seen.body, 'apiVersion'), 'x.dev/v1beta1');
    const watch = await http.watch(
      `${beta}?watch=1&resourceVersion=${textAt(seen.body, 'metadata', 'resourceVersion')}`,
    );
    await http.patch('merge', `${THINGS}/v`, { spec: { size: 'M' } });
    assert.equal(textAt((await watch.next())?.object, 'apiVersion'), 'x.dev/v1beta1');
    await http.patch('merge', `${beta}/v`, { spec: { more: true } });
    assert.deepEqual(memberAt((await http.call('GET', `${THINGS}/v`)).body, 'spec'), {
      size: 'M',
      more: true,
    });
    watch.close();
  });

  it('have the table columns of their definition', async () => {
    await http.call('POST', THINGS, { body: { metadata: { name: 't' }, spec: { size: 'XXL' } } });
    const { body } = await http.call('GET', `${THINGS}/t`, {
      headers: { accept: 'application/json;as=Table;g=meta.k8s.io;v=v1' },
    });
    const [row] = memberAt(body, 'rows') as JsonObject[];
    assert.deepEqual(row?.['cells'], ['t', 'XXL', '0s']);
  });

  it('refuse a strategic patch', async () => {
    await http.call('POST', THINGS, { body: { metadata: { name: 's' } } });
    assert.equal((await http.patch('strategic', `${THINGS}/s`, { spec: {} })).code, 415);
  });

  it('need a definition that is named after plural and group', async () => {
    const { code, body } = await http.call('POST', DEFINITIONS, {
      body: { ...definition, metadata: { name: 'other.x.dev' } },
    });
    assert.equal(code, 422);
    assert.match(textAt(body, 'message'), /must be spec\.names\.plural/);
  });
});

describe('deletecollection', () => {
  it('answers in the requested version; namespaces do not support it', async () => {
    const http = await openSandboxHttp();
    const involvedObject = { kind: 'PersistentVolume', name: 'a' };
    await http.call('POST', '/api/v1/namespaces/default/events', {
      body: { metadata: { name: 'e' }, involvedObject },
    });
    const { body } = await http.call('DELETE', '/apis/events.k8s.io/v1/namespaces/default/events');
    assert.equal(textAt((memberAt(body, 'items') as JsonObject[])[0], 'regarding', 'name'), 'a');
    assert.equal((await http.call('DELETE', '/api/v1/namespaces')).code, 405);
    assert.equal((await http.call('GET', '/api/v1/namespaces/default')).code, 200);
    await http.close();
  });
});

describe('namespaces', () => {
  it('are removed after their contents and the last finalizer', async () => {
    const http = await openSandboxHttp();
    await http.call('POST', '/api/v1/namespaces', { body: { metadata: { name: 'n' } } });
    const maps = '/api/v1/namespaces/n/configmaps';
    await http.call('POST', maps, { body: { metadata: { name: 'plain' } } });
    await http.call('POST', maps, {
      body: { metadata: { name: 'kept', finalizers: ['x.dev/one'] } },
    });
    await http.call('DELETE', '/api/v1/namespaces/n');
    assert.deepEqual(namesIn((await http.call('GET', maps)).body), ['kept']);
    assert.equal(
      textAt((await http.call('GET', '/api/v1/namespaces/n')).body, 'status', 'phase'),
      'Terminating',
    );
    const late = await http.call('POST', maps, { body: { metadata: { name: 'late' } } });
    assert.equal(late.code, 403);
    assert.match(textAt(late.body, 'message'), /because it is being terminated/);
    await http.patch('merge', `${maps}/kept`, { metadata: { finalizers: null } });
    assert.equal((await http.call('GET', '/api/v1/namespaces/n')).code, 404);
    assert.equal((await http.call('DELETE', '/api/v1/namespaces/kube-system')).code, 403);
    await http.close();
  });
});
