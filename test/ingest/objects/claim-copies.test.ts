import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { LeaderOnlyQueue } from '#src/ingest/leader-only-queue.ts';
import { EventHandler } from '#src/ingest/objects/event-handler.ts';
import { Informers } from '#src/ingest/objects/informers.ts';
import { ServedDrivers } from '#src/ingest/objects/object-source.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim } from '#src/kube/objects.ts';
import { claims, classes } from '#src/kube/resources.ts';
import type { KeyToQueue } from '#src/queue/contract.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { openSandboxCluster, type SandboxCluster } from '../../harness/sandbox-cluster.ts';
import { until } from '../../harness/until.ts';

const DRIVER = 'd.example';

describe('the copy of a claim that goes into its job', () => {
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let source: Informers;
  /** The last key that was enqueued, and that was renewed, by the claim's name. */
  const enqueued = new Map<string, KeyToQueue>();
  const renewed = new Map<string, KeyToQueue>();

  before(async () => {
    cluster = await openSandboxCluster();
    kube = await cluster.client();
    await kube.create(classes, undefined, { metadata: { name: 'there' }, provisioner: DRIVER });
    const enqueue = (key: KeyToQueue): unknown => enqueued.set(key.name, key);
    const renewCopy = (key: KeyToQueue): unknown => renewed.set(key.name, key);
    const queue = new LeaderOnlyQueue(
      { ensureQueued: enqueue, enqueueNow: enqueue, promote: () => undefined, renewCopy },
      0,
    );
    queue.allow(() => true);
    const metrics = new Registry();
    source = new Informers({ client: kube, drivers: new ServedDrivers(), log: silentLog, metrics });
    const driver = { name: DRIVER, controllerCapabilities: new Set(['CLONE_VOLUME']) };
    const handler = new EventHandler({ driver, queue, lookups: source, log: silentLog });
    await source.serve({ handler }).waitForSync(AbortSignal.timeout(100_000));
  });
  after(async () => {
    await source.stop();
    await cluster.close();
  });

  const create = async (
    name: string,
    o: { readonly spec?: object; readonly annotations?: object } = {},
  ): Promise<Claim> => {
    const provisioner = { 'volume.kubernetes.io/storage-provisioner': DRIVER };
    const claim = await kube.create<Claim>(claims, 'default', {
      metadata: { name, namespace: 'default', annotations: { ...provisioner, ...o.annotations } },
      spec: {
        storageClassName: 'there',
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
        ...o.spec,
      },
    });
    const isKnown = (): boolean =>
      [...source.unfinished().claims].some(({ metadata }) => metadata.name === name);
    await until(isKnown, 'the claim is known');
    return claim;
  };
  const patch = ({ metadata: { name } }: Claim, body: object): Promise<Claim> =>
    kube.patch<Claim>(claims, { namespace: 'default', name }, { type: 'merge', body });
  const renewal = async (name: string): Promise<string | undefined> => {
    await until(() => renewed.has(name), 'the copy is renewed');
    return renewed.get(name)?.claim;
  };
  const assertCopied = (claim: Claim, copy: string | undefined): void => {
    const { metadata, ...others } = claim as unknown as { readonly metadata: object };
    const withoutManagedFields = { ...metadata, managedFields: undefined };
    const expected: unknown = JSON.parse(
      JSON.stringify({ ...others, metadata: withoutManagedFields }),
    );
    assert.deepEqual(JSON.parse(copy ?? ''), expected);
  };

  it('has all that the API server sends but managed fields', async () => {
    assertCopied(await create('plain'), enqueued.get('plain')?.claim);
  });

  it('is none where the volume has a source', async () => {
    const dataSource = { kind: 'PersistentVolumeClaim', name: 'source' };
    await create('cloned', { spec: { dataSource } });
    assert.equal(enqueued.get('cloned')?.claim, undefined);
  });

  it('comes with the version, as the key of a claim without one does', async () => {
    const dataSource = { kind: 'PersistentVolumeClaim', name: 'source' };
    for (const [name, spec] of Object.entries({ versioned: {}, clone: { dataSource } })) {
      const { resourceVersion } = (await create(name, { spec })).metadata;
      assert.equal(enqueued.get(name)?.seen, resourceVersion);
    }
  });

  it('is none where it were longer than 4 kB', async () => {
    await create('long', { annotations: { note: 'x'.repeat(4_096) } });
    assert.equal(enqueued.get('long')?.claim, undefined);
  });

  it('is replaced when the claim changes', async () => {
    const claim = await create('edited');
    assertCopied(
      await patch(claim, { metadata: { labels: { edited: 'yes' } } }),
      await renewal('edited'),
    );
  });

  it('is followed by the version of the claim, also where there is none', async () => {
    const dataSource = { kind: 'PersistentVolumeClaim', name: 'source' };
    const claim = await create('cloned-later', { spec: { dataSource } });
    const { metadata } = await patch(claim, { metadata: { labels: { edited: 'yes' } } });
    await renewal('cloned-later');
    assert.equal(renewed.get('cloned-later')?.seen, metadata.resourceVersion);
  });

  it('is taken back when somebody else binds the claim', async () => {
    await patch(await create('bound'), { spec: { volumeName: 'by-hand' } });
    assert.equal(await renewal('bound'), undefined);
  });

  it('is taken back when the claim is deleted', async () => {
    await create('deleted');
    await kube.delete(claims, { namespace: 'default', name: 'deleted' });
    assert.equal(await renewal('deleted'), undefined);
  });

  it('is taken back when the claim is bound to the volume of its job: it may have another job', async () => {
    const claim = await create('done');
    await patch(claim, { spec: { volumeName: `pvc-${claim.metadata.uid}` } });
    assert.equal(await renewal('done'), undefined);
  });

  it('is not renewed in the jobs of other drivers', async () => {
    const claim = await create('others', {
      annotations: { 'volume.kubernetes.io/storage-provisioner': 'other.example' },
    });
    await patch(claim, { metadata: { labels: { edited: 'yes' } } });
    // The watch brings events in order.
    await patch(await create('later'), { metadata: { labels: { edited: 'yes' } } });
    await renewal('later');
    assert.equal(renewed.has('others'), false);
  });
});
