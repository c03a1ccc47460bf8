import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { addFinalizer, removeFinalizer } from '#src/jobs/finalizers.ts';
import type { Parts } from './parts.ts';
import type { KubeObject } from '#src/kube/objects.ts';
import { claims, snapshots, volumes } from '#src/kube/resources.ts';

const OURS = 'example.com/ours';
const OTHER = 'example.com/other';

/** Records the patches that are sent. */
function recordPatches(): { kube: Parts['kube']; sent: unknown[] } {
  const sent: unknown[] = [];
  const refuse = () => Promise.reject(new Error('only patches are sent'));
  return {
    sent,
    kube: {
      get: refuse,
      list: refuse,
      create: refuse,
      delete: refuse,
      update: refuse,
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
  it('are sent to core kinds as a strategic merge patch with the UID', async () => {
    const { kube, sent } = recordPatches();
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

  it('are sent with the version that was read if the object must be unchanged', async () => {
    const { kube, sent } = recordPatches();
    const object = withFinalizers([OURS], 'n');
    const target = { resource: claims, object, finalizer: OURS, mustBeUnchanged: true };
    await removeFinalizer(kube, target);
    assert.deepEqual(sent, [
      [
        'persistentvolumeclaims',
        { namespace: 'n', name: 'x' },
        'strategic',
        {
          metadata: {
            uid: 'u',
            resourceVersion: '7',
            '$deleteFromPrimitiveList/finalizers': [OURS],
          },
        },
      ],
    ]);
  });

  it('are sent to custom resources as the whole list for the version that was read', async () => {
    const { kube, sent } = recordPatches();
    const object = withFinalizers([OURS, OTHER], 'n');
    await removeFinalizer(kube, { resource: snapshots, object, finalizer: OURS });
    assert.deepEqual(sent, [
      [
        'volumesnapshots',
        { namespace: 'n', name: 'x' },
        'merge',
        { metadata: { uid: 'u', resourceVersion: '7', finalizers: [OTHER] } },
      ],
    ]);
  });

  it('are not sent if nothing changes', async () => {
    const { kube, sent } = recordPatches();
    const object = withFinalizers([OURS]);
    const target = { resource: volumes, object, finalizer: OURS };
    assert.equal(await addFinalizer(kube, target), object);
    assert.equal(await removeFinalizer(kube, { ...target, finalizer: OTHER }), object);
    assert.deepEqual(sent, []);
  });
});
