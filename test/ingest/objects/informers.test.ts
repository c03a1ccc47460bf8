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
      promote: () => undefined,
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
  const aVolume = (name: string, more: Partial<Volume['spec']> = {}) =>
    kube.create<Volume>(volumes, undefined, {
      metadata: { name },
      spec: {
        capacity: { storage: '1Mi' },
        accessModes: ['ReadWriteOnce'],
        persistentVolumeReclaimPolicy: 'Retain',
        csi: { driver: DRIVER, volumeHandle: `h-${name}` },
        ...more,
      },
    });
  /** A volume of this driver and handle that is to be deleted. */
  const releasedVolume = async (name: string, driver: string, volumeHandle: string) => {
    const csi = { driver, volumeHandle };
    await aVolume(name, { persistentVolumeReclaimPolicy: 'Delete', csi });
    const body = { status: { phase: 'Released' } };
    await kube.patch(volumes, { name }, { type: 'merge', body, subresource: 'status' });
  };

  before(async () => {
    cluster = await openSandboxCluster();
    kube = createKubeClient({ access: cluster.access, userAgent: 'test', log: silentLog });
    await aClass('there');
    await aClaim('before-start', 'there');
    source = new Informers({ client: kube, log: silentLog, metrics: new Registry() });
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
    await releasedVolume('static', DRIVER, 'h');
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

  const selectNode = (name: string) => {
    const annotations = { 'volume.kubernetes.io/selected-node': 'n' };
    const body = { metadata: { annotations } };
    return kube.patch(claims, { namespace: 'default', name }, { type: 'merge', body });
  };
  /** Deletes a volume at once, without waiting for its finalizers. */
  const deleteVolume = async (name: string): Promise<void> => {
    const body = { metadata: { finalizers: [] } };
    await kube.patch(volumes, { name }, { type: 'merge', body });
    await kube.delete(volumes, { name });
  };

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
    await deleteVolume(name);
    await until(() => names().includes('served'));
    assert.ok((await outstanding()).includes('served'));
  });

  it('enqueues the claim that a deleted volume of another name names', async () => {
    const claim = await aClaim('named', 'there');
    await until(() => names().includes('named'));
    const { name, uid } = claim.metadata;
    await aVolume('of-named', { claimRef: { namespace: 'default', name, uid } });
    enqueued = [];
    await deleteVolume('of-named');
    await until(() => names().includes('named'));
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
    const create = (name: string) => releasedVolume(name, other, 'of-later');
    const outstandingVolumes = async (): Promise<string[]> => {
      const found: string[] = [];
      for await (const { metadata } of source.volumes())
        if (metadata.name.startsWith('of-later')) found.push(metadata.name);
      return found;
    };
    await create('of-later-1');
    await caughtUp();
    assert.deepEqual(await outstandingVolumes(), []);
    const pass = ({ name }: JobKey) => void names.push(name);
    const producer = { ensureQueued: pass, enqueueNow: pass, promote: pass };
    const ofLater = { name: other, controllerCapabilities: new Set<string>() };
    const laterHandler = new EventHandler(
      ofLater,
      { isAllowing: true, ...producer },
      source,
      silentLog,
    );
    const later = source.serve(laterHandler, () => undefined);
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
});
