import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { field, message } from '../../../sandbox/api/http/protobuf-writer.ts';
import { memberAt, textAt } from '../../../sandbox/api/json-value.ts';
import { readWrapped } from '../../../sandbox/api/schema/protobuf-reader.ts';
import { schemaOf } from '../../../sandbox/api/schema/schemas.ts';
import { openSandboxHttp, type SandboxHttp } from '../../harness/sandbox-http.ts';

/** An object as typed clients send it: magic, kind and version, message. */
function wrapped(kind: string, apiVersion: string, raw: Buffer): Buffer {
  return Buffer.concat([
    Buffer.from('k8s\0'),
    message(field(1, message(field(1, apiVersion), field(2, kind))), field(2, raw)),
  ]);
}

const secret = message(
  field(
    1,
    message(
      field(1, 'from-protobuf'),
      field(11, message(field(1, 'app'), field(2, 'x'))),
      field(8, ''),
    ),
  ),
  field(2, message(field(1, 'password'), field(2, Buffer.from([0, 255, 1])))),
  field(3, 'Opaque'),
);

describe('protobuf bodies', () => {
  let http: SandboxHttp;
  before(async () => {
    http = await openSandboxHttp();
  });
  after(() => http.close());

  const headers = { 'content-type': 'application/vnd.kubernetes.protobuf' };

  it('create the kinds that typed clients send as protobuf', async () => {
    const { code, body } = await http.call('POST', '/api/v1/namespaces/default/secrets', {
      body: wrapped('Secret', 'v1', secret),
      headers,
    });
    assert.equal(code, 201);
    assert.deepEqual(
      [memberAt(body, 'data'), memberAt(body, 'metadata', 'labels')],
      [{ password: 'AP8B' }, { app: 'x' }],
    );
  });

  it('are accepted as the options of a delete', async () => {
    await http.call('POST', '/api/v1/namespaces/default/configmaps', {
      body: { metadata: { name: 'kept' } },
    });
    const body = wrapped('DeleteOptions', 'v1', field(2, field(1, 'another-uid')));
    assert.equal(
      (await http.call('DELETE', '/api/v1/namespaces/default/configmaps/kept', { body, headers }))
        .code,
      409,
    );
  });

  it('are refused with 415 for kinds without a protobuf form', async () => {
    const body = wrapped('PersistentVolume', 'v1', Buffer.alloc(0));
    assert.equal(
      (await http.call('POST', '/api/v1/persistentvolumes', { body, headers })).code,
      415,
    );
  });

  it('are refused with 400 if they are truncated', async () => {
    const body = wrapped('Secret', 'v1', secret).subarray(0, 30);
    const answer = await http.call('POST', '/api/v1/namespaces/default/secrets', { body, headers });
    assert.equal(answer.code, 400);
    assert.equal(textAt(answer.body, 'reason'), 'BadRequest');
  });
});

describe('readWrapped', () => {
  it('returns undefined without the magic', () =>
    assert.equal(readWrapped(schemaOf('Secret'), secret), undefined));
});
