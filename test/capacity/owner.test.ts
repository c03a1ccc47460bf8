import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { CapacityController } from '#src/capacity/controller.ts';
import { managedBy } from '#src/capacity/objects.ts';
import { lookUpOwner } from '#src/capacity/owner.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { pods } from '#src/kube/resources.ts';
import type { OwnerReference } from '#src/kube/objects.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { createLogger } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
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

  it('is not found at level 2 without the ReplicaSet (O-05)', async () => {
    others.clear();
    await assert.rejects(find('of-replica', 2), /apps\/v1\/ReplicaSet "jobs-1" .* does not exist/);
  });

  it('is not found at level 2 with a ReplicaSet of another name (O-06)', async () => {
    others.clear();
    others.set('default/another', replicaSet);
    await assert.rejects(find('of-replica', 2), /does not exist/);
  });

  it('is not found at level 2 with a ReplicaSet in another namespace (O-07)', async () => {
    others.clear();
    others.set('elsewhere/jobs-1', replicaSet);
    await assert.rejects(find('of-replica', 2), /does not exist/);
  });

  it('is at level 2 the Deployment that the ReplicaSet names (O-08)', async () => {
    others.clear();
    others.set('default/jobs-1', replicaSet);
    const { blockOwnerDeletion: _, ...expected } = owner('Deployment', 'jobs');
    assert.deepEqual(await find('of-replica', 2), expected);
  });

  it('is looked for no more when the process stops', async () => {
    let isAsked = (): void => undefined;
    const asked = new Promise<void>((resolve) => (isAsked = resolve));
    const lines: string[] = [];
    const write = (line: string) => void lines.push(line);
    const get: KubeClient['get'] = (_resource, _ref, { signal } = {}) => {
      isAsked();
      return new Promise((_resolve, reject) =>
        signal?.addEventListener('abort', () => reject(new Error('aborted'))),
      );
    };
    const at = { namespace: NAMESPACE, podName: 'bare', level: 0 };
    const controller = new CapacityController({
      kube,
      getCapacity: () => Promise.reject(new Error('it is not asked')),
      gateway: () => Promise.resolve(''),
      classes: () => [],
      ownNode: undefined,
      takeHints: () => Promise.resolve([]),
      findOwner: (signal) => lookUpOwner({ get }, at, { signal }),
      isLeading: () => true,
      manager: { driver: 'd.example', managedBy: managedBy(undefined) },
      namespace: NAMESPACE,
      includesImmediate: false,
      pollMs: 60_000,
      threads: 1,
      timeoutMs: 1_000,
      backoff: { startMs: 10, maxMs: 10 },
      writes: { perSecond: 0, burst: 1 },
      metrics: new Registry(),
      clock: systemClock,
      log: createLogger({ name: 'test', verbosity: 0, format: 'text', write }),
      stepMs: 20,
    });
    await asked;
    await controller.stop();
    assert.deepEqual(
      lines.filter((line) => line.includes('no capacity is published')),
      [],
    );
  });
});
