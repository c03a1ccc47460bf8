import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { at, listAt, textAt, type Connection } from './connection.ts';
import { claim, paths, secret } from './objects.ts';

const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';
const METADATA_LIST =
  'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json';
const METADATA = 'application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json';

/** Other representations of objects: tables for kubectl, and metadata alone. */
export function describeRepresentations(api: () => Connection): void {
  describe('a Table', () => {
    it('of claims has the columns that kubectl prints', async () => {
      const { claims } = paths(await api().namespace());
      await api().create(claims, claim('a'));
      const { body } = await api().call('GET', claims, { accept: TABLE });
      assert.equal(at(body, 'kind'), 'Table');
      assert.equal(at(body, 'apiVersion'), 'meta.k8s.io/v1');
      const shown = listAt(body, 'columnDefinitions').filter(
        (column) => at(column, 'priority') === 0,
      );
      assert.deepEqual(
        shown.map((column) => at(column, 'name')),
        [
          'Name',
          'Status',
          'Volume',
          'Capacity',
          'Access Modes',
          'StorageClass',
          'VolumeAttributesClass',
          'Age',
        ],
      );
    });

    it('is also sent by a watch that requests it', async () => {
      const { claims } = paths(await api().namespace());
      await api().create(claims, claim('a'));
      const { text } = await api().call('GET', claims, {
        accept: TABLE,
        query: { watch: true, timeoutSeconds: 1 },
      });
      const event: unknown = JSON.parse(text.split('\n')[0] ?? '');
      assert.equal(at(event, 'type'), 'ADDED');
      assert.equal(at(event, 'object', 'kind'), 'Table');
      assert.equal(at(event, 'object', 'rows', 0, 'cells', 0), 'a');
    });
  });

  describe('metadata alone', () => {
    it('of a list has no data', async () => {
      const { secrets } = paths(await api().namespace());
      await api().create(secrets, secret('a', { fields: { data: { x: 'eA==' } } }));
      const { body } = await api().call('GET', secrets, { accept: METADATA_LIST });
      assert.equal(at(body, 'kind'), 'PartialObjectMetadataList');
      assert.match(textAt(body, 'metadata', 'resourceVersion'), /^\d+$/);
      assert.equal(at(body, 'items', 0, 'metadata', 'name'), 'a');
      assert.equal(at(body, 'items', 0, 'data'), undefined);
    });

    it('of an object has no data', async () => {
      const { secrets } = paths(await api().namespace());
      await api().create(secrets, secret('a', { fields: { data: { x: 'eA==' } } }));
      const { body } = await api().call('GET', `${secrets}/a`, { accept: METADATA });
      assert.equal(at(body, 'kind'), 'PartialObjectMetadata');
      assert.equal(at(body, 'metadata', 'name'), 'a');
      assert.equal(at(body, 'data'), undefined);
    });
  });

  describe('an Accept header', () => {
    it('that allows any type is answered with JSON', async () => {
      const { claims } = paths(await api().namespace());
      const { headers } = await api().call('GET', claims, { accept: '*/*' });
      assert.equal(headers['content-type'], 'application/json');
    });

    it('without a supported type is answered with 406', async () => {
      const { claims } = paths(await api().namespace());
      assert.equal((await api().call('GET', claims, { accept: 'image/png' })).status, 406);
    });
  });
}
