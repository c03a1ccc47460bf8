import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Controller } from '#src/csi/generated/csi_pb.ts';
import { createKubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import {
  at,
  Connection,
  type Fields,
  listAt,
  type Reply,
  textAt,
  unique,
} from '../conformance/connection.ts';
import { claim, CLASSES, paths, storageClass, VOLUMES } from '../conformance/objects.ts';
import { startSutler } from '../harness/differential/provisioners.ts';
import { type HostPathDriver, startHostPathDriver } from '../harness/host-path-driver.ts';
import { realControlPlane } from '../harness/real-control-plane.ts';
import { installCrds } from '../harness/snapshot-crds.ts';

const SNAPSHOTS = '/apis/snapshot.storage.k8s.io/v1';
const program = process.env['CSI_HOSTPATH'];

if (program === undefined || program === '') {
  process.stdout.write(
    'sutler with csi-driver-host-path: not tested; ' +
      'set CSI_HOSTPATH to the path of hostpathplugin\n',
  );
} else {
  const open = realControlPlane(process.env, { binder: true });
  describe('sutler with csi-driver-host-path', () => {
    const closers = new Closers();
    let api: Connection;
    let driver: HostPathDriver;
    let namespace: string;
    let className: string;
    before(async () => {
      try {
        const plane = await open();
        closers.add('cluster', () => plane.close());
        api = new Connection(plane);
        closers.add('connection', () => api.close());
        await installSnapshotCrds(plane.kubeconfig);
        const folder = await mkdtemp(join(tmpdir(), 'sutler-host-path-'));
        closers.add('folder', () => rm(folder, { recursive: true, force: true }));
        driver = await startHostPathDriver({
          program,
          folder,
          name: `${unique('hostpath')}.csi.k8s.io`,
        });
        closers.add('driver', () => driver.stop());
        namespace = await api.namespace();
        const sutler = await startSutler({
          kubeconfig: plane.kubeconfig,
          socket: driver.socket,
          env: {},
          folder,
          namespace,
          flags: ['--retry-interval-start=200ms'],
        });
        closers.add('sutler', () => sutler.stop());
        className = unique('class');
        await api.create(
          CLASSES,
          storageClass(className, { fields: { provisioner: driver.name } }),
        );
      } catch (error) {
        await closers.close();
        throw error;
      }
    });
    after(async () => {
      assert.deepEqual(await closers.close(), []);
    });

    it('creates a plain volume that the driver has', async () => {
      const volume = await bind('plain');
      assert.equal(at(volume, 'spec', 'csi', 'driver'), driver.name);
      assert.ok((await handles()).includes(handleOf(volume)));
    });

    it('creates a Block volume', async () => {
      const volume = await bind('block', { volumeMode: 'Block' });
      assert.equal(at(volume, 'spec', 'volumeMode'), 'Block');
    });

    it('clones a claim with its content', async () => {
      await writeText(await bind('origin'), 'cloned');
      const volume = await bind('copy', {
        dataSource: { kind: 'PersistentVolumeClaim', name: 'origin' },
      });
      assert.equal(await readText(volume), 'cloned');
    });

    it('restores a snapshot as it was', async () => {
      const source = await bind('pictured');
      await writeText(source, 'restored');
      const { snapshot } = await driver.call(Controller.method.createSnapshot, {
        sourceVolumeId: handleOf(source),
        name: unique('snapshot'),
      });
      await writeText(source, 'written later');
      assert.ok(snapshot !== undefined);
      await makeSnapshot('picture', snapshot.snapshotId);
      const volume = await bind('restored', {
        dataSource: {
          apiGroup: 'snapshot.storage.k8s.io',
          kind: 'VolumeSnapshot',
          name: 'picture',
        },
      });
      await api.until(
        `${SNAPSHOTS}/namespaces/${namespace}/volumesnapshots/picture`,
        (reply) => listAt(reply.body, 'metadata', 'finalizers').length === 0,
      );
      assert.equal(await readText(volume), 'restored');
      await driver.call(Controller.method.deleteSnapshot, { snapshotId: snapshot.snapshotId });
    });

    it('repeats the driver’s message if it creates no volume', async () => {
      await api.create(
        paths(namespace).claims,
        claim('huge', {
          spec: { storageClassName: className, resources: { requests: { storage: '100Ti' } } },
        }),
      );
      const about = { fieldSelector: 'involvedObject.name=huge,reason=ProvisioningFailed' };
      const { body } = await api.until(
        paths(namespace).events,
        (reply) => listAt(reply.body, 'items').length > 0,
        about,
      );
      assert.match(
        textAt(body, 'items', 0, 'message'),
        /rpc error: code = OutOfRange desc = .*exceeds maximum allowed/,
      );
    });

    it('deletes every volume with its claim, and leaves none in the driver', async () => {
      assert.ok((await handles()).length >= 5);
      const { claims } = paths(namespace);
      assert.equal((await api.call('DELETE', claims)).status, 200);
      await api.until(claims, (reply) => listAt(reply.body, 'items').length === 0);
      await api.until(VOLUMES, (reply) =>
        listAt(reply.body, 'items').every(
          (volume) => at(volume, 'spec', 'csi', 'driver') !== driver.name,
        ),
      );
      assert.deepEqual(await handles(), []);
    });

    /** Creates a claim, waits until it is Bound, and returns its volume. */
    async function bind(name: string, spec: Fields = {}): Promise<unknown> {
      const { claims } = paths(namespace);
      await api.create(claims, claim(name, { spec: { storageClassName: className, ...spec } }));
      const isBound = (reply: Reply): boolean => at(reply.body, 'status', 'phase') === 'Bound';
      const bound = await api.until(`${claims}/${name}`, isBound);
      return api.read(`${VOLUMES}/${textAt(bound.body, 'spec', 'volumeName')}`);
    }

    function fileOf(volume: unknown): string {
      return join(driver.volumes, handleOf(volume), 'text');
    }

    async function writeText(volume: unknown, text: string): Promise<void> {
      await writeFile(fileOf(volume), text);
    }

    async function readText(volume: unknown): Promise<string> {
      return readFile(fileOf(volume), 'utf8');
    }

    async function handles(): Promise<readonly string[]> {
      const { entries } = await driver.call(Controller.method.listVolumes, {});
      return entries.map((entry) => entry.volume?.volumeId ?? '');
    }

    /** Writes what the snapshot controller would write for an existing snapshot. */
    async function makeSnapshot(name: string, snapshotHandle: string): Promise<void> {
      const contentName = unique('content');
      const snapshots = `${SNAPSHOTS}/namespaces/${namespace}/volumesnapshots`;
      const apiVersion = 'snapshot.storage.k8s.io/v1';
      const made = await api.create(snapshots, {
        apiVersion,
        kind: 'VolumeSnapshot',
        metadata: { name },
        spec: { source: { volumeSnapshotContentName: contentName } },
      });
      await api.create(`${SNAPSHOTS}/volumesnapshotcontents`, {
        apiVersion,
        kind: 'VolumeSnapshotContent',
        metadata: { name: contentName },
        spec: {
          deletionPolicy: 'Retain',
          driver: driver.name,
          source: { snapshotHandle },
          volumeSnapshotRef: {
            apiVersion,
            kind: 'VolumeSnapshot',
            name,
            namespace,
            uid: textAt(made, 'metadata', 'uid'),
          },
        },
      });
      const ready = { readyToUse: true, restoreSize: '1Gi' };
      await setStatus(`${SNAPSHOTS}/volumesnapshotcontents/${contentName}`, {
        snapshotHandle,
        readyToUse: true,
        restoreSize: 1024 ** 3,
      });
      await setStatus(`${snapshots}/${name}`, {
        ...ready,
        boundVolumeSnapshotContentName: contentName,
      });
    }

    async function setStatus(path: string, status: Fields): Promise<void> {
      const reply = await api.patch('merge', `${path}/status`, { status });
      assert.equal(reply.status, 200, reply.text);
    }
  });
}

function handleOf(volume: unknown): string {
  return textAt(volume, 'spec', 'csi', 'volumeHandle');
}

async function installSnapshotCrds(kubeconfig: string): Promise<void> {
  const access = await loadClusterAccess({ kubeconfig, master: '', env: {} });
  const kube = createKubeClient({
    access,
    userAgent: 'sutler-test',
    maxInFlight: 8,
    qps: 0,
    burst: 10,
    log: silentLog,
  });
  try {
    await installCrds(kube);
  } finally {
    await kube.close();
  }
}
