import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { Claim, KubeObject, StorageCapacity } from '#src/kube/objects.ts';
import { claims, classes, csiNodes, nodes, pods, storageCapacities } from '#src/kube/resources.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { DRIVER, ProcessBed } from '../../harness/process-bed.ts';
import { isReady, readiness, type Running } from '../../harness/run-main.ts';
import { until } from '../../harness/until.ts';

const NAMESPACE = 'default';
const CLASS = 'late';
const OWNER = {
  apiVersion: 'apps/v1',
  kind: 'ReplicaSet',
  name: 'ingest-rs',
  uid: 'uid-rs',
  controller: true,
};

/** A node on which the driver is registered with the keys of the labels. */
async function addNode(
  { kube }: ProcessBed,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): Promise<void> {
  await kube.create(nodes, undefined, { metadata: { name, labels } });
  const drivers = [{ name: DRIVER, nodeID: name, topologyKeys: Object.keys(labels) }];
  await kube.create(csiNodes, undefined, { metadata: { name }, spec: { drivers } });
}

describe('ingest and jobs with --enable-capacity', () => {
  let bed: ProcessBed;
  let ingest: Running;
  let available = 10n << 30n;
  let isFull = false;

  before(async () => {
    bed = await ProcessBed.open({
      env: { NAMESPACE, POD_NAME: 'ingest-1' },
      flags: ['--enable-capacity'],
      onCall: async ({ method, proceed }) => {
        if (method === 'CreateVolume' && isFull) {
          available = 1n << 20n;
          throw new DriverStatus(Code.ResourceExhausted, 'no room');
        }
        if (method === 'CreateVolume' || method === 'DeleteVolume') {
          const answer = await proceed();
          available += method === 'CreateVolume' ? -(1n << 20n) : 1n << 20n;
          return answer;
        }
        if (method !== 'GetCapacity') return undefined;
        return { availableCapacity: available, maximumVolumeSize: available };
      },
    });
    await bed.kube.create(classes, undefined, {
      metadata: { name: CLASS },
      provisioner: DRIVER,
      volumeBindingMode: 'WaitForFirstConsumer',
    });
    await addNode(bed, 'node-1');
    ingest = await bed.startIngest('--capacity-poll-interval=1h', '--kube-api-capacity-qps=0');
    await bed.startJobs();
  });
  after(() => bed.close());

  const objects = async (): Promise<readonly StorageCapacity[]> =>
    (await bed.kube.list<StorageCapacity>(storageCapacities, { namespace: NAMESPACE })).items;
  const publishes = async (bytes: bigint): Promise<boolean> => {
    const [object, ...others] = await objects();
    if (object === undefined || others.length > 0) return false;
    const texts = [object.capacity, object.maximumVolumeSize];
    return texts.every((text) => text === `${bytes >> 20n}Mi` || text === `${bytes >> 30n}Gi`);
  };

  it('say what they wait for while the pod of ingest is not known, and provision meanwhile', async () => {
    const trouble =
      /capacity: look up owner\(s\) of pod: v1\/Pod "ingest-1" in namespace "default" does not exist/;
    await until(async () => trouble.test(await readiness(ingest)), 'ingest says it');
    assert.deepEqual(await objects(), []);
    const claim = await bed.newClaim();
    await until(() => bed.isBound(claim), 'a claim is bound');
  });

  it('publish when the owner is found, and are ready', async () => {
    await bed.kube.create<KubeObject>(pods, NAMESPACE, {
      metadata: { name: 'ingest-1', ownerReferences: [OWNER] },
      spec: { containers: [{ name: 'ingest', image: 'sutler' }] },
    });
    await until(async () => (await objects()).length === 1, 'there is an object');
    const [object] = await objects();
    assert.deepEqual(object?.metadata.ownerReferences, [OWNER]);
    assert.deepEqual(object?.nodeTopology, {});
    await until(() => isReady(ingest), 'ingest is ready');
  });

  it('ask again after a creation, and after a deletion', async () => {
    await until(() => publishes(available), 'the capacity is known');
    const claim = await lateClaim('after');
    await until(() => bed.isBound(claim), 'the claim is bound');
    await until(() => publishes(available), 'there is less');
    const less = available;
    await bed.kube.delete(claims, claim.metadata);
    await until(() => available > less, 'the volume is deleted');
    await until(() => publishes(available), 'there is more again');
  });

  it('ask again after a creation that failed', async () => {
    await until(() => publishes(available), 'the capacity is known');
    isFull = true;
    const claim = await lateClaim('refused');
    await until(() => publishes(available), 'there is less');
    isFull = false;
    await bed.kube.delete(claims, claim.metadata);
  });

  function lateClaim(name: string): Promise<Claim> {
    const annotations = { 'volume.kubernetes.io/selected-node': 'node-1' };
    return bed.kube.create<Claim>(claims, NAMESPACE, {
      metadata: { name, namespace: NAMESPACE, annotations },
      spec: {
        storageClassName: CLASS,
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
      },
    });
  }
});

describe('the limit of writes of capacity', () => {
  it('holds back objects, and no request of the election and of claims (R-36)', async () => {
    const bed = await ProcessBed.open({ env: { NAMESPACE }, flags: ['--enable-capacity'] });
    const objects = async (): Promise<number> =>
      (await bed.kube.list(storageCapacities, { namespace: NAMESPACE })).items.length;
    for (const zone of ['a', 'b']) await addNode(bed, zone, { zone });
    await bed.startIngest(
      '--leader-election-retry-period=200ms',
      '--capacity-ownerref-level=-1',
      '--capacity-for-immediate-binding',
      '--kube-api-capacity-qps=0.001',
      '--kube-api-capacity-burst=1',
    );
    await bed.startJobs();
    await until(async () => (await objects()) === 1, 'the burst is written');
    const renewals = (): number => bed.cluster.api.requests.snapshot()['update leases'] ?? 0;
    const before = renewals();
    const claim = await bed.newClaim();
    await until(() => bed.isBound(claim), 'a claim is bound');
    await until(() => renewals() >= before + 5, 'the Lease is renewed');
    assert.equal(await objects(), 1);
    await bed.close();
  });
});
