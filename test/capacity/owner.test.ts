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
  const replicaSet = { metadata: { ownerReferences: [owner('Deployment', 'jobs')] } };

  it('is not found without the pod (O-01)', () =>
    assert.rejects(find('gone', 0), {
      name: 'OwnerError',
      message: 'v1/Pod "gone" in namespace "default" does not exist',
    }));

  it('is the pod at level 0 (O-02)', async () => {
    const { kind, name, controller } = await find('bare', 0);
    assert.deepEqual({ kind, name, controller }, { kind: 'Pod', name: 'bare', controller: true });
  });

  it('is not found at level 1 for a pod without owner (O-03)', () =>
    assert.rejects(
      find('bare', 1),
      /v1\/Pod "bare" .* has no controlling owner; lower --capacity/,
    ));

  it('is at level 1 the owner that the pod names, read or not (O-04)', async () => {
    const { blockOwnerDeletion: _, ...expected } = owner('StatefulSet', 'db');
    assert.deepEqual(await find('of-set', 1), expected);
  });

  for (const [title, path] of [
    ['without the ReplicaSet (O-05)', undefined],
    ['with a ReplicaSet of another name (O-06)', 'default/another'],
    ['with a ReplicaSet in another namespace (O-07)', 'elsewhere/jobs-1'],
  ] as const)
    it(`is not found at level 2 ${title}`, async () => {
      others.clear();
      if (path !== undefined) others.set(path, replicaSet);
      const message = /apps\/v1\/ReplicaSet "jobs-1" .* does not exist/;
      await assert.rejects(find('of-replica', 2), message);
    });

  it('is at level 2 the Deployment that the ReplicaSet names (O-08)', async () => {
    others.clear();
    others.set('default/jobs-1', replicaSet);
    const { blockOwnerDeletion: _, ...expected } = owner('Deployment', 'jobs');
    assert.deepEqual(await find('of-replica', 2), expected);
  });
});
