import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { ListPage } from '#src/kube/client.ts';
import type { Claim, KubeObject, Volume } from '#src/kube/objects.ts';
import { planAbandonment } from '#src/operator/abandon.ts';
import { startTestRedis } from '../harness/redis.ts';
import { aClaim, aVolume } from '../volumes/builders.ts';

it('sutler abandon leaves a PV that is reserved for a living claim by its name alone', async () => {
  const server = await startTestRedis();
  const claim: Claim = aClaim();
  const { namespace = '', name } = claim.metadata;
  const nodeSelectorTerms = [
    { matchExpressions: [{ key: 'node', operator: 'In', values: ['gone'] }] },
  ];
  const volume: Volume = aVolume({
    spec: {
      csi: { driver: 'local.example', volumeHandle: 'h' },
      nodeAffinity: { required: { nodeSelectorTerms } },
      persistentVolumeReclaimPolicy: 'Delete',
      claimRef: { namespace, name },
    },
  });
  const lists: Readonly<Record<string, readonly KubeObject[]>> = {
    persistentvolumes: [volume],
    persistentvolumeclaims: [claim],
  };
  const { removed, kept } = await planAbandonment(
    {
      get: <T>() => Promise.resolve(claim as T),
      list: <T>({ plural }: { readonly plural: string }): Promise<ListPage<T>> =>
        Promise.resolve({ items: (lists[plural] ?? []) as T[], resourceVersion: '1' }),
    },
    server.redis,
    { node: 'gone', driver: 'local.example', prefix: 'csi' },
  );
  await server.close();
  assert.deepEqual(removed, []);
  assert.equal(kept[0]?.why, 'it was never bound to a claim');
});
