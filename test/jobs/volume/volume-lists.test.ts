import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { VolumeLists } from '#src/jobs/volume/volume-lists.ts';
import type { ListOptions, ListPage } from '#src/kube/client.ts';
import type { Volume } from '#src/kube/objects.ts';
import type { Resource } from '#src/kube/resources.ts';
import type { VolumeIdentity } from '#src/volumes/handles.ts';

const volume = (name: string, volumeHandle: string): Volume => ({
  metadata: { name, uid: name, resourceVersion: '1' },
  spec: { csi: { driver: 'd.example', volumeHandle } },
});
const identity = (id: string): VolumeIdentity => ({ driver: 'd.example', id, form: 'csi' });

interface Bed {
  stored: Volume[];
  /** How many lists were begun. */
  begun: number;
  failure: Error | undefined;
  readonly lists: VolumeLists;
}

/** Lists of `stored`, a PV on each page. */
function openLists() {
  const bed: Bed = {
    stored: [volume('one', 'h'), volume('two', 'other')],
    begun: 0,
    failure: undefined,
    lists: new VolumeLists({
      list<T>(_: Resource, { continueToken }: ListOptions = {}) {
        if (continueToken === undefined) bed.begun += 1;
        if (bed.failure !== undefined) return Promise.reject(bed.failure);
        const at = Number(continueToken ?? 0);
        const items = bed.stored.slice(at, at + 1) as T[];
        const page: ListPage<T> = { items, resourceVersion: '1' };
        const next = String(at + 1);
        return Promise.resolve(
          at + 1 < bed.stored.length ? { ...page, continueToken: next } : page,
        );
      },
    }),
  };
  return bed;
}

describe('lists of all volumes', () => {
  it('tell the names of the PVs of each handle', async () => {
    const bed = openLists();
    bed.stored.push(volume('three', 'h'));
    assert.deepEqual(await bed.lists.sharersOf(identity('h')), ['one', 'three']);
    assert.deepEqual(await bed.lists.sharersOf(identity('nobody')), []);
    assert.equal(bed.begun, 1);
  });

  it('are shared by those that ask at the same time', async () => {
    const bed = openLists();
    await Promise.all(['h', 'other'].map((id) => bed.lists.sharersOf(identity(id))));
    assert.equal(bed.begun, 1);
  });

  it('are made again after 5 s', async (t: TestContext) => {
    const bed = openLists();
    await bed.lists.sharersOf(identity('h'));
    const now = performance.now();
    t.mock.method(performance, 'now', () => now + 5_001);
    bed.stored = [];
    assert.deepEqual(await bed.lists.sharersOf(identity('h')), []);
    assert.equal(bed.begun, 2);
  });

  it('tell nothing when a page could not be read', async () => {
    const bed = openLists();
    bed.failure = new Error('no route');
    for (const _ of [1, 2]) await assert.rejects(bed.lists.sharersOf(identity('h')), /no route/);
  });
});
