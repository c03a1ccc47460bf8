import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  at,
  namesOf,
  refused,
  textAt,
  unique,
  type Connection,
  type Fields,
  invalid,
} from './connection.ts';
import { VOLUMES, paths, secret, volume } from './objects.ts';

const FINALIZER = 'sutler.dev/one';

/** Deletion of objects with and without finalizers, with preconditions, and of collections. */
export function describeDeletion(api: () => Connection): void {
  const createSecret = async (
    metadata: Fields = {},
  ): Promise<{ readonly path: string; readonly uid: string; readonly resourceVersion: string }> => {
    const { secrets } = paths(await api().namespace());
    const object = await api().create(secrets, secret('a', { metadata }));
    return {
      path: `${secrets}/a`,
      uid: textAt(object, 'metadata', 'uid'),
      resourceVersion: textAt(object, 'metadata', 'resourceVersion'),
    };
  };
  const deleteWith = (path: string, preconditions: Fields) =>
    api().call('DELETE', path, {
      body: { apiVersion: 'v1', kind: 'DeleteOptions', preconditions },
    });

  describe('delete', () => {
    it('removes an object without finalizers and answers a Status with its uid', async () => {
      const { path, uid } = await createSecret();
      const reply = await api().call('DELETE', path);
      assert.equal(reply.status, 200);
      assert.equal(at(reply.body, 'kind'), 'Status');
      assert.equal(at(reply.body, 'status'), 'Success');
      assert.deepEqual(at(reply.body, 'details'), { name: 'a', kind: 'secrets', uid });
      refused(await api().get(path), { code: 404, reason: 'NotFound' });
    });

    it('answers 404 for an object that does not exist', async () => {
      const { secrets } = paths(await api().namespace());
      refused(await api().call('DELETE', `${secrets}/absent`), { code: 404, reason: 'NotFound' });
    });

    it('allows a new object with the same name and another uid', async () => {
      const { path, uid } = await createSecret();
      await api().call('DELETE', path);
      const again = await api().create(path.slice(0, path.lastIndexOf('/')), secret('a'));
      assert.notEqual(at(again, 'metadata', 'uid'), uid);
    });
  });

  describe('an object with finalizers', () => {
    it('gets a deletionTimestamp by delete, which answers the object', async () => {
      const { path } = await createSecret({ finalizers: [FINALIZER] });
      const reply = await api().call('DELETE', path);
      assert.equal(reply.status, 200);
      assert.equal(at(reply.body, 'kind'), 'Secret');
      assert.match(
        textAt(reply.body, 'metadata', 'deletionTimestamp'),
        /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/,
      );
      assert.equal(at(reply.body, 'metadata', 'deletionGracePeriodSeconds'), 0);
      assert.equal(
        at(await api().read(path), 'metadata', 'deletionTimestamp'),
        at(reply.body, 'metadata', 'deletionTimestamp'),
      );
    });

    it('is not changed by a second delete', async () => {
      const { path } = await createSecret({ finalizers: [FINALIZER] });
      const first = await api().call('DELETE', path);
      const second = await api().call('DELETE', path);
      assert.equal(second.status, 200);
      assert.deepEqual(
        at(second.body, 'metadata', 'deletionTimestamp'),
        at(first.body, 'metadata', 'deletionTimestamp'),
      );
      assert.deepEqual(
        at(second.body, 'metadata', 'resourceVersion'),
        at(first.body, 'metadata', 'resourceVersion'),
      );
    });

    it('exists while it has a finalizer', async () => {
      const { path } = await createSecret({ finalizers: [FINALIZER, 'sutler.dev/two'] });
      await api().call('DELETE', path);
      await api().patch('merge', path, { metadata: { finalizers: [FINALIZER] } });
      assert.deepEqual(at(await api().read(path), 'metadata', 'finalizers'), [FINALIZER]);
    });

    it('is removed by the patch that removes the last one', async () => {
      const { path } = await createSecret({ finalizers: [FINALIZER] });
      await api().call('DELETE', path);
      const reply = await api().patch('strategic', path, { metadata: { finalizers: null } });
      assert.equal(reply.status, 200, reply.text);
      assert.equal(at(reply.body, 'metadata', 'finalizers'), undefined);
      refused(await api().get(path), { code: 404, reason: 'NotFound' });
    });

    it('can be changed while it is being deleted', async () => {
      const { path } = await createSecret({ finalizers: [FINALIZER] });
      await api().call('DELETE', path);
      const reply = await api().patch('merge', path, { metadata: { annotations: { x: 'y' } } });
      assert.equal(at(reply.body, 'metadata', 'annotations', 'x'), 'y');
    });

    it('accepts no new finalizer while it is being deleted', async () => {
      const { path } = await createSecret({ finalizers: [FINALIZER] });
      await api().call('DELETE', path);
      const reply = await api().patch('merge', path, {
        metadata: { finalizers: [FINALIZER, 'sutler.dev/late'] },
      });
      refused(reply, invalid(/no new finalizers can be added if the object is being deleted/));
    });

    it('keeps its deletionTimestamp when a patch removes it', async () => {
      const { path } = await createSecret({ finalizers: [FINALIZER] });
      const { body } = await api().call('DELETE', path);
      await api().patch('merge', path, { metadata: { deletionTimestamp: null } });
      assert.equal(
        at(await api().read(path), 'metadata', 'deletionTimestamp'),
        textAt(body, 'metadata', 'deletionTimestamp'),
      );
    });

    it('blocks its name: create answers that it is being deleted', async () => {
      const name = unique('pv');
      await api().create(VOLUMES, volume(name, { metadata: { finalizers: [FINALIZER] } }));
      await api().call('DELETE', `${VOLUMES}/${name}`);
      const reply = await api().call('POST', VOLUMES, { body: volume(name) });
      const message = new RegExp(
        `^object is being deleted: persistentvolumes "${name}" already exists$`,
      );
      refused(reply, { code: 409, reason: 'AlreadyExists', message });
    });

    it('is refused if a finalizer is not a qualified name', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().call('POST', secrets, {
        body: secret('a', { metadata: { finalizers: ['not qualified'] } }),
      });
      refused(reply, invalid(/metadata\.finalizers/));
    });
  });

  describe('preconditions of a delete', () => {
    it('refuse to delete an object with another uid', async () => {
      const { path, uid } = await createSecret();
      const reply = await deleteWith(path, { uid: '00000000-0000-0000-0000-000000000000' });
      refused(reply, {
        code: 409,
        reason: 'Conflict',
        message: /UID in (the )?precondition/,
      });
      assert.equal(at(await api().read(path), 'metadata', 'uid'), uid);
    });

    it('refuse to delete an object with another resourceVersion', async () => {
      const { path, resourceVersion } = await createSecret();
      await api().patch('merge', path, { metadata: { labels: { x: 'y' } } });
      const reply = await deleteWith(path, { resourceVersion });
      refused(reply, {
        code: 409,
        reason: 'Conflict',
        message: /ResourceVersion in (the )?precondition/,
      });
      await api().read(path);
    });

    it('refuse also for an object that is being deleted', async () => {
      const { path } = await createSecret({ finalizers: [FINALIZER] });
      await api().call('DELETE', path);
      refused(await deleteWith(path, { uid: '00000000-0000-0000-0000-000000000000' }), {
        code: 409,
        reason: 'Conflict',
      });
    });

    it('allow the deletion if uid and resourceVersion match', async () => {
      const { path, uid, resourceVersion } = await createSecret();
      assert.equal((await deleteWith(path, { uid, resourceVersion })).status, 200);
      refused(await api().get(path), { code: 404, reason: 'NotFound' });
    });
  });

  describe('deletecollection', () => {
    it('removes only objects that match the selector', async () => {
      const { secrets } = paths(await api().namespace());
      for (const name of ['a', 'b', 'c'])
        await api().create(
          secrets,
          secret(name, { metadata: { labels: { go: String(name !== 'b') } } }),
        );
      const reply = await api().call('DELETE', secrets, { query: { labelSelector: 'go=true' } });
      assert.equal(reply.status, 200, reply.text);
      assert.deepEqual(namesOf(await api().read(secrets)), ['b']);
    });

    it('removes objects of one namespace only', async () => {
      const [here, there] = [
        paths(await api().namespace()).secrets,
        paths(await api().namespace()).secrets,
      ];
      for (const secrets of [here, there]) await api().create(secrets, secret('a'));
      await api().call('DELETE', here);
      assert.deepEqual(namesOf(await api().read(here)), []);
      assert.deepEqual(namesOf(await api().read(there)), ['a']);
    });
  });
}
