import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type DriverCaches, startCaches } from '#src/jobs/caches.ts';
import type { KubeClient } from '#src/kube/client.ts';
import { nodes, volumeAttachments } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { Registry } from '#src/runtime/metrics.ts';
import type { DriverFacts } from '#src/volumes/driver-facts.ts';
import { DEFAULT_GATES, type FeatureGates } from '#src/volumes/flags.ts';
import { openSandboxCluster, type SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

const PLAIN: DriverFacts = {
  name: 'a.example.com',
  pluginCapabilities: new Set(['CONTROLLER_SERVICE']),
  controllerCapabilities: new Set(),
};
const ATTACHES = { ...PLAIN, controllerCapabilities: new Set(['PUBLISH_UNPUBLISH_VOLUME']) };
const WITH_TOPOLOGY = {
  ...PLAIN,
  pluginCapabilities: new Set(['CONTROLLER_SERVICE', 'VOLUME_ACCESSIBILITY_CONSTRAINTS']),
};

describe('the caches of jobs', () => {
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
    driver: DriverFacts,
    use: (caches: DriverCaches) => Promise<void>,
    gates: FeatureGates = DEFAULT_GATES,
  ): Promise<readonly string[]> {
    const asked: string[] = [];
    const client: KubeClient = {
      ...kube,
      list: (resource, o) => (asked.push(resource.plural), kube.list(resource, o)),
      watch: (resource, o) => (asked.push(resource.plural), kube.watch(resource, o)),
    };
    const ofProcess = startCaches({ client, log: silentLog, metrics: new Registry() });
    const caches = ofProcess.openDriver(driver, gates);
    try {
      await caches.waitForSync(new AbortController().signal);
      await use(caches);
    } finally {
      await caches.stop();
      await ofProcess.stop();
    }
    return asked;
  }
  const namesOf = (caches: DriverCaches, volume: string) =>
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
    const ref = { name: 'four' };
    const setFinalizers = (finalizers: readonly string[] | null) =>
      kube.patch(volumeAttachments, ref, { type: 'merge', body: { metadata: { finalizers } } });
    await attach('four', { persistentVolumeName: 'pv-4' });
    await setFinalizers(['example.com/x']);
    await withCaches(ATTACHES, async (caches) => {
      const versionNow = () => caches.attachedTo('pv-4')[0]?.metadata.resourceVersion;
      const before = versionNow();
      await kube.delete(volumeAttachments, ref);
      await until(() => ![undefined, before].includes(versionNow()), 'its end is seen');
      await setFinalizers(null);
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
    const asked = await withCaches(PLAIN, (caches) => {
      assert.deepEqual(caches.attachedTo('pv-6'), []);
      return Promise.resolve();
    });
    assert.ok(asked.includes('storageclasses'), 'classes were');
    assert.ok(!asked.includes('volumeattachments'));
  });

  it('ask for no nodes for a driver without topology, or without the feature gate', async () => {
    const noTopology = { ...DEFAULT_GATES, Topology: false };
    for (const asked of [
      await withCaches(PLAIN, () => Promise.resolve()),
      await withCaches(WITH_TOPOLOGY, () => Promise.resolve(), noTopology),
    ]) {
      assert.ok(asked.includes('storageclasses'), 'classes were');
      assert.deepEqual(
        asked.filter((plural) => plural.endsWith('nodes')),
        [],
      );
    }
  });

  it('have the nodes of a driver with topology from the start', async () => {
    const node = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n', labels: { zone: 'a' } } };
    await kube.create(nodes, undefined, node);
    await withCaches(WITH_TOPOLOGY, (caches) => {
      assert.deepEqual(caches.topology()?.node('n')?.labels, { zone: 'a' });
      return Promise.resolve();
    });
  });

  it('list the nodes for a driver that gets topology later', async () => {
    await withCaches(PLAIN, async (caches) => {
      assert.equal(caches.topology(), undefined);
      await until(() => caches.topology() !== undefined, 'the nodes are listed');
    });
  });
});
