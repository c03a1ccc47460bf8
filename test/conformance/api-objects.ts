import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { at, listAt, refused, textAt, unique, type Connection, invalid } from './connection.ts';
import { claim, paths, secret } from './objects.ts';

/** Creation and reading of objects. */
export function describeObjects(api: () => Connection): void {
  describe('create and get', () => {
    it('answers 201 with the metadata that the server sets', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(secrets, secret('a'));
      assert.match(
        textAt(stored, 'metadata', 'uid'),
        /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
      );
      assert.match(textAt(stored, 'metadata', 'resourceVersion'), /^[1-9]\d*$/);
      assert.match(
        textAt(stored, 'metadata', 'creationTimestamp'),
        /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/,
      );
      assert.equal(at(stored, 'kind'), 'Secret');
      assert.equal(at(stored, 'apiVersion'), 'v1');
    });

    it('reads the object that create answered', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(secrets, secret('a', { metadata: { labels: { x: 'y' } } }));
      assert.deepEqual(await api().read(`${secrets}/a`), stored);
    });

    it('sets the namespace of the path', async () => {
      const namespace = await api().namespace();
      const stored = await api().create(paths(namespace).secrets, secret('a'));
      assert.equal(at(stored, 'metadata', 'namespace'), namespace);
    });

    it('sets kind and apiVersion if the body has none', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(secrets, { metadata: { name: 'a' } });
      assert.equal(at(stored, 'kind'), 'Secret');
    });

    it('ignores the uid, creation time and deletionTimestamp of a body', async () => {
      const { secrets } = paths(await api().namespace());
      const given = {
        uid: 'mine',
        creationTimestamp: '2001-01-01T00:00:00Z',
        deletionTimestamp: '2001-01-01T00:00:00Z',
      };
      const stored = await api().create(secrets, secret('a', { metadata: given }));
      assert.notEqual(at(stored, 'metadata', 'uid'), 'mine');
      assert.notEqual(at(stored, 'metadata', 'creationTimestamp'), '2001-01-01T00:00:00Z');
      assert.equal(at(stored, 'metadata', 'deletionTimestamp'), undefined);
    });

    it('refuses to create an object with a resourceVersion', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().call('POST', secrets, {
        body: secret('a', { metadata: { resourceVersion: '1' } }),
      });
      assert.equal(reply.status, 500, reply.text);
      assert.match(
        textAt(reply.body, 'message'),
        /resourceVersion should not be set on objects to be created/,
      );
    });

    it('answers 404 NotFound with plural and name for an absent object', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().get(`${secrets}/absent`);
      refused(reply, { code: 404, reason: 'NotFound', message: /^secrets "absent" not found$/ });
      assert.deepEqual(at(reply.body, 'details'), { name: 'absent', kind: 'secrets' });
    });

    it('names the group in a NotFound outside the core group', async () => {
      const reply = await api().get('/apis/storage.k8s.io/v1/storageclasses/absent-for-ever');
      refused(reply, {
        code: 404,
        reason: 'NotFound',
        message: /^storageclasses\.storage\.k8s\.io "absent-for-ever" not found$/,
      });
      assert.deepEqual(at(reply.body, 'details'), {
        name: 'absent-for-ever',
        group: 'storage.k8s.io',
        kind: 'storageclasses',
      });
    });

    it('answers 409 AlreadyExists for a name that is taken', async () => {
      const { secrets } = paths(await api().namespace());
      await api().create(secrets, secret('a'));
      const reply = await api().call('POST', secrets, { body: secret('a') });
      refused(reply, {
        code: 409,
        reason: 'AlreadyExists',
        message: /^secrets "a" already exists$/,
      });
    });

    it('appends five characters to generateName', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(
        secrets,
        secret('', { metadata: { name: undefined, generateName: 'gen-' } }),
      );
      assert.match(textAt(stored, 'metadata', 'name'), /^gen-[0-9a-z]{5}$/);
      assert.equal(at(stored, 'metadata', 'generateName'), 'gen-');
    });

    it('prefers name over generateName', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(
        secrets,
        secret('a', { metadata: { generateName: 'gen-' } }),
      );
      assert.equal(at(stored, 'metadata', 'name'), 'a');
    });

    it('answers 422 Invalid with a cause for an object without a name', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().call('POST', secrets, {
        body: { apiVersion: 'v1', kind: 'Secret', metadata: {} },
      });
      refused(reply, invalid(/name or generateName is required/));
      assert.equal(at(reply.body, 'details', 'causes', 0, 'field'), 'metadata.name');
      assert.equal(at(reply.body, 'details', 'causes', 0, 'reason'), 'FieldValueRequired');
    });

    it('answers 422 Invalid for a name that is not a DNS subdomain', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().call('POST', secrets, { body: secret('Not_A_Name') });
      refused(
        reply,
        invalid(/^Secret "Not_A_Name" is invalid: metadata\.name: Invalid value: "Not_A_Name"/),
      );
    });

    it('answers 422 Invalid for an invalid label', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().call('POST', secrets, {
        body: secret('a', { metadata: { labels: { x: 'not a label' } } }),
      });
      refused(reply, invalid(/metadata\.labels: Invalid value/));
    });

    it('answers 404 for an object in a namespace that does not exist', async () => {
      const name = unique('absent');
      const reply = await api().call('POST', paths(name).secrets, { body: secret('a') });
      refused(reply, {
        code: 404,
        reason: 'NotFound',
        message: new RegExp(`^namespaces "${name}" not found$`),
      });
    });

    it('answers 400 for a body with another namespace than the path', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().call('POST', secrets, {
        body: secret('a', { metadata: { namespace: 'default' } }),
      });
      refused(reply, { code: 400, reason: 'BadRequest', message: /does not match the namespace/ });
    });

    it('answers 400 for a body of another kind', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().call('POST', secrets, { body: claim('a') });
      refused(reply, { code: 400, reason: 'BadRequest' });
    });

    it('answers 400 for a body that is not JSON', async () => {
      const { secrets } = paths(await api().namespace());
      refused(await api().call('POST', secrets, { body: '{"apiVersion":' }), {
        code: 400,
        reason: 'BadRequest',
      });
    });

    it('answers 415 for an unsupported content type', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().call('POST', secrets, {
        body: 'name: a',
        contentType: 'text/plain',
      });
      refused(reply, { code: 415, reason: 'UnsupportedMediaType' });
    });
  });

  describe('fields that the server does not know', () => {
    const withUnknown = { ...claim('a'), nonsense: 1 };

    it('are dropped', async () => {
      const { claims } = paths(await api().namespace());
      const stored = await api().create(claims, withUnknown);
      assert.equal(at(stored, 'nonsense'), undefined);
    });

    it('are reported in a Warning header', async () => {
      const { claims } = paths(await api().namespace());
      const reply = await api().call('POST', claims, { body: withUnknown });
      assert.equal(reply.headers['warning'], '299 - "unknown field \\"nonsense\\""');
    });

    it('are not reported with fieldValidation=Ignore', async () => {
      const { claims } = paths(await api().namespace());
      const reply = await api().call('POST', claims, {
        body: withUnknown,
        query: { fieldValidation: 'Ignore' },
      });
      assert.equal(reply.status, 201);
      assert.equal(reply.headers['warning'], undefined);
    });

    it('are refused with fieldValidation=Strict', async () => {
      const { claims } = paths(await api().namespace());
      const reply = await api().call('POST', claims, {
        body: withUnknown,
        query: { fieldValidation: 'Strict' },
      });
      refused(reply, {
        code: 400,
        reason: 'BadRequest',
        message: /strict decoding error: unknown field "nonsense"/,
      });
      refused(await api().get(`${claims}/a`), { code: 404, reason: 'NotFound' });
    });

    it('are refused at any depth with fieldValidation=Strict', async () => {
      const { claims } = paths(await api().namespace());
      const reply = await api().call('POST', claims, {
        body: claim('a', { spec: { nonsense: 1 } }),
        query: { fieldValidation: 'Strict' },
      });
      refused(reply, {
        code: 400,
        reason: 'BadRequest',
        message: /strict decoding error: unknown field "spec\.nonsense"/,
      });
    });
  });

  describe('dryRun=All', () => {
    it('answers a create as if it were stored, and stores nothing', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().call('POST', secrets, {
        body: secret('a'),
        query: { dryRun: 'All' },
      });
      assert.equal(reply.status, 201);
      assert.notEqual(textAt(reply.body, 'metadata', 'uid'), '');
      refused(await api().get(`${secrets}/a`), { code: 404, reason: 'NotFound' });
    });

    it('answers a patch as if it were stored, and stores nothing', async () => {
      const { secrets } = paths(await api().namespace());
      const stored = await api().create(secrets, secret('a'));
      const body = { metadata: { labels: { x: 'y' } } };
      const reply = await api().call('PATCH', `${secrets}/a`, {
        body,
        contentType: 'application/merge-patch+json',
        query: { dryRun: 'All' },
      });
      assert.equal(at(reply.body, 'metadata', 'labels', 'x'), 'y');
      assert.deepEqual(await api().read(`${secrets}/a`), stored);
    });

    it('answers a delete as if it were done, and deletes nothing', async () => {
      const { secrets } = paths(await api().namespace());
      await api().create(secrets, secret('a'));
      const reply = await api().call('DELETE', `${secrets}/a`, { query: { dryRun: 'All' } });
      assert.equal(reply.status, 200);
      await api().read(`${secrets}/a`);
    });

    it('refuses other values', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().call('POST', secrets, {
        body: secret('a'),
        query: { dryRun: 'some' },
      });
      refused(reply, { code: 422, reason: 'Invalid' });
    });
  });

  describe('a namespace', () => {
    it('is Active and has its name as a label', async () => {
      const name = await api().namespace();
      const stored = await api().read(`/api/v1/namespaces/${name}`);
      assert.equal(at(stored, 'status', 'phase'), 'Active');
      assert.deepEqual(at(stored, 'metadata', 'labels'), { 'kubernetes.io/metadata.name': name });
    });

    it('accepts no new objects while it is being deleted', async () => {
      const name = await api().namespace();
      const { secrets } = paths(name);
      await api().create(secrets, secret('kept', { metadata: { finalizers: ['sutler.dev/one'] } }));
      assert.equal((await api().call('DELETE', `/api/v1/namespaces/${name}`)).status, 200);
      assert.equal(
        at(await api().read(`/api/v1/namespaces/${name}`), 'status', 'phase'),
        'Terminating',
      );
      const reply = await api().call('POST', secrets, { body: secret('late') });
      refused(reply, {
        code: 403,
        reason: 'Forbidden',
        message: /because it is being terminated$/,
      });
      assert.equal(
        at(listAt(reply.body, 'details', 'causes')[0], 'reason'),
        'NamespaceTerminating',
      );
    });
  });
}
