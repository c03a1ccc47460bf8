import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  at,
  fieldsAt,
  refused,
  textsAt,
  unique,
  type Connection,
  type Fields,
  type Reply,
  invalid,
} from './connection.ts';
import { VOLUMES, paths, secret, volume } from './objects.ts';

const OURS = 'external-provisioner.volume.kubernetes.io/finalizer';
const PV_PROTECTION = 'kubernetes.io/pv-protection';

/** Patches in the forms that provisioners send. */
export function describePatches(api: () => Connection): void {
  const createSecret = async (metadata: Fields = {}, fields: Fields = {}): Promise<string> => {
    const { secrets } = paths(await api().namespace());
    await api().create(secrets, secret('a', { metadata, fields }));
    return `${secrets}/a`;
  };

  describe('merge patch', () => {
    it('sets members, removes those that are null and keeps the rest', async () => {
      const path = await createSecret({ annotations: { keep: '1', change: '1', drop: '1' } });
      const reply = await api().patch('merge', path, {
        metadata: { annotations: { change: '2', drop: null, add: '3' } },
      });
      assert.deepEqual(at(reply.body, 'metadata', 'annotations'), {
        keep: '1',
        change: '2',
        add: '3',
      });
    });

    it('replaces a list as a whole', async () => {
      const path = await createSecret({ finalizers: ['sutler.dev/one', 'sutler.dev/two'] });
      assert.deepEqual(
        finalizers(
          await api().patch('merge', path, { metadata: { finalizers: ['sutler.dev/three'] } }),
        ),
        ['sutler.dev/three'],
      );
    });

    it('keeps the resourceVersion if it changes nothing', async () => {
      const path = await createSecret({ labels: { x: 'y' } });
      const before = at(await api().read(path), 'metadata', 'resourceVersion');
      const reply = await api().patch('merge', path, { metadata: { labels: { x: 'y' } } });
      assert.equal(at(reply.body, 'metadata', 'resourceVersion'), before);
    });

    it('answers 409 Conflict if it has an old resourceVersion', async () => {
      const path = await createSecret();
      const { resourceVersion } = fieldsAt(await api().read(path), 'metadata');
      await api().patch('merge', path, { metadata: { labels: { x: 'y' } } });
      const reply = await api().patch('merge', path, {
        metadata: { resourceVersion, labels: { x: 'z' } },
      });
      refused(reply, { code: 409, reason: 'Conflict', message: /the object has been modified/ });
    });

    it('answers 422 Invalid if it has another uid', async () => {
      const path = await createSecret();
      const reply = await api().patch('merge', path, {
        metadata: { uid: '00000000-0000-0000-0000-000000000000', labels: { x: 'z' } },
      });
      refused(reply, invalid(/metadata\.uid: Invalid value: .*: field is immutable/));
    });

    it('answers 404 for an object that does not exist', async () => {
      const { secrets } = paths(await api().namespace());
      refused(await api().patch('merge', `${secrets}/absent`, {}), {
        code: 404,
        reason: 'NotFound',
      });
    });

    it('answers 400 if it is not JSON', async () => {
      const path = await createSecret();
      const reply = await api().call('PATCH', path, {
        body: '{',
        contentType: 'application/merge-patch+json',
      });
      refused(reply, { code: 400, reason: 'BadRequest' });
    });
  });

  describe('JSON patch', () => {
    it('adds, replaces and removes', async () => {
      const path = await createSecret({ labels: { change: '1', drop: '1' } });
      const reply = await api().patch('json', path, [
        { op: 'add', path: '/metadata/labels/add', value: '3' },
        { op: 'replace', path: '/metadata/labels/change', value: '2' },
        { op: 'remove', path: '/metadata/labels/drop' },
      ]);
      assert.deepEqual(at(reply.body, 'metadata', 'labels'), { add: '3', change: '2' });
    });

    it('decodes ~1 as a slash', async () => {
      const path = await createSecret({ annotations: { 'sutler.dev/x': '1' } });
      const reply = await api().patch('json', path, [
        { op: 'replace', path: '/metadata/annotations/sutler.dev~1x', value: '2' },
      ]);
      assert.equal(at(reply.body, 'metadata', 'annotations', 'sutler.dev/x'), '2');
    });

    it('inserts into a list, and appends with -', async () => {
      const path = await createSecret({ finalizers: ['sutler.dev/two'] });
      const reply = await api().patch('json', path, [
        { op: 'add', path: '/metadata/finalizers/0', value: 'sutler.dev/one' },
        { op: 'add', path: '/metadata/finalizers/-', value: 'sutler.dev/three' },
      ]);
      assert.deepEqual(finalizers(reply), ['sutler.dev/one', 'sutler.dev/two', 'sutler.dev/three']);
    });

    it('changes nothing if a test fails, and answers 422 without the cause', async () => {
      const path = await createSecret({ finalizers: ['sutler.dev/one'] });
      const reply = await api().patch('json', path, [
        { op: 'add', path: '/metadata/labels', value: { x: 'y' } },
        { op: 'test', path: '/metadata/finalizers/0', value: 'sutler.dev/other' },
        { op: 'remove', path: '/metadata/finalizers/0' },
      ]);
      refused(reply, invalid(/^the server rejected our request due to an error in our request$/));
      const after = await api().read(path);
      assert.equal(at(after, 'metadata', 'labels'), undefined);
      assert.deepEqual(at(after, 'metadata', 'finalizers'), ['sutler.dev/one']);
    });

    it('continues after a test that succeeds', async () => {
      const path = await createSecret({ finalizers: ['sutler.dev/one', 'sutler.dev/two'] });
      const reply = await api().patch('json', path, [
        { op: 'test', path: '/metadata/finalizers/0', value: 'sutler.dev/one' },
        { op: 'remove', path: '/metadata/finalizers/0' },
      ]);
      assert.deepEqual(finalizers(reply), ['sutler.dev/two']);
    });

    it('answers 422 for the removal of an absent member', async () => {
      const path = await createSecret();
      refused(await api().patch('json', path, [{ op: 'remove', path: '/metadata/labels/x' }]), {
        code: 422,
        reason: 'Invalid',
      });
    });
  });

  // The same patches as in sig-storage-lib-external-provisioner controller/controller.go
  // patchPersistentVolumeWithFinalizers, since both must be able to work on the same volume.
  describe('strategic merge patch of finalizers', () => {
    it('creates the list: finalizers [f] without earlier ones', async () => {
      const path = await createSecret();
      assert.deepEqual(
        finalizers(await api().patch('strategic', path, { metadata: { finalizers: [OURS] } })),
        [OURS],
      );
    });

    it('adds to a list: finalizers [f] with $setElementOrder', async () => {
      const name = unique('pv');
      await api().create(VOLUMES, volume(name));
      const patch = {
        metadata: { '$setElementOrder/finalizers': [PV_PROTECTION, OURS], finalizers: [OURS] },
      };
      assert.deepEqual(finalizers(await api().patch('strategic', `${VOLUMES}/${name}`, patch)), [
        PV_PROTECTION,
        OURS,
      ]);
    });

    it('keeps an element that the patch does not list', async () => {
      const path = await createSecret({ finalizers: ['sutler.dev/one', 'sutler.dev/unseen'] });
      const patch = {
        metadata: { '$setElementOrder/finalizers': ['sutler.dev/one', OURS], finalizers: [OURS] },
      };
      const { body: after } = await api().patch('strategic', path, patch);
      assert.deepEqual(textsAt(after, 'metadata', 'finalizers').toSorted(), [
        OURS,
        'sutler.dev/one',
        'sutler.dev/unseen',
      ]);
    });

    it('adds an element once if it is sent twice', async () => {
      const path = await createSecret({ finalizers: ['sutler.dev/one'] });
      const patch = {
        metadata: { '$setElementOrder/finalizers': ['sutler.dev/one', OURS], finalizers: [OURS] },
      };
      await api().patch('strategic', path, patch);
      assert.deepEqual(finalizers(await api().patch('strategic', path, patch)), [
        'sutler.dev/one',
        OURS,
      ]);
    });

    it('removes one of several: $deleteFromPrimitiveList with $setElementOrder', async () => {
      const path = await createSecret({ finalizers: ['sutler.dev/one', OURS] });
      const patch = {
        metadata: {
          '$deleteFromPrimitiveList/finalizers': [OURS],
          '$setElementOrder/finalizers': ['sutler.dev/one'],
        },
      };
      assert.deepEqual(finalizers(await api().patch('strategic', path, patch)), ['sutler.dev/one']);
    });

    it('succeeds if the element to remove is absent', async () => {
      const path = await createSecret({ finalizers: ['sutler.dev/one'] });
      const patch = { metadata: { '$deleteFromPrimitiveList/finalizers': [OURS] } };
      assert.deepEqual(finalizers(await api().patch('strategic', path, patch)), ['sutler.dev/one']);
    });

    it('removes the last one: null', async () => {
      const path = await createSecret({ finalizers: [OURS] });
      assert.equal(
        finalizers(await api().patch('strategic', path, { metadata: { finalizers: null } })),
        undefined,
      );
    });

    it('merges maps as a merge patch does', async () => {
      const path = await createSecret({ annotations: { keep: '1', drop: '1' } });
      const reply = await api().patch('strategic', path, {
        metadata: { annotations: { drop: null, add: '2' } },
      });
      assert.deepEqual(at(reply.body, 'metadata', 'annotations'), { keep: '1', add: '2' });
    });
  });

  describe('a patch', () => {
    it('of an unknown type is answered with 415', async () => {
      const path = await createSecret();
      const reply = await api().call('PATCH', path, { body: {}, contentType: 'application/json' });
      refused(reply, { code: 415, reason: 'UnsupportedMediaType' });
    });

    it('cannot change the name', async () => {
      const path = await createSecret();
      const reply = await api().patch('merge', path, { metadata: { name: 'b' } });
      refused(reply, { code: 400, reason: 'BadRequest' });
    });

    it('is refused completely if the result is invalid', async () => {
      const path = await createSecret();
      const reply = await api().patch('merge', path, {
        metadata: { labels: { x: 'not a label', y: 'z' } },
      });
      refused(reply, { code: 422, reason: 'Invalid' });
      assert.equal(at(await api().read(path), 'metadata', 'labels'), undefined);
    });

    it('of one field keeps what concurrent patches write', async () => {
      const path = await createSecret();
      await Promise.all(
        ['a', 'b', 'c', 'd'].map((key) =>
          api().patch('merge', path, { metadata: { labels: { [key]: '1' } } }),
        ),
      );
      assert.deepEqual(at(await api().read(path), 'metadata', 'labels'), {
        a: '1',
        b: '1',
        c: '1',
        d: '1',
      });
    });
  });
}

function finalizers(reply: Reply): unknown {
  assert.equal(reply.status, 200, reply.text);
  return at(reply.body, 'metadata', 'finalizers');
}
