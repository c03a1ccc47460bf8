import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { lookUpOwner } from '#src/capacity/owner.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { pods } from '#src/kube/resources.ts';
import type { OwnerReference } from '#src/kube/objects.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';

const NAMESPACE = 'default';
const owner = (kind: string, name: string): OwnerReference => ({
  apiVersion: 'apps/v1',
  kind,
  name,
  uid: `uid-${name}`,
  controller: true,
  blockOwnerDeletion: true,
});

describe('the owner of capacity objects', () => {
  let cluster: SandboxCluster;
  let kube: KubeClient;
  /** Objects of kinds that the sandbox does not have, by their paths. */
  const others = new Map<string, unknown>();
  before(async () => {
    cluster = await openSandboxCluster();
    kube = await cluster.client();
    await newPod('bare');
    await newPod('of-set', owner('StatefulSet', 'db'));
    await newPod('of-replica', owner('ReplicaSet', 'jobs-1'));
  });
  after(() => cluster.close());

  const newPod = (name: string, ...ownerReferences: OwnerReference[]): Promise<unknown> =>
    kube.create(pods, NAMESPACE, {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, ownerReferences },
      spec: { containers: [{ name: 'jobs', image: 'sutler' }] },
    });

  const find = (podName: string, level: number): Promise<OwnerReference> =>
    lookUpOwner(
      {
        get: async <T>(...[resource, ref]: Parameters<KubeClient['get']>) =>
          resource.plural === 'replicasets'
            ? (others.get(`${ref.namespace}/${ref.name}`) as T | undefined)
            : kube.get<T>(resource, ref),
      },
      { namespace: NAMESPACE, podName, level },
    );
  const ownerAt = (kind: string, name: string): OwnerReference => {
    const { blockOwnerDeletion: _, ...expected } = owner(kind, name);
    return expected;
  };
  const unset = /v1\/Pod "bare" .* has no controlling owner; lower --capacity/;
  const missing = /apps\/v1\/ReplicaSet "jobs-1" .* does not exist/;
  const isGone = /^v1\/Pod "gone" in namespace "default" does not exist$/;
  for (const [title, pod, level, expected, replicaSet] of [
    ['is not found without the pod (O-01)', 'gone', 0, isGone],
    ['is not found at level 1 for a pod without owner (O-03)', 'bare', 1, unset],
    [
      'is at level 1 what the pod names, read or not (O-04)',
      'of-set',
      1,
      ownerAt('StatefulSet', 'db'),
    ],
    ['is not found at level 2 without the ReplicaSet (O-05)', 'of-replica', 2, missing],
    ['is not found with another ReplicaSet (O-06)', 'of-replica', 2, missing, 'default/another'],
    ['is not found in another namespace (O-07)', 'of-replica', 2, missing, 'elsewhere/jobs-1'],
    [
      'is at level 2 the Deployment that the ReplicaSet names (O-08)',
      'of-replica',
      2,
      ownerAt('Deployment', 'jobs'),
      'default/jobs-1',
    ],
  ] as const)
    it(title, async () => {
      others.clear();
      const metadata = { ownerReferences: [owner('Deployment', 'jobs')] };
      if (replicaSet !== undefined) others.set(replicaSet, { metadata });
      if (expected instanceof RegExp)
        await assert.rejects(find(pod, level), { name: 'OwnerError', message: expected });
      else assert.deepEqual(await find(pod, level), expected);
    });

  it('is the pod at level 0 (O-02)', async () => {
    const { kind, name, controller } = await find('bare', 0);
    assert.deepEqual({ kind, name, controller }, { kind: 'Pod', name: 'bare', controller: true });
  });
});
