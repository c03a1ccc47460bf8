import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { VolumeLists } from '#src/jobs/volume/volume-lists.ts';
import type { ListOptions, ListPage } from '#src/kube/client.ts';
import type { Volume } from '#src/kube/objects.ts';
import type { Resource } from '#src/kube/resources.ts';

const volume = (name: string, volumeHandle: string): Volume => ({
  metadata: { name, uid: name, resourceVersion: '1' },
  spec: { csi: { driver: 'd.example', volumeHandle } },
});

/** Lists of `stored`, a PV on each page. */
function openLists() {
  const bed = {
    stored: [volume('one', 'h'), volume('two', 'other'), volume('three', 'h')],
    /** How many lists were begun. */
    begun: 0,
    failure: undefined as Error | undefined,
    sharersOf: (id: string) => lists.sharersOf({ driver: 'd.example', id, form: 'csi' }),
  };
  const lists = new VolumeLists({
    list<T>(_: Resource, { continueToken }: ListOptions = {}) {
      if (continueToken === undefined) bed.begun += 1;
      if (bed.failure !== undefined) return Promise.reject(bed.failure);
      const at = Number(continueToken ?? 0);
      const items = bed.stored.slice(at, at + 1) as T[];
      const page: ListPage<T> = { items, resourceVersion: '1' };
      const isLast = at + 1 >= bed.stored.length;
      return Promise.resolve(isLast ? page : { ...page, continueToken: String(at + 1) });
    },
  });
  return bed;
}

describe('lists of all volumes', () => {
  it('tell the names of the PVs of each handle, from all pages', async () => {
    const bed = openLists();
    const found = await Promise.all(['h', 'nobody'].map((id) => bed.sharersOf(id)));
    assert.deepEqual(found, [['one', 'three'], []]);
    assert.equal(bed.begun, 1, 'shared by those that ask at the same time');
  });

  it('are made again after 5 s', async (t: TestContext) => {
    const bed = openLists();
    await bed.sharersOf('h');
    const now = performance.now();
    t.mock.method(performance, 'now', () => now + 5_001);
    bed.stored = [];
    assert.deepEqual(await bed.sharersOf('h'), []);
  });

  it('tell nothing when a page could not be read', async () => {
    const bed = openLists();
    bed.failure = new Error('no route');
    for (const _ of [1, 2]) await assert.rejects(bed.sharersOf('h'), /no route/);
  });
});
