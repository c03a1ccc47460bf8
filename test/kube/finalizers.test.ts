import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { addFinalizer, hasFinalizer, removeFinalizer } from '#src/kube/finalizers.ts';
import type { KubeClient, Patch } from '#src/kube/client.ts';
import type { KubeObject, ObjectMeta } from '#src/kube/objects.ts';
import { claims, snapshots, volumes } from '#src/kube/resources.ts';

const OURS = 'example.com/ours';
const OTHER = 'example.com/other';

/** Records the writes that are sent. */
function recordWrites(): { kube: Pick<KubeClient, 'patch' | 'update'>; sent: unknown[] } {
  const sent: unknown[] = [];
  return {
    sent,
    kube: {
      update: (resource, ref, object) => {
        sent.push([resource.plural, ref, 'update', object]);
        return Promise.resolve({ updated: true } as never);
      },
      patch: (resource, ref, change) => {
        sent.push([resource.plural, ref, change.type, change.body]);
        return Promise.resolve({ patched: true } as never);
      },
    },
  };
}

const withFinalizers = (finalizers: readonly string[], namespace?: string): KubeObject => ({
  metadata: {
    name: 'x',
    ...(namespace === undefined ? {} : { namespace }),
    uid: 'u',
    resourceVersion: '7',
    finalizers,
  },
});

/** What a patch says of the finalizers of a PV; undefined if none is sent. */
async function patchOf(
  change: typeof addFinalizer | typeof removeFinalizer,
  metadata: Partial<ObjectMeta>,
): Promise<unknown> {
  let patch: unknown;
  const kube = {
    patch: (_resource: unknown, _ref: unknown, { body }: Patch) => {
      ({ metadata: patch } = body as { readonly metadata: unknown });
      return Promise.resolve({} as never);
    },
    update: () => Promise.reject(new Error('PVs are patched')),
  };
  const object = { metadata: { name: 'x', uid: 'u', resourceVersion: '7', ...metadata } };
  await change(kube, { resource: volumes, object, finalizer: OURS });
  return patch;
}

describe('hasFinalizer', () => {
  it('is true for an entry of the list only', () => {
    const object = { metadata: { finalizers: ['a', OURS] } };
    assert.equal(hasFinalizer(object, OURS), true);
    assert.equal(hasFinalizer(object, 'our'), false);
    assert.equal(hasFinalizer({ metadata: {} }, OURS), false);
  });
});

describe('addFinalizer', () => {
  it('changes nothing if the object has the finalizer (P-86)', async () =>
    assert.equal(await patchOf(addFinalizer, { finalizers: ['a', OURS, 'b'] }), undefined));

  it('creates a missing list (P-87)', async () =>
    assert.deepEqual(await patchOf(addFinalizer, {}), { uid: 'u', finalizers: [OURS] }));

  it('fills an empty list (P-88)', async () =>
    assert.deepEqual(await patchOf(addFinalizer, { finalizers: [] }), {
      uid: 'u',
      finalizers: [OURS],
    }));

  it('appends to a list, and sends only our finalizer and the order (P-89)', async () => {
    const finalizers = ['a', 'b'];
    assert.deepEqual(await patchOf(addFinalizer, { finalizers }), {
      uid: 'u',
      finalizers: [OURS],
      '$setElementOrder/finalizers': ['a', 'b', OURS],
    });
    assert.deepEqual(finalizers, ['a', 'b'], 'the list that was given is as it was');
  });
});

describe('removeFinalizer', () => {
  const terminating = { deletionTimestamp: 'now' };

  it('sends null for the last one of an object that is being deleted (P-81)', async () =>
    assert.deepEqual(await patchOf(removeFinalizer, { finalizers: [OURS], ...terminating }), {
      uid: 'u',
      finalizers: null,
    }));

  it('keeps what is added meanwhile to an object that is not being deleted', async () =>
    assert.deepEqual(await patchOf(removeFinalizer, { finalizers: [OURS] }), {
      uid: 'u',
      '$deleteFromPrimitiveList/finalizers': [OURS],
    }));

  it('changes nothing if the object lacks the finalizer (P-82)', async () =>
    assert.equal(await patchOf(removeFinalizer, { finalizers: ['a'], ...terminating }), undefined));

  it('keeps the others and their order (P-83)', async () => {
    const finalizers = ['a', OURS, 'b'];
    assert.deepEqual(await patchOf(removeFinalizer, { finalizers, ...terminating }), {
      uid: 'u',
      '$deleteFromPrimitiveList/finalizers': [OURS],
      '$setElementOrder/finalizers': ['a', 'b'],
    });
    assert.deepEqual(finalizers, ['a', OURS, 'b'], 'the list that was given is as it was');
  });

  it('changes nothing in an empty list (P-84)', async () =>
    assert.equal(await patchOf(removeFinalizer, { finalizers: [], ...terminating }), undefined));

  it('changes nothing if there is no list (P-85)', async () =>
    assert.equal(await patchOf(removeFinalizer, terminating), undefined));
});

describe('finalizers', () => {
  it('are written to PVs as a strategic merge patch with the UID', async () => {
    const { kube, sent } = recordWrites();
    const object = withFinalizers([OTHER]);
    await addFinalizer(kube, { resource: volumes, object, finalizer: OURS });
    assert.deepEqual(sent, [
      [
        'persistentvolumes',
        { name: 'x' },
        'strategic',
        {
          metadata: {
            uid: 'u',
            finalizers: [OURS],
            '$setElementOrder/finalizers': [OTHER, OURS],
          },
        },
      ],
    ]);
  });

  it('are written to claims and snapshots as an update of the object as it was read', async () => {
    const { kube, sent } = recordWrites();
    const object = withFinalizers([OURS, OTHER], 'n');
    await removeFinalizer(kube, { resource: claims, object, finalizer: OURS });
    await addFinalizer(kube, { resource: snapshots, object, finalizer: 'example.com/more' });
    const changed = (finalizers: readonly string[]) => ({
      metadata: { ...object.metadata, finalizers },
    });
    const ref = { namespace: 'n', name: 'x' };
    assert.deepEqual(sent, [
      ['persistentvolumeclaims', ref, 'update', changed([OTHER])],
      ['volumesnapshots', ref, 'update', changed([OURS, OTHER, 'example.com/more'])],
    ]);
  });

  it('are not sent if nothing changes', async () => {
    const { kube, sent } = recordWrites();
    const object = withFinalizers([OURS]);
    const target = { resource: volumes, object, finalizer: OURS };
    assert.equal(await addFinalizer(kube, target), object);
    assert.equal(await removeFinalizer(kube, { ...target, finalizer: OTHER }), object);
    assert.deepEqual(sent, []);
  });
});
