import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { startCaches, type Caches } from '#src/jobs/caches.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { volumeAttachments } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { until } from '../harness/csi-folder.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';

const ATTACHES = { controllerCapabilities: new Set(['PUBLISH_UNPUBLISH_VOLUME']) };
const DOES_NOT_ATTACH = { controllerCapabilities: new Set<string>() };

describe('attachments in the views', () => {
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
  async function withViews(
    driver: typeof ATTACHES,
    use: (views: Caches) => Promise<void>,
  ): Promise<readonly string[]> {
    const asked: string[] = [];
    const client: KubeClient = {
      ...kube,
      list: (resource, o) => (asked.push(resource.plural), kube.list(resource, o)),
      watch: (resource, o) => (asked.push(resource.plural), kube.watch(resource, o)),
    };
    const views = startCaches({ client, log: silentLog, metrics: new Registry() });
    try {
      await views.synced(driver, new AbortController().signal);
      await use(views);
    } finally {
      await views.stop();
    }
    return asked;
  }
  const namesOf = (views: Caches, volume: string) =>
    views
      .attachedTo(volume)
      .map(({ metadata }) => metadata.name)
      .sort();

  it('are found by volume, with name, version and node', async () => {
    await attach('one', { persistentVolumeName: 'pv-1' });
    await attach('two', { persistentVolumeName: 'pv-1' }, 'node-2');
    await attach('three', { persistentVolumeName: 'pv-2' });
    await withViews(ATTACHES, (views) => {
      assert.deepEqual(namesOf(views, 'pv-1'), ['one', 'two']);
      assert.deepEqual(namesOf(views, 'pv-3'), []);
      const [found] = views.attachedTo('pv-2');
      assert.equal(found?.spec.nodeName, 'node-1');
      assert.match(found.metadata.resourceVersion, /^\d+$/);
      return Promise.resolve();
    });
  });

  it('go when they are deleted, and only then', async () => {
    await attach('four', { persistentVolumeName: 'pv-4' });
    await withViews(ATTACHES, async (views) => {
      const [before] = views.attachedTo('pv-4');
      await kube.patch(
        volumeAttachments,
        { name: 'four' },
        { type: 'merge', body: { metadata: { finalizers: ['example.com/x'] } } },
      );
      await kube.delete(volumeAttachments, { name: 'four' });
      await until('the attachment’s new version is seen', () => {
        const [now] = views.attachedTo('pv-4');
        return (
          now !== undefined &&
          Number(now.metadata.resourceVersion) > Number(before?.metadata.resourceVersion) + 1
        );
      });
      await kube.patch(
        volumeAttachments,
        { name: 'four' },
        { type: 'merge', body: { metadata: { finalizers: null } } },
      );
      await until('the attachment is gone', () => views.attachedTo('pv-4').length === 0);
    });
  });

  it('of a volume that stands in a pod’s own spec are nobody’s (R-27)', async () => {
    const csi = { driver: 'a.example.com', volumeHandle: 'h' };
    await attach('inline', {
      inlineVolumeSpec: { accessModes: ['ReadWriteOnce'], capacity: { storage: '1Mi' }, csi },
    });
    await attach('behind-it', { persistentVolumeName: 'pv-5' });
    await withViews(ATTACHES, (views) => {
      assert.deepEqual(namesOf(views, 'pv-5'), ['behind-it']);
      assert.deepEqual(views.attachedTo(''), []);
      assert.deepEqual(views.attachedTo('undefined'), []);
      return Promise.resolve();
    });
  });

  it('are neither listed nor watched for a driver that does not attach (R-28)', async () => {
    await attach('unseen', { persistentVolumeName: 'pv-6' });
    const asked = await withViews(DOES_NOT_ATTACH, (views) => {
      assert.deepEqual(views.attachedTo('pv-6'), []);
      return Promise.resolve();
    });
    assert.ok(asked.includes('storageclasses'), 'classes were');
    assert.ok(!asked.includes('volumeattachments'));
  });
});
