import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { addFinalizer, removeFinalizer } from '#src/kube/finalizers.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { KubeObject } from '#src/kube/objects.ts';
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
