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
} from './connection.ts';
import { VOLUMES, paths, secret, volume } from './objects.ts';

const HELD = 'sutler.dev/held';

/** Deleting: at once, behind finalizers, under preconditions, in bulk. */
export function describeDeletion(api: () => Connection): void {
  const stored = async (
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
    it('removes an object without finalizers at once, and answers a Status with its uid', async () => {
      const { path, uid } = await stored();
      const reply = await api().call('DELETE', path);
      assert.equal(reply.status, 200);
      assert.equal(at(reply.body, 'kind'), 'Status');
      assert.equal(at(reply.body, 'status'), 'Success');
      assert.deepEqual(at(reply.body, 'details'), { name: 'a', kind: 'secrets', uid });
      refused(await api().get(path), { code: 404, reason: 'NotFound' });
    });

    it('answers 404 for an object that is not there', async () => {
      const { secrets } = paths(await api().namespace());
      refused(await api().call('DELETE', `${secrets}/absent`), { code: 404, reason: 'NotFound' });
    });

    it('gives the next object of that name another uid', async () => {
      const { path, uid } = await stored();
      await api().call('DELETE', path);
      const again = await api().create(path.slice(0, path.lastIndexOf('/')), secret('a'));
      assert.notEqual(at(again, 'metadata', 'uid'), uid);
    });
  });

  describe('an object with finalizers', () => {
    it('is marked by delete, and answered as an object', async () => {
      const { path } = await stored({ finalizers: [HELD] });
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

    it('keeps its deletionTimestamp and its resourceVersion when it is deleted again', async () => {
      const { path } = await stored({ finalizers: [HELD] });
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

    it('stays while one of its finalizers is left', async () => {
      const { path } = await stored({ finalizers: [HELD, 'sutler.dev/two'] });
      await api().call('DELETE', path);
      await api().patch('merge', path, { metadata: { finalizers: [HELD] } });
      assert.deepEqual(at(await api().read(path), 'metadata', 'finalizers'), [HELD]);
    });

    it('is gone with the last one, in the answer to that very patch', async () => {
      const { path } = await stored({ finalizers: [HELD] });
      await api().call('DELETE', path);
      const reply = await api().patch('strategic', path, { metadata: { finalizers: null } });
      assert.equal(reply.status, 200, reply.text);
      assert.equal(at(reply.body, 'metadata', 'finalizers'), undefined);
      refused(await api().get(path), { code: 404, reason: 'NotFound' });
    });

    it('can still be changed while it is going away', async () => {
      const { path } = await stored({ finalizers: [HELD] });
      await api().call('DELETE', path);
      const reply = await api().patch('merge', path, { metadata: { annotations: { x: 'y' } } });
      assert.equal(at(reply.body, 'metadata', 'annotations', 'x'), 'y');
    });

    it('takes no new finalizer while it is going away', async () => {
      const { path } = await stored({ finalizers: [HELD] });
      await api().call('DELETE', path);
      const reply = await api().patch('merge', path, {
        metadata: { finalizers: [HELD, 'sutler.dev/late'] },
      });
      refused(reply, {
        code: 422,
        reason: 'Invalid',
        message: /no new finalizers can be added if the object is being deleted/,
      });
    });

    it('cannot be brought back', async () => {
      const { path } = await stored({ finalizers: [HELD] });
      const { body } = await api().call('DELETE', path);
      await api().patch('merge', path, { metadata: { deletionTimestamp: null } });
      assert.equal(
        at(await api().read(path), 'metadata', 'deletionTimestamp'),
        textAt(body, 'metadata', 'deletionTimestamp'),
      );
    });

    it('keeps its name: a create says that it is being deleted', async () => {
      const name = unique('pv');
      await api().create(VOLUMES, volume(name, { metadata: { finalizers: [HELD] } }));
      await api().call('DELETE', `${VOLUMES}/${name}`);
      const reply = await api().call('POST', VOLUMES, { body: volume(name) });
      const message = new RegExp(
        `^object is being deleted: persistentvolumes "${name}" already exists$`,
      );
      refused(reply, { code: 409, reason: 'AlreadyExists', message });
    });

    it('must have a qualified name for each of them', async () => {
      const { secrets } = paths(await api().namespace());
      const reply = await api().call('POST', secrets, {
        body: secret('a', { metadata: { finalizers: ['not qualified'] } }),
      });
      refused(reply, { code: 422, reason: 'Invalid', message: /metadata\.finalizers/ });
    });
  });

  describe('preconditions of a delete', () => {
    it('protect an object with another uid', async () => {
      const { path, uid } = await stored();
      const reply = await deleteWith(path, { uid: '00000000-0000-0000-0000-000000000000' });
      refused(reply, {
        code: 409,
        reason: 'Conflict',
        message: /UID in (the )?precondition/,
      });
      assert.equal(at(await api().read(path), 'metadata', 'uid'), uid);
    });

    it('protect an object that was changed meanwhile', async () => {
      const { path, resourceVersion } = await stored();
      await api().patch('merge', path, { metadata: { labels: { x: 'y' } } });
      const reply = await deleteWith(path, { resourceVersion });
      refused(reply, {
        code: 409,
        reason: 'Conflict',
        message: /ResourceVersion in (the )?precondition/,
      });
      await api().read(path);
    });

    it('protect an object that is going away already', async () => {
      const { path } = await stored({ finalizers: [HELD] });
      await api().call('DELETE', path);
      refused(await deleteWith(path, { uid: '00000000-0000-0000-0000-000000000000' }), {
        code: 409,
        reason: 'Conflict',
      });
    });

    it('let a delete pass that names the right object', async () => {
      const { path, uid, resourceVersion } = await stored();
      assert.equal((await deleteWith(path, { uid, resourceVersion })).status, 200);
      refused(await api().get(path), { code: 404, reason: 'NotFound' });
    });
  });

  describe('deletecollection', () => {
    it('removes what the selector names, and nothing else', async () => {
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

    it('removes all of one namespace only', async () => {
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
