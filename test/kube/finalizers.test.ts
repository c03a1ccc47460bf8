import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { addFinalizer, hasFinalizer, removeFinalizer } from '#src/kube/finalizers.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { KubeObject, ObjectMeta } from '#src/kube/objects.ts';
import { claims, snapshots, volumes } from '#src/kube/resources.ts';

const OURS = 'example.com/ours';

const object = (metadata: Partial<ObjectMeta>): KubeObject => ({
  metadata: { name: 'x', uid: 'u', resourceVersion: '7', ...metadata },
});

/** Records the writes that are sent. */
function recordWrites(): { kube: Pick<KubeClient, 'patch' | 'update'>; sent: unknown[] } {
  const sent: unknown[] = [];
  return {
    sent,
    kube: {
      update: (resource, ref, written) => {
        sent.push([resource.plural, ref, 'update', written]);
        return Promise.resolve({ updated: true } as never);
      },
      patch: (resource, ref, change) => {
        sent.push([resource.plural, ref, change.type, change.body]);
        return Promise.resolve({ patched: true } as never);
      },
    },
  };
}

/** Checks what a strategic patch says of the finalizers of a PV; undefined if none is sent. */
async function patches(
  change: typeof addFinalizer | typeof removeFinalizer,
  metadata: Partial<ObjectMeta>,
  expected: object | undefined,
): Promise<void> {
  const { kube, sent } = recordWrites();
  await change(kube, { resource: volumes, object: object(metadata), finalizer: OURS });
  const body = { metadata: { uid: 'u', ...expected } };
  const patch = ['persistentvolumes', { name: 'x' }, 'strategic', body];
  assert.deepEqual(sent, expected === undefined ? [] : [patch]);
}

describe('hasFinalizer', () => {
  it('is true for an entry of the list only', () => {
    const has = { metadata: { finalizers: ['a', OURS] } };
    assert.equal(hasFinalizer(has, OURS), true);
    assert.equal(hasFinalizer(has, 'our'), false);
    assert.equal(hasFinalizer({ metadata: {} }, OURS), false);
  });
});

describe('addFinalizer', () => {
  it('changes nothing if the object has the finalizer (P-86)', () =>
    patches(addFinalizer, { finalizers: ['a', OURS, 'b'] }, undefined));

  it('creates a missing list (P-87)', () => patches(addFinalizer, {}, { finalizers: [OURS] }));

  it('fills an empty list (P-88)', () =>
    patches(addFinalizer, { finalizers: [] }, { finalizers: [OURS] }));

  it('appends to a list, and sends only our finalizer and the order (P-89)', () =>
    patches(
      addFinalizer,
      { finalizers: ['a', 'b'] },
      { finalizers: [OURS], '$setElementOrder/finalizers': ['a', 'b', OURS] },
    ));
});

describe('removeFinalizer', () => {
  const terminating = { deletionTimestamp: 'now' };
  const isRemoved = { '$deleteFromPrimitiveList/finalizers': [OURS] };

  it('sends null for the last one of an object that is being deleted (P-81)', () =>
    patches(removeFinalizer, { finalizers: [OURS], ...terminating }, { finalizers: null }));

  it('keeps what is added meanwhile to an object that is not being deleted', () =>
    patches(removeFinalizer, { finalizers: [OURS] }, isRemoved));

  it('changes nothing if the object lacks the finalizer (P-82)', () =>
    patches(removeFinalizer, { finalizers: ['a'], ...terminating }, undefined));

  it('keeps the others and their order (P-83)', () =>
    patches(
      removeFinalizer,
      { finalizers: ['a', OURS, 'b'], ...terminating },
      { ...isRemoved, '$setElementOrder/finalizers': ['a', 'b'] },
    ));

  it('changes nothing in an empty list (P-84)', () =>
    patches(removeFinalizer, { finalizers: [], ...terminating }, undefined));

  it('changes nothing if there is no list (P-85)', () =>
    patches(removeFinalizer, terminating, undefined));
});

describe('finalizers of claims and snapshots', () => {
  it('are written as an update of the object as it was read', async () => {
    const { kube, sent } = recordWrites();
    const read = object({ namespace: 'n', finalizers: [OURS, 'a'] });
    await removeFinalizer(kube, { resource: claims, object: read, finalizer: OURS });
    await addFinalizer(kube, { resource: snapshots, object: read, finalizer: 'example.com/more' });
    const ref = { namespace: 'n', name: 'x' };
    const changed = (finalizers: readonly string[]) => ({
      metadata: { ...read.metadata, finalizers },
    });
    assert.deepEqual(sent, [
      ['persistentvolumeclaims', ref, 'update', changed(['a'])],
      ['volumesnapshots', ref, 'update', changed([OURS, 'a', 'example.com/more'])],
    ]);
  });
});
