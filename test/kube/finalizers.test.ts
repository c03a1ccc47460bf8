import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { addFinalizer, removeFinalizer } from '#src/kube/finalizers.ts';
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

describe('the finalizers of a PV', () => {
  const terminating = { deletionTimestamp: 'now' };
  const isRemoved = { '$deleteFromPrimitiveList/finalizers': [OURS] };
  const order = (...names: string[]) => ({ '$setElementOrder/finalizers': names });
  type Case = readonly [
    string,
    typeof addFinalizer,
    Partial<ObjectMeta>,
    patch: object | undefined,
  ];
  const cases: readonly Case[] = [
    ['are not added twice (P-86)', addFinalizer, { finalizers: ['a', OURS, 'b'] }, undefined],
    ['are added as a new list (P-87)', addFinalizer, {}, { finalizers: [OURS] }],
    ['fill an empty list (P-88)', addFinalizer, { finalizers: [] }, { finalizers: [OURS] }],
    [
      'are added by ours and the order (P-89)',
      addFinalizer,
      { finalizers: ['a', 'b'] },
      { finalizers: [OURS], ...order('a', 'b', OURS) },
    ],
    [
      'are null for the last one of an object that is being deleted (P-81)',
      removeFinalizer,
      { finalizers: [OURS], ...terminating },
      { finalizers: null },
    ],
    [
      'keep what is added meanwhile to an object that is not being deleted',
      removeFinalizer,
      { finalizers: [OURS] },
      isRemoved,
    ],
    [
      'are not changed without ours (P-82)',
      removeFinalizer,
      { finalizers: ['a'], ...terminating },
      undefined,
    ],
    [
      'keep the others and their order (P-83)',
      removeFinalizer,
      { finalizers: ['a', OURS, 'b'], ...terminating },
      { ...isRemoved, ...order('a', 'b') },
    ],
    [
      'are not changed in an empty list (P-84)',
      removeFinalizer,
      { finalizers: [], ...terminating },
      undefined,
    ],
    ['are not changed without a list (P-85)', removeFinalizer, terminating, undefined],
  ];
  for (const [title, change, metadata, patch] of cases)
    it(title, async () => {
      const { kube, sent } = recordWrites();
      await change(kube, { resource: volumes, object: object(metadata), finalizer: OURS });
      const body = { metadata: { uid: 'u', ...patch } };
      const expected = ['persistentvolumes', { name: 'x' }, 'strategic', body];
      assert.deepEqual(sent, patch === undefined ? [] : [expected]);
    });
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
