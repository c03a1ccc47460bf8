import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Controller } from '#src/csi/generated/csi_pb.ts';
import { at, type Fields, listAt, textAt, unique } from '../conformance/connection.ts';
import { CLASSES, paths, storageClass, VOLUMES } from '../conformance/objects.ts';
import { makeSnapshot, snapshotPlace } from '../harness/differential/snapshot-objects.ts';
import { HOST_PATH_PROGRAM, type HostPathBed, openHostPathBed } from '../harness/host-path-bed.ts';
import { installCrdsIn } from '../harness/snapshot-crds.ts';

const SNAPSHOTS = '/apis/snapshot.storage.k8s.io/v1';
const CALL = { timeoutMs: 30_000 };

if (HOST_PATH_PROGRAM !== undefined) {
  const program = HOST_PATH_PROGRAM;
  describe('sutler with csi-driver-host-path', () => {
    let bed: HostPathBed;
    const className = unique('class');
    before(async () => {
      bed = await openHostPathBed(program);
      const { api, driver, plane } = bed;
      await installCrdsIn(plane.kubeconfig);
      await bed.startSutler([]);
      const fields = { provisioner: driver.name };
      await api.create(CLASSES, storageClass(className, { fields }));
    });
    after(() => bed.close());

    it('creates a plain volume that the driver has', async () => {
      const volume = await bind('plain');
      assert.equal(at(volume, 'spec', 'csi', 'driver'), bed.driver.name);
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
      const { snapshot } = await bed.driver.client.call(
        Controller.method.createSnapshot,
        { sourceVolumeId: handleOf(source), name: unique('snapshot') },
        CALL,
      );
      await writeText(source, 'written later');
      assert.ok(snapshot !== undefined);
      const { snapshotId: snapshotHandle } = snapshot;
      await makeSnapshot(snapshotPlace(bed.api, bed.namespace, bed.driver.name), 'picture', {
        content: { source: { snapshotHandle } },
        contentStatus: { snapshotHandle },
      });
      const volume = await bind('restored', {
        dataSource: {
          apiGroup: 'snapshot.storage.k8s.io',
          kind: 'VolumeSnapshot',
          name: 'picture',
        },
      });
      await bed.api.until(
        `${SNAPSHOTS}/namespaces/${bed.namespace}/volumesnapshots/picture`,
        (reply) => listAt(reply.body, 'metadata', 'finalizers').length === 0,
      );
      assert.equal(await readText(volume), 'restored');
      await bed.driver.client.call(
        Controller.method.deleteSnapshot,
        { snapshotId: snapshotHandle },
        CALL,
      );
    });

    it('repeats the driver’s message if it creates no volume', async () => {
      const resources = { requests: { storage: '100Ti' } };
      await bed.createClaim('huge', { storageClassName: className, resources });
      assert.match(
        await bed.failureOf('huge'),
        /rpc error: code = OutOfRange desc = .*exceeds maximum allowed/,
      );
    });

    it('deletes every volume with its claim, and leaves none in the driver', async () => {
      assert.ok((await handles()).length >= 5);
      const { claims } = paths(bed.namespace);
      assert.equal((await bed.api.call('DELETE', claims)).status, 200);
      await bed.api.until(claims, (reply) => listAt(reply.body, 'items').length === 0);
      await bed.api.until(VOLUMES, (reply) =>
        listAt(reply.body, 'items').every(
          (volume) => at(volume, 'spec', 'csi', 'driver') !== bed.driver.name,
        ),
      );
      assert.deepEqual(await handles(), []);
    });

    function bind(name: string, spec: Fields = {}): Promise<unknown> {
      return bed.bind(name, { storageClassName: className, ...spec });
    }

    function fileOf(volume: unknown): string {
      return join(bed.driver.volumes, handleOf(volume), 'text');
    }

    async function writeText(volume: unknown, text: string): Promise<void> {
      await writeFile(fileOf(volume), text);
    }

    async function readText(volume: unknown): Promise<string> {
      return readFile(fileOf(volume), 'utf8');
    }

    async function handles(): Promise<readonly string[]> {
      const { entries } = await bed.driver.client.call(Controller.method.listVolumes, {}, CALL);
      return entries.map((entry) => entry.volume?.volumeId ?? '');
    }
  });
}

function handleOf(volume: unknown): string {
  return textAt(volume, 'spec', 'csi', 'volumeHandle');
}
