import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { WebhookSource } from '#src/ingest/notices/webhook-source.ts';
import { LeaderOnlyQueue } from '#src/ingest/leader-only-queue.ts';
import { EventHandler } from '#src/ingest/objects/event-handler.ts';
import type { Look } from '#src/ingest/objects/object-source.ts';
import type { KubeClient, ListOptions } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import type { Claim, KubeObject, Volume } from '#src/kube/objects.ts';
import { claims, classes, type Resource, volumes } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { openSandboxCluster, type SandboxCluster } from '../../harness/sandbox-cluster.ts';
import { until } from '../../harness/until.ts';

const DRIVER = 'd.example';

describe('webhook source, whose notices and lists', () => {
  let cluster: SandboxCluster;
  let kube: KubeClient;
  let source: WebhookSource;
  let handler: EventHandler;
  let served: ReturnType<WebhookSource['serve']>;
  let classChanges = 0;
  /** "how name" of each call of the queue. */
  let calls: string[];
  let queue: LeaderOnlyQueue;
  /** Of pages after the first one. */
  let failures: KubeError[];
  beforeEach(async () => {
    cluster = await openSandboxCluster();
    kube = await cluster.client();
    calls = [];
    await kube.create(classes, undefined, { metadata: { name: 'c' }, provisioner: DRIVER });
    failures = [];
    source = new WebhookSource({
      client: {
        ...kube,
        list<T>(resource: Resource, o: ListOptions = {}) {
          const failure = o.continueToken === undefined ? undefined : failures.shift();
          if (failure !== undefined) return Promise.reject(failure);
          return kube.list<T>(resource, { ...o, limit: 2 });
        },
      },
      log: silentLog,
      metrics: new Registry(),
    });
    const note = (how: string) => (key: { readonly name: string }) =>
      void calls.push(`${how} ${key.name}`);
    const producer = {
      ensureQueued: note('ensure'),
      enqueueNow: note('now'),
      promote: note('promote'),
    };
    queue = new LeaderOnlyQueue(producer, 0);
    queue.allow(() => true);
    const driver = { name: DRIVER, controllerCapabilities: new Set<string>() };
    handler = new EventHandler(driver, queue, source, silentLog);
    served = source.serve(handler, () => void (classChanges += 1));
    await served.waitForSync(new AbortController().signal);
  });
  afterEach(async () => {
    served.stop();
    await source.stop();
    await cluster.close();
  });

  const newClaim = (name: string, className = 'c', more: Partial<Claim['spec']> = {}) =>
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
        ...more,
      },
    });
  const newVolume = (name: string, phase?: string) =>
    kube
      .create<Volume>(volumes, undefined, {
        metadata: { name, finalizers: ['external-provisioner.volume.kubernetes.io/finalizer'] },
        spec: {
          capacity: { storage: '1Mi' },
          accessModes: ['ReadWriteOnce'],
          persistentVolumeReclaimPolicy: 'Delete',
          csi: { driver: DRIVER, volumeHandle: name },
        },
      })
      .then(() => setPhase(name, phase));
  const setPhase = (name: string, phase: string | undefined) =>
    kube.patch<Volume>(
      volumes,
      { name },
      { type: 'merge', subresource: 'status', body: { status: { phase } } },
    );
  /** Does what follows from a notice. */
  const look = async (resource: Look['target']['resource'], name: string): Promise<void> => {
    const isClaim = resource === 'persistentvolumeclaims';
    const namespace = isClaim ? 'default' : '';
    const object = isClaim
      ? await kube.get(claims, { namespace, name })
      : await kube.get(volumes, { name });
    source.looked({ target: { resource, namespace, name }, object });
  };
  const lookAtClaim = (name: string) => look('persistentvolumeclaims', name);
  const edit = (name: string, metadata: Partial<KubeObject['metadata']>) =>
    kube.patch(claims, { namespace: 'default', name }, { type: 'merge', body: { metadata } });
  const outstanding = async (): Promise<string[]> => {
    const found: string[] = [];
    for await (const { name } of handler.outstanding()) found.push(name);
    return found.sort();
  };

  it('enqueue an object that a notice names and that needs a job', async () => {
    await newClaim('a');
    await newClaim('of-no-class', 'missing');
    await newVolume('pv', 'Released');
    await lookAtClaim('a');
    await lookAtClaim('of-no-class');
    await look('persistentvolumes', 'pv');
    assert.deepEqual(calls, ['ensure a', 'ensure pv']);
  });

  it('tell what is pending, until a look or a list finds it done or gone', async () => {
    const pending = (): string[] => [...handler.pending()].map(({ key }) => key.name).sort();
    const gone = (name: string) => kube.delete(claims, { namespace: 'default', name });
    for (const name of ['bound', 'gone-1', 'gone-2']) await newClaim(name);
    await newVolume('pv', 'Released');
    await outstanding();
    const rest = ['gone-2', 'pv'];
    assert.deepEqual(pending(), ['bound', 'gone-1', ...rest]);
    await kube.patch(
      claims,
      { namespace: 'default', name: 'bound' },
      { type: 'merge', body: { spec: { volumeName: 'pv-of-it' } } },
    );
    await lookAtClaim('bound');
    await gone('gone-1');
    await lookAtClaim('gone-1');
    assert.deepEqual(pending(), rest);
    await gone('gone-2');
    await setPhase('pv', 'Bound');
    await outstanding();
    assert.deepEqual(pending(), []);
  });

  it('run a delayed job at once when a user has edited its claim', async () => {
    await newClaim('a');
    await lookAtClaim('a');
    await edit('a', { labels: { by: 'user' } });
    await lookAtClaim('a');
    assert.deepEqual(calls, ['ensure a', 'now a', 'ensure a']);
  });

  it('promote the deletion of a volume that is being deleted', async () => {
    await newVolume('pv', 'Released');
    await look('persistentvolumes', 'pv');
    await kube.delete(volumes, { name: 'pv' });
    await look('persistentvolumes', 'pv');
    assert.deepEqual(calls, ['ensure pv', 'promote pv', 'ensure pv']);
  });

  it('list everything that needs a job, in pages, and enqueue nothing themselves', async () => {
    for (const name of ['a', 'b', 'c', 'd', 'e']) await newClaim(name);
    await newVolume('pv', 'Released');
    await newVolume('bound', 'Bound');
    assert.deepEqual(await outstanding(), ['a', 'b', 'c', 'd', 'e', 'pv']);
    assert.deepEqual(calls, []);
  });

  it('begin again when a page fails, and say meanwhile what is wrong', async () => {
    for (const name of ['a', 'b', 'c']) await newClaim(name);
    const failure = (code: number): KubeError =>
      new KubeError({ code, reason: 'Test', serverMessage: 'no', request: 'list' });
    failures = [failure(500), failure(410)];
    const listing = outstanding();
    await until(() => source.trouble !== undefined, 'it is said');
    assert.match(source.trouble ?? '', /persistentvolumeclaims: /);
    assert.deepEqual(await listing, ['a', 'a', 'a', 'b', 'b', 'b', 'c']);
    assert.equal(source.trouble, undefined);
  });

  it('enqueue an object that was listed for something else before its notice came', async () => {
    await newClaim('a');
    await newVolume('pv', 'Released');
    for await (const { kind } of source.claims(() => true)) assert.ok(kind !== 'Volume');
    for await (const { kind } of source.volumes(() => true)) assert.ok(kind !== 'Claim');
    await lookAtClaim('a');
    await look('persistentvolumes', 'pv');
    assert.deepEqual(calls, ['ensure a', 'ensure pv']);
  });

  it('end a list when this ingest does not lead any more', async () => {
    for (const name of ['a', 'b', 'c']) await newClaim(name);
    const list = handler.outstanding();
    for await (const key of list) {
      assert.ok(key.name);
      queue.block();
      break;
    }
    await assert.rejects(outstanding(), /does not lead/);
  });

  it('run the claims of a class at once when it is added, and tell of it', async () => {
    await newClaim('a', 'late');
    await newClaim('b');
    await lookAtClaim('a');
    await lookAtClaim('b');
    calls = [];
    const before = classChanges;
    await kube.create(classes, undefined, { metadata: { name: 'late' }, provisioner: DRIVER });
    await until(() => calls.length > 0, 'a key');
    assert.deepEqual(calls, ['now a']);
    await until(() => classChanges > before, 'it is told');
  });
});
