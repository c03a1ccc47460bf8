import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  at,
  fieldsAt,
  invalid,
  listAt,
  refused,
  textAt,
  unique,
  type Connection,
  type Fields,
} from './connection.ts';
import { VOLUMES, claim, paths, secret, volume } from './objects.ts';

const FINALIZER = 'sutler.dev/one';
const OTHER_UID = '00000000-0000-0000-0000-000000000000';
const NOT_FOUND = { code: 404, reason: 'NotFound' };
const CONFLICT = { code: 409, reason: 'Conflict' };

/** Creation, update and deletion of objects, and their status. */
export function describeWrites(api: () => Connection): void {
  const secretsOfNew = async (): Promise<string> => paths(await api().namespace()).secrets;
  /** A new secret `a`. */
  const newSecret = async (metadata: Fields = {}) => {
    const secrets = await secretsOfNew();
    const stored = await api().create(secrets, secret('a', { metadata }));
    const [uid, resourceVersion] = ['uid', 'resourceVersion'].map((name) =>
      textAt(stored, 'metadata', name),
    );
    return { secrets, path: `${secrets}/a`, stored, uid, resourceVersion };
  };
  const labelled = (stored: unknown, more: Fields = {}): Fields => ({
    ...fieldsAt(stored),
    metadata: { ...fieldsAt(stored, 'metadata'), labels: { x: 'y' }, ...more },
  });

  describe('create', () => {
    it('answers 201 with the metadata that the server sets', async () => {
      const { stored } = await newSecret({
        uid: 'mine',
        creationTimestamp: '2001-01-01T00:00:00Z',
      });
      assert.match(
        textAt(stored, 'metadata', 'uid'),
        /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
      );
      assert.match(textAt(stored, 'metadata', 'resourceVersion'), /^[1-9]\d*$/);
      assert.match(
        textAt(stored, 'metadata', 'creationTimestamp'),
        /^20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$/,
      );
      assert.deepEqual([at(stored, 'kind'), at(stored, 'apiVersion')], ['Secret', 'v1']);
    });

    it('answers 409 AlreadyExists for a name that is taken', async () => {
      const { secrets } = await newSecret();
      refused(await api().call('POST', secrets, { body: secret('a') }), {
        code: 409,
        reason: 'AlreadyExists',
        message: /^secrets "a" already exists$/,
      });
    });

    it('appends five characters to generateName', async () => {
      const metadata = { name: undefined, generateName: 'gen-' };
      const stored = await api().create(await secretsOfNew(), secret('', { metadata }));
      assert.match(textAt(stored, 'metadata', 'name'), /^gen-[0-9a-z]{5}$/);
    });

    it('answers 404 in a namespace that does not exist', async () => {
      const name = unique('absent');
      const reply = await api().call('POST', paths(name).secrets, { body: secret('a') });
      refused(reply, { ...NOT_FOUND, message: new RegExp(`^namespaces "${name}" not found$`) });
    });

    it('answers 403 in a namespace that is being deleted', async () => {
      const name = await api().namespace();
      const { secrets } = paths(name);
      const kept = await api().create(secrets, secret('a', { metadata: finalized() }));
      assert.ok(kept);
      await api().call('DELETE', `/api/v1/namespaces/${name}`);
      const home = await api().read(`/api/v1/namespaces/${name}`);
      assert.equal(at(home, 'status', 'phase'), 'Terminating');
      const reply = await api().call('POST', secrets, { body: secret('late') });
      const message = /because it is being terminated$/;
      refused(reply, { code: 403, reason: 'Forbidden', message });
      const cause = listAt(reply.body, 'details', 'causes')[0];
      assert.equal(at(cause, 'reason'), 'NamespaceTerminating');
    });
  });

  it('get answers 404 NotFound with group, plural and name for an absent object', async () => {
    const reply = await api().get('/apis/storage.k8s.io/v1/storageclasses/never-made');
    const message = /^storageclasses\.storage\.k8s\.io "never-made" not found$/;
    refused(reply, { ...NOT_FOUND, message });
    assert.deepEqual(at(reply.body, 'details'), {
      name: 'never-made',
      group: 'storage.k8s.io',
      kind: 'storageclasses',
    });
  });

  describe('update', () => {
    it('answers 409 Conflict for a resourceVersion that is not the latest', async () => {
      const { path, stored } = await newSecret();
      await api().call('PUT', path, { body: labelled(stored) });
      const reply = await api().call('PUT', path, { body: labelled(stored, { labels: {} }) });
      const message = /^Operation cannot be fulfilled on secrets "a": the object has been modified/;
      refused(reply, { ...CONFLICT, message });
    });

    it('answers 409 Conflict for the uid of another object', async () => {
      const { path, stored } = await newSecret();
      const reply = await api().call('PUT', path, { body: labelled(stored, { uid: OTHER_UID }) });
      refused(reply, { ...CONFLICT, message: /Precondition failed: UID in precondition/ });
    });
  });

  describe('status', () => {
    const newClaim = async (): Promise<string> => {
      const { claims } = paths(await api().namespace());
      await api().create(claims, { ...claim('a'), status: { phase: 'Bound' } });
      return `${claims}/a`;
    };

    it('of a new claim does not come from the body', async () => {
      assert.deepEqual(at(await api().read(await newClaim()), 'status'), { phase: 'Pending' });
    });

    it('is changed by its own path only, where the spec is not changed', async () => {
      const path = await newClaim();
      const body = { spec: { volumeName: 'v' }, status: { phase: 'Lost' } };
      const changed = await api().patch('merge', `${path}/status`, body);
      assert.equal(at(changed.body, 'spec', 'volumeName'), undefined);
      assert.equal(at(changed.body, 'status', 'phase'), 'Lost');
      const metadata = { labels: { x: 'y' } };
      const kept = await api().patch('merge', path, { metadata, status: { phase: 'Pending' } });
      assert.equal(at(kept.body, 'metadata', 'labels', 'x'), 'y');
      assert.equal(at(kept.body, 'status', 'phase'), 'Lost');
    });

    it('merges conditions by type in a strategic patch', async () => {
      const path = `${await newClaim()}/status`;
      const set = (type: string, status: string) =>
        api().patch('strategic', path, { status: { conditions: [{ type, status }] } });
      await set('one', 'True');
      await set('two', 'True');
      const { body } = await set('one', 'False');
      const found = listAt(body, 'status', 'conditions').map((each) => [
        textAt(each, 'type'),
        textAt(each, 'status'),
      ]);
      assert.deepEqual(Object.fromEntries(found), { one: 'False', two: 'True' });
    });
  });

  describe('delete', () => {
    it('removes an object without finalizers and answers a Status with its uid', async () => {
      const { path, uid } = await newSecret();
      const { status, body } = await api().call('DELETE', path);
      assert.deepEqual([status, at(body, 'kind'), at(body, 'status')], [200, 'Status', 'Success']);
      assert.deepEqual(at(body, 'details'), { name: 'a', kind: 'secrets', uid });
      refused(await api().get(path), NOT_FOUND);
    });

    it('marks an object with finalizers as deleted, once', async () => {
      const { path } = await newSecret(finalized());
      const { status, body } = await api().call('DELETE', path);
      assert.deepEqual([status, at(body, 'kind')], [200, 'Secret']);
      assert.match(textAt(body, 'metadata', 'deletionTimestamp'), /^\d{4}-.*Z$/);
      assert.deepEqual((await api().call('DELETE', path)).body, body);
    });

    it('is completed by the patch that removes the last finalizer', async () => {
      const { path } = await newSecret(finalized());
      await api().call('DELETE', path);
      const reply = await api().patch('strategic', path, { metadata: { finalizers: null } });
      assert.equal(reply.status, 200, reply.text);
      refused(await api().get(path), NOT_FOUND);
    });

    it('allows no new finalizer', async () => {
      const { path } = await newSecret(finalized());
      await api().call('DELETE', path);
      const metadata = { finalizers: [FINALIZER, 'sutler.dev/late'] };
      refused(
        await api().patch('merge', path, { metadata }),
        invalid(/no new finalizers can be added if the object is being deleted/),
      );
    });

    it('blocks the name while finalizers keep the object', async () => {
      const name = unique('pv');
      await api().create(VOLUMES, volume(name, { metadata: finalized() }));
      await api().call('DELETE', `${VOLUMES}/${name}`);
      const reply = await api().call('POST', VOLUMES, { body: volume(name) });
      const message = /^object is being deleted: persistentvolumes ".*" already exists$/;
      refused(reply, { code: 409, reason: 'AlreadyExists', message });
    });

    it('is refused for an object with another uid or resourceVersion', async () => {
      const { path, resourceVersion } = await newSecret();
      await api().patch('merge', path, { metadata: { labels: { x: 'y' } } });
      for (const preconditions of [{ uid: OTHER_UID }, { resourceVersion }]) {
        const body = { apiVersion: 'v1', kind: 'DeleteOptions', preconditions };
        refused(await api().call('DELETE', path, { body }), CONFLICT);
      }
      await api().read(path);
    });
  });
}

function finalized() {
  return { finalizers: [FINALIZER] };
}
