import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { OpenApiV2 } from '../../../sandbox/api/http/openapi-v2.ts';
import { OpenApiV3 } from '../../../sandbox/api/http/openapi-v3.ts';
import { Discovery } from '../../../sandbox/api/http/discovery.ts';
import { memberAt, textAt, type JsonObject } from '../../../sandbox/api/json-value.ts';
import { Registry } from '../../../sandbox/api/registry.ts';
import { claims } from '../../../sandbox/api/kinds/claims.ts';

describe('OpenAPI', () => {
  it('v3 refers only to definitions that exist', () => {
    const api = new OpenApiV3(new Registry());
    for (const path of Object.keys(memberAt(api.index(), 'paths') as JsonObject)) {
      const document = api.document(path);
      const schemas = memberAt(document, 'components', 'schemas') as JsonObject;
      const references = [
        ...JSON.stringify(document).matchAll(/"\$ref":"#\/components\/schemas\/([^"]+)"/g),
      ].map((match) => match[1] ?? '');
      assert.deepEqual(
        references.filter((name) => schemas[name] === undefined),
        [],
        path,
      );
    }
  });

  it('v3 describes the patch of claims and the merge keys of lists', () => {
    const document = new OpenApiV3(new Registry()).document('api/v1');
    const patch = memberAt(
      document,
      'paths',
      '/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}',
      'patch',
    );
    assert.deepEqual(memberAt(patch, 'x-kubernetes-group-version-kind'), {
      group: '',
      kind: 'PersistentVolumeClaim',
      version: 'v1',
    });
    const status = memberAt(
      document,
      'components',
      'schemas',
      'dev.sutler.sandbox.PersistentVolumeClaimStatus',
      'properties',
      'conditions',
    );
    assert.equal(textAt(status, 'x-kubernetes-patch-merge-key'), 'type');
  });

  it('v3 changes the address of a document when a kind is added', () => {
    const registry = new Registry([claims]);
    const api = new OpenApiV3(registry);
    const before = JSON.stringify(api.index());
    registry.add({ ...claims, plural: 'others', kind: 'Other' });
    assert.notEqual(JSON.stringify(api.index()), before);
  });

  it('v2 is sent as protobuf if requested, with a valid media type', () => {
    const api = new OpenApiV2(new Registry());
    for (const accept of [
      'application/com.github.proto-openapi.spec.v2@v1.0+protobuf',
      'application/com.github.proto-openapi.spec.v2.v1.0+protobuf',
    ]) {
      const { type, body } = api.document(accept);
      assert.equal(type, 'application/com.github.proto-openapi.spec.v2.v1.0+protobuf');
      // Field 1, length 3: the version of the specification.
      assert.deepEqual(body.subarray(0, 5), Buffer.from('\n\u00032.0'));
    }
    assert.equal(
      textAt(JSON.parse(api.document('application/json').body.toString()) as JsonObject, 'swagger'),
      '2.0',
    );
  });
});

describe('discovery', () => {
  it('puts stable versions first', () => {
    const row = (version: string) => ({ ...claims, group: 'x.dev', version });
    const discovery = new Discovery(
      new Registry([row('v1alpha1'), row('v2'), row('v1beta1'), row('v1')]),
    );
    const versions = memberAt(
      discovery.document('/apis/x.dev', undefined),
      'versions',
    ) as JsonObject[];
    assert.deepEqual(
      versions.map((each) => each['version']),
      ['v2', 'v1', 'v1beta1', 'v1alpha1'],
    );
  });

  it('lists all groups in one document if requested', () => {
    const type = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';
    const groups = memberAt(
      new Discovery(new Registry()).document('/apis', type),
      'items',
    ) as JsonObject[];
    assert.ok(groups.some((group) => textAt(group, 'metadata', 'name') === 'storage.k8s.io'));
  });
});
