import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { at, unique, type Connection, type Fields } from './connection.ts';
import { VOLUMES, paths, secret, volume } from './objects.ts';

const OURS = 'external-provisioner.volume.kubernetes.io/finalizer';
const PV_PROTECTION = 'kubernetes.io/pv-protection';
const ONE = 'sutler.dev/one';

/** Patches in the forms that provisioners send. */
export function describePatches(api: () => Connection): void {
  const newSecret = async (metadata: Fields): Promise<string> => {
    const { secrets } = paths(await api().namespace());
    await api().create(secrets, secret('a', { metadata }));
    return `${secrets}/a`;
  };
  const patched = async (
    type: Parameters<Connection['patch']>[0],
    path: string,
    body: unknown,
  ): Promise<unknown> => {
    const reply = await api().patch(type, path, body);
    assert.equal(reply.status, 200, reply.text);
    return at(reply.body, 'metadata');
  };

  describe('a merge patch', () => {
    it('sets members, removes those that are null and keeps the rest', async () => {
      const path = await newSecret({ annotations: { keep: '1', change: '1', drop: '1' } });
      const annotations = { change: '2', drop: null, add: '3' };
      const metadata = await patched('merge', path, { metadata: { annotations } });
      assert.deepEqual(at(metadata, 'annotations'), { keep: '1', change: '2', add: '3' });
    });
  });

  it('a JSON patch adds, replaces and removes', async () => {
    const path = await newSecret({ labels: { change: '1', drop: '1' } });
    const metadata = await patched('json', path, [
      { op: 'add', path: '/metadata/labels/add~1it', value: '3' },
      { op: 'test', path: '/metadata/labels/change', value: '1' },
      { op: 'replace', path: '/metadata/labels/change', value: '2' },
      { op: 'remove', path: '/metadata/labels/drop' },
    ]);
    assert.deepEqual(at(metadata, 'labels'), { 'add/it': '3', change: '2' });
  });

  // The same patches as in sig-storage-lib-external-provisioner controller/controller.go
  // patchPersistentVolumeWithFinalizers, since both must be able to work on the same volume.
  describe('a strategic merge patch of finalizers', () => {
    for (const [title, before, patch, after] of [
      ['creates the list', undefined, { finalizers: [OURS] }, [OURS]],
      [
        'removes one of several',
        [ONE, OURS],
        { '$deleteFromPrimitiveList/finalizers': [OURS], '$setElementOrder/finalizers': [ONE] },
        [ONE],
      ],
      [
        'succeeds if the element to remove is absent',
        [ONE],
        { '$deleteFromPrimitiveList/finalizers': [OURS] },
        [ONE],
      ],
      ['removes the last one', [OURS], { finalizers: null }, undefined],
    ] as const)
      it(title, async () => {
        const path = await newSecret({ finalizers: before });
        const metadata = await patched('strategic', path, { metadata: patch });
        assert.deepEqual(at(metadata, 'finalizers'), after);
      });

    it('adds to a list', async () => {
      const name = unique('pv');
      await api().create(VOLUMES, volume(name));
      const order = { '$setElementOrder/finalizers': [PV_PROTECTION, OURS] };
      const patch = { metadata: { ...order, finalizers: [OURS] } };
      const metadata = await patched('strategic', `${VOLUMES}/${name}`, patch);
      assert.deepEqual(at(metadata, 'finalizers'), [PV_PROTECTION, OURS]);
    });
  });
}
