import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type Caches, startCaches } from '#src/jobs/caches.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { volumeAttachments } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const ATTACHES = { controllerCapabilities: new Set(['PUBLISH_UNPUBLISH_VOLUME']) };
const DOES_NOT_ATTACH = { controllerCapabilities: new Set<string>() };

describe('the cache of attachments', () => {
  let cluster: SandboxCluster;
  let kube: KubeClient;
  before(async () => {
    cluster = await openSandboxCluster();
    kube = await cluster.client();
  });
  after(async () => {
    await cluster.close();
  });

  const attach = (name: string, source: object, nodeName = 'node-1') =>
    kube.create(volumeAttachments, undefined, {
      apiVersion: 'storage.k8s.io/v1',
      kind: 'VolumeAttachment',
      metadata: { name },
      spec: { attacher: 'a.example.com', nodeName, source },
    });
  async function withCaches(
    driver: typeof ATTACHES,
    use: (caches: Caches) => Promise<void>,
  ): Promise<readonly string[]> {
    const asked: string[] = [];
    const client: KubeClient = {
      ...kube,
      list: (resource, o) => (asked.push(resource.plural), kube.list(resource, o)),
      watch: (resource, o) => (asked.push(resource.plural), kube.watch(resource, o)),
    };
    const caches = startCaches({ client, log: silentLog, metrics: new Registry() });
    try {
      await caches.waitForSync(driver, new AbortController().signal);
      await use(caches);
    } finally {
      await caches.stop();
    }
    return asked;
  }
  const namesOf = (caches: Caches, volume: string) =>
    caches
      .attachedTo(volume)
      .map(({ metadata }) => metadata.name)
      .sort();

  it('finds attachments by volume, with name, version and node', async () => {
    await attach('one', { persistentVolumeName: 'pv-1' });
    await attach('two', { persistentVolumeName: 'pv-1' }, 'node-2');
    await attach('three', { persistentVolumeName: 'pv-2' });
    await withCaches(ATTACHES, (caches) => {
      assert.deepEqual(namesOf(caches, 'pv-1'), ['one', 'two']);
      assert.deepEqual(namesOf(caches, 'pv-3'), []);
      const [found] = caches.attachedTo('pv-2');
      assert.equal(found?.spec.nodeName, 'node-1');
      assert.match(found.metadata.resourceVersion, /^\d+$/);
      return Promise.resolve();
    });
  });

  it('drops an attachment only when it is deleted', async () => {
    await attach('four', { persistentVolumeName: 'pv-4' });
    await withCaches(ATTACHES, async (caches) => {
      const [before] = caches.attachedTo('pv-4');
      await kube.patch(
        volumeAttachments,
        { name: 'four' },
        { type: 'merge', body: { metadata: { finalizers: ['example.com/x'] } } },
      );
      await kube.delete(volumeAttachments, { name: 'four' });
      await until(() => {
        const [now] = caches.attachedTo('pv-4');
        return (
          now !== undefined &&
          Number(now.metadata.resourceVersion) > Number(before?.metadata.resourceVersion) + 1
        );
      }, 'the attachment’s new version is seen');
      await kube.patch(
        volumeAttachments,
        { name: 'four' },
        { type: 'merge', body: { metadata: { finalizers: null } } },
      );
      await until(() => caches.attachedTo('pv-4').length === 0, 'the attachment is gone');
    });
  });

  it('leaves out attachments of pods’ inline volumes (R-27)', async () => {
    const csi = { driver: 'a.example.com', volumeHandle: 'h' };
    await attach('inline', {
      inlineVolumeSpec: { accessModes: ['ReadWriteOnce'], capacity: { storage: '1Mi' }, csi },
    });
    await attach('behind-it', { persistentVolumeName: 'pv-5' });
    await withCaches(ATTACHES, (caches) => {
      assert.deepEqual(namesOf(caches, 'pv-5'), ['behind-it']);
      assert.deepEqual(caches.attachedTo(''), []);
      assert.deepEqual(caches.attachedTo('undefined'), []);
      return Promise.resolve();
    });
  });

  it('neither lists nor watches for a driver that does not attach (R-28)', async () => {
    await attach('unseen', { persistentVolumeName: 'pv-6' });
    const asked = await withCaches(DOES_NOT_ATTACH, (caches) => {
      assert.deepEqual(caches.attachedTo('pv-6'), []);
      return Promise.resolve();
    });
    assert.ok(asked.includes('storageclasses'), 'classes were');
    assert.ok(!asked.includes('volumeattachments'));
  });
});
