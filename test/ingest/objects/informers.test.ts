import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { LeaderOnlyQueue } from '#src/ingest/leader-only-queue.ts';
import { EventHandler } from '#src/ingest/objects/event-handler.ts';
import { Informers } from '#src/ingest/objects/informers.ts';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import type { Claim, Volume } from '#src/kube/objects.ts';
import { claims, classes, volumes } from '#src/kube/resources.ts';
import type { JobKey, KeyToQueue } from '#src/queue/contract.ts';
import { systemClock } from '#src/runtime/clock.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { openSandboxCluster, type SandboxCluster } from '../../harness/sandbox-cluster.ts';

const DRIVER = 'd.example';

describe('Informers', () => {
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let source: Informers;
  let handler: EventHandler;
  let enqueued: { key: KeyToQueue; isNow: boolean }[] = [];
  let promoted: string[] = [];
  let onHint: () => void = () => undefined;
  const queue = new LeaderOnlyQueue(
    {
      ensureQueued(key) {
        enqueued.push({ key, isNow: false });
        onHint();
      },
      enqueueNow(key) {
        enqueued.push({ key, isNow: true });
        onHint();
      },
      promote(key) {
        promoted.push(key.name);
        onHint();
      },
    },
    0,
  );
  const until = async (isDone: () => boolean): Promise<void> => {
    while (!isDone()) await new Promise<void>((resolve) => (onHint = resolve));
  };
  const aClaim = (name: string, className: string) =>
    kube.create<Claim>(claims, 'default', {
      metadata: {
        name,
        namespace: 'default',
        annotations: { 'volume.kubernetes.io/storage-provisioner': DRIVER },
      },
      spec: {
        storageClassName: className,
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Mi' } },
      },
    });
  const aClass = (name: string) =>
    kube.create(classes, undefined, { metadata: { name }, provisioner: DRIVER });
  const names = () => enqueued.map(({ key }) => key.name);
  const outstanding = async (): Promise<string[]> => {
    const found: string[] = [];
    for await (const { name } of handler.outstanding()) found.push(name);
    return found;
  };
  let markers = 0;
  /** Waits until the watches of claims and volumes have shown all that was written before. */
  const caughtUp = async (): Promise<void> => {
    const marker = `marker-${++markers}`;
    await aClaim(marker, 'never-class');
    await aVolume(`pvc-${marker}`);
    const isThere = () =>
      [...source.unfinished().claims].some(({ metadata }) => metadata.name === marker) &&
      source.hasVolume(marker);
    while (!isThere()) await systemClock.sleep(5);
  };
  const aVolume = (name: string, claimRef?: Volume['spec']['claimRef']) =>
    kube.create<Volume>(volumes, undefined, {
      metadata: { name },
      spec: {
        capacity: { storage: '1Mi' },
        accessModes: ['ReadWriteOnce'],
        persistentVolumeReclaimPolicy: 'Retain',
        ...(claimRef === undefined ? {} : { claimRef }),
        csi: { driver: DRIVER, volumeHandle: `h-${name}` },
      },
    });

  before(async () => {
    cluster = await openSandboxCluster();
    kube = createKubeClient({
      access: cluster.access,
      userAgent: 'test',
      log: silentLog,
    });
    await aClass('there');
    await aClaim('before-start', 'there');
    source = new Informers({
      client: kube,
      log: silentLog,
      metrics: new Registry(),
    });
    const driver = { name: DRIVER, controllerCapabilities: new Set(['CLONE_VOLUME']) };
    handler = new EventHandler(driver, queue, source, silentLog);
    const served = source.serve(handler, () => undefined);
    await served.waitForSync(AbortSignal.timeout(100_000));
    queue.allow(() => true);
  });
  after(async () => {
    await source.stop();
    await kube.close();
    await cluster.close();
  });
  beforeEach(() => {
    enqueued = [];
    promoted = [];
  });

  it('lists a claim from before its start as outstanding', async () => {
    assert.ok((await outstanding()).includes('before-start'));
  });

  it('enqueues a new claim', async () => {
    const claim = await aClaim('new', 'there');
    await until(() => names().includes('new'));
    const { claim: _, ...key } = enqueued.find((each) => each.key.name === 'new')?.key ?? {};
    const { uid } = claim.metadata;
    assert.deepEqual(key, { kind: 'claim', uid, namespace: 'default', name: 'new' });
  });

  it('enqueues the claims of a class at once when the class is added', async () => {
    await aClaim('early', 'late-class');
    // Claims and classes have separate watches.
    await aClaim('other', 'never-class');
    await caughtUp();
    await aClass('late-class');
    await until(() => names().includes('early'));
    assert.deepEqual(
      enqueued
        .filter(({ key }) => ['early', 'other'].includes(key.name))
        .map(({ key, isNow }) => [key.name, isNow]),
      [['early', true]],
    );
  });

  it('enqueues a volume when it is Released', async () => {
    const spec = {
      capacity: { storage: '1Mi' },
      accessModes: ['ReadWriteOnce'],
      persistentVolumeReclaimPolicy: 'Delete',
      csi: { driver: DRIVER, volumeHandle: 'h' },
    };
    await kube.create<Volume>(volumes, undefined, { metadata: { name: 'static' }, spec });
    await kube.patch(
      volumes,
      { name: 'static' },
      { type: 'merge', body: { status: { phase: 'Released' } }, subresource: 'status' },
    );
    await until(() => names().includes('static'));
    assert.equal(enqueued.find(({ key }) => key.name === 'static')?.key.kind, 'volume');
  });

  const LABEL = { type: 'merge', body: { metadata: { labels: { a: 'b' } } } } as const;

  it('enqueues an edited claim and an edited Released volume at once', async () => {
    await kube.patch(claims, { namespace: 'default', name: 'before-start' }, LABEL);
    await until(() => names().includes('before-start'));
    await kube.patch(volumes, { name: 'static' }, LABEL);
    await until(() => names().includes('static'));
    assert.deepEqual(
      enqueued.map(({ key, isNow }) => [key.name, isNow]),
      [
        ['before-start', true],
        ['static', true],
      ],
    );
  });

  const finalizers = (...names: string[]) =>
    ({ type: 'merge', body: { metadata: { finalizers: names } } }) as const;

  it('enqueues nothing when the finalizer of a clone source is added', async () => {
    await kube.patch<Claim>(
      claims,
      { namespace: 'default', name: 'before-start' },
      finalizers('provisioner.storage.kubernetes.io/cloning-protection'),
    );
    await caughtUp();
    assert.deepEqual(names(), []);
  });

  it('only promotes a volume that is being deleted', async () => {
    const OURS = 'external-provisioner.volume.kubernetes.io/finalizer';
    await kube.patch<Volume>(
      volumes,
      { name: 'static' },
      finalizers(OURS, 'kubernetes.io/pv-protection'),
    );
    await caughtUp();
    enqueued = [];
    const deleted = await kube.delete<Volume>(volumes, { name: 'static' });
    assert.ok(deleted?.metadata.deletionTimestamp !== undefined);
    await caughtUp();
    await kube.patch<Volume>(volumes, { name: 'static' }, finalizers(OURS));
    await caughtUp();
    assert.deepEqual(names(), []);
    assert.deepEqual(promoted, ['static', 'static']);
    await kube.patch<Volume>(volumes, { name: 'static' }, finalizers());
  });

  it('enqueues a claim at once when its selected node is removed and set again', async () => {
    const late = {
      metadata: { name: 'late' },
      provisioner: DRIVER,
      volumeBindingMode: 'WaitForFirstConsumer',
    };
    await kube.create(classes, undefined, late);
    const node = (name: string | null) =>
      kube.patch<Claim>(
        claims,
        { namespace: 'default', name: 'moving' },
        {
          type: 'merge',
          body: { metadata: { annotations: { 'volume.kubernetes.io/selected-node': name } } },
        },
      );
    await aClaim('moving', 'late');
    await node('n1');
    await until(() => names().includes('moving'));
    await node(null);
    await caughtUp();
    enqueued = [];
    await node('n2');
    await until(() => names().includes('moving'));
    assert.deepEqual(
      enqueued.map(({ key, isNow }) => [key.name, isNow]),
      [['moving', true]],
    );
  });

  const selectNode = (name: string) =>
    kube.patch(
      claims,
      { namespace: 'default', name },
      {
        type: 'merge',
        body: { metadata: { annotations: { 'volume.kubernetes.io/selected-node': 'n' } } },
      },
    );

  it('ignores a claim while a volume has its name, until that is deleted (P-02, R-01)', async () => {
    const claim = await aClaim('served', 'there');
    await until(() => names().includes('served'));
    const name = `pvc-${claim.metadata.uid}`;
    await aVolume(name);
    while ((await outstanding()).includes('served')) await systemClock.sleep(5);
    enqueued = [];
    await selectNode('served');
    await aClaim('after-served', 'there');
    await until(() => names().includes('after-served'));
    assert.deepEqual(names(), ['after-served']);
    await kube.patch(volumes, { name }, finalizers());
    await kube.delete(volumes, { name });
    await until(() => names().includes('served'));
    assert.ok((await outstanding()).includes('served'));
  });

  it('enqueues the claim that a deleted volume of another name names', async () => {
    const claim = await aClaim('named', 'there');
    await until(() => names().includes('named'));
    const { name, uid } = claim.metadata;
    await aVolume('of-named', { namespace: 'default', name, uid });
    enqueued = [];
    await kube.patch(volumes, { name: 'of-named' }, finalizers());
    await kube.delete(volumes, { name: 'of-named' });
    await until(() => names().includes('named'));
  });

  it('enqueues a clone source when it is being deleted, not before (K-07, K-08)', async () => {
    const ref = { namespace: 'default', name: 'source' };
    await aClaim('source', 'there');
    await kube.patch<Claim>(claims, ref, {
      type: 'merge',
      body: {
        spec: { volumeName: 'pv' },
        metadata: { finalizers: ['provisioner.storage.kubernetes.io/cloning-protection'] },
      },
    });
    await caughtUp();
    assert.ok(!(await outstanding()).includes('source'));
    enqueued = [];
    await kube.patch(claims, ref, {
      type: 'merge',
      body: { metadata: { annotations: { note: 'x' } } },
    });
    await aClaim('after-source', 'there');
    await until(() => names().includes('after-source'));
    assert.deepEqual(names(), ['after-source']);
    await kube.delete(claims, ref);
    await until(() => names().includes('source'));
  });

  it('enqueues what a notice names and the watch has not reported, and only that', async () => {
    const claim = await aClaim('noticed', 'there');
    await until(() => names().includes('noticed'));
    enqueued = [];
    const target = {
      resource: 'persistentvolumeclaims',
      namespace: 'default',
      name: 'noticed',
    } as const;
    source.looked({ target, object: claim });
    assert.deepEqual(names(), []);
    const newer = { ...claim.metadata, resourceVersion: 'newer' };
    source.looked({ target, object: { ...claim, metadata: newer } });
    source.looked({ target, object: undefined });
    assert.deepEqual(
      enqueued.map(({ key, isNow }) => [key.name, isNow]),
      [['noticed', false]],
    );
  });

  it('shows a driver that is served later its volumes, until it is stopped', async () => {
    const other = 'later.example';
    const names: string[] = [];
    const create = async (name: string): Promise<void> => {
      const csi = { driver: other, volumeHandle: 'of-later' };
      await kube.create<Volume>(volumes, undefined, {
        metadata: { name },
        spec: {
          capacity: { storage: '1Mi' },
          accessModes: ['ReadWriteOnce'],
          persistentVolumeReclaimPolicy: 'Delete',
          csi,
        },
      });
      const body = { status: { phase: 'Released' } };
      await kube.patch(volumes, { name }, { type: 'merge', body, subresource: 'status' });
    };
    const outstandingVolumes = async (): Promise<string[]> => {
      const found: string[] = [];
      for await (const { metadata } of source.volumes()) found.push(metadata.name);
      return found;
    };
    await create('of-later-1');
    await caughtUp();
    assert.deepEqual(await outstandingVolumes(), []);
    const pass = ({ name }: JobKey) => void names.push(name);
    const queueOfLater = {
      isAllowing: true,
      ensureQueued: pass,
      enqueueNow: pass,
      promote: pass,
    };
    const ofLater = { name: other, controllerCapabilities: new Set<string>() };
    const later = source.serve(
      new EventHandler(ofLater, queueOfLater, source, silentLog),
      () => undefined,
    );
    await later.waitForSync(AbortSignal.timeout(10_000));
    assert.deepEqual(names, ['of-later-1']);
    await create('of-later-2');
    await caughtUp();
    assert.ok(source.isFollowingVolumes);
    assert.deepEqual([...source.sharedHandles().values()], [['of-later-1', 'of-later-2']]);
    later.stop();
    await create('of-later-3');
    await caughtUp();
    assert.ok(!names.includes('of-later-3'));
  });

  it('lists the volumes once for drivers that are served within a moment', async () => {
    let lists = 0;
    const counting: KubeClient = {
      ...kube,
      list: (resource, o = {}) => {
        if (resource === volumes && o.limit !== 1 && o.continueToken === undefined) lists += 1;
        return kube.list(resource, o);
      },
    };
    const own = new Informers({ client: counting, log: silentLog, metrics: new Registry() });
    const synced = async (name: string): Promise<void> => {
      const driver = { name, controllerCapabilities: new Set<string>() };
      const served = new EventHandler(driver, queue, own, silentLog);
      await own.serve(served, () => undefined).waitForSync(AbortSignal.timeout(10_000));
    };
    await synced('first.example');
    await Promise.all(
      ['a', 'b', 'c'].map(async (name, turn) => {
        await systemClock.sleep(10 * turn);
        await synced(`${name}.example`);
      }),
    );
    await own.stop();
    assert.equal(lists, 2);
  });

  it('passes on nothing while the leader queue blocks', async () => {
    queue.block();
    await aClaim('blocked', 'there');
    while (!(await outstanding()).includes('blocked')) await systemClock.sleep(5);
    queue.allow(() => true);
    assert.deepEqual(names(), []);
  });
});
