import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { silentLog } from '#src/runtime/log.ts';
import {
  type CrdManifest,
  installCrds,
  referenceGrantCrd,
  removeCrds,
  snapshotCrds,
} from '../harness/snapshot-crds.ts';
import {
  type ApiServerUnderTest,
  at,
  Connection,
  invalid,
  listAt,
  namesOf,
  refused,
  textAt,
  unique,
} from './connection.ts';

const SNAPSHOTS = '/apis/snapshot.storage.k8s.io/v1';
const GRANTS = '/apis/gateway.networking.k8s.io';
const ATTRIBUTES_CLASSES = '/apis/storage.k8s.io/v1/volumeattributesclasses';

/** Tests kinds that not every server has: snapshots and reference grants, whose definitions the
 * suite installs and removes, and volume attributes classes, which only newer servers have. */
export function describeCustomKinds(
  name: string,
  open: () => Promise<ApiServerUnderTest & { readonly kubeconfig: string }>,
): void {
  describe(`optional kinds: ${name}`, () => {
    let server: ApiServerUnderTest;
    let connection: Connection;
    let kube: KubeClient;
    before(async () => {
      const opened = await open();
      server = opened;
      connection = new Connection(opened);
      const access = await loadClusterAccess({ kubeconfig: opened.kubeconfig, env: {} });
      kube = createKubeClient({ access, userAgent: 'test', log: silentLog });
      await mustBeAbsent(connection, [...snapshotCrds, referenceGrantCrd(['v1'])]);
      await installCrds(kube);
    });
    after(async () => {
      await connection.close();
      try {
        await removeCrds(kube);
      } finally {
        await kube.close();
        await server.close();
      }
    });
    describeSnapshotKinds(() => connection);
    describeGrantVersions(
      () => connection,
      () => kube,
    );
    describeAttributesClasses(() => connection);
  });
}

/** Checks that the kinds do not exist, because the suite removes them with all their objects. */
async function mustBeAbsent(api: Connection, crds: readonly CrdManifest[]): Promise<void> {
  for (const { metadata } of crds) {
    const path = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${metadata.name}`;
    const reply = await api.get(path);
    assert.equal(reply.status, 404, `${path} exists already; use a cluster without it`);
  }
}

function describeSnapshotKinds(api: () => Connection): void {
  describe('the snapshot kinds', () => {
    it('are listed by discovery as soon as they are installed', async () => {
      const { body } = await api().until(
        SNAPSHOTS,
        (reply) => listAt(reply.body, 'resources').length >= 5,
      );
      const found = listAt(body, 'resources').map((entry) => [
        at(entry, 'name'),
        at(entry, 'namespaced'),
        at(entry, 'kind'),
      ]);
      assert.deepEqual(
        found.toSorted((a, b) => (String(a[0]) < String(b[0]) ? -1 : 1)),
        [
          ['volumesnapshotclasses', false, 'VolumeSnapshotClass'],
          ['volumesnapshotcontents', false, 'VolumeSnapshotContent'],
          ['volumesnapshotcontents/status', false, 'VolumeSnapshotContent'],
          ['volumesnapshots', true, 'VolumeSnapshot'],
          ['volumesnapshots/status', true, 'VolumeSnapshot'],
        ],
      );
    });

    it('are created, listed and watched', async () => {
      const path = `${SNAPSHOTS}/namespaces/${await api().namespace()}/volumesnapshots`;
      const watch = await api().watch(path, {
        resourceVersion: textAt(await api().read(path), 'metadata', 'resourceVersion'),
      });
      await api().create(path, snapshot('a'));
      await api().patch('merge', `${path}/a`, { metadata: { finalizers: ['sutler.dev/one'] } });
      await api().patch('merge', `${path}/a/status`, { status: { readyToUse: true } });
      assert.deepEqual(namesOf(await api().read(path)), ['a']);
      assert.ok(namesOf(await api().read(`${SNAPSHOTS}/volumesnapshots`)).includes('a'));
      await api().patch('merge', `${path}/a`, { metadata: { finalizers: null } });
      await api().call('DELETE', `${path}/a`);
      assert.deepEqual(await watch.take(5), [
        'ADDED a',
        'MODIFIED a',
        'MODIFIED a',
        'MODIFIED a',
        'DELETED a',
      ]);
    });

    for (const [kind, plural, make] of [
      ['VolumeSnapshot', 'volumesnapshots', snapshot],
      ['VolumeSnapshotContent', 'volumesnapshotcontents', content],
    ] as const) {
      const collection = async (): Promise<string> =>
        kind === 'VolumeSnapshot'
          ? `${SNAPSHOTS}/namespaces/${await api().namespace()}/${plural}`
          : `${SNAPSHOTS}/${plural}`;

      it(`change the status of a ${kind} at its own path only`, async () => {
        const path = await collection();
        const name = unique('s');
        const created = await api().create(path, { ...make(name), status: { readyToUse: true } });
        assert.equal(at(created, 'status'), undefined);
        const put = await api().call('PUT', `${path}/${name}/status`, {
          body: { ...Object(created), spec: {}, status: { restoreSize: '1Gi' } },
        });
        assert.deepEqual(
          [at(put.body, 'status'), at(put.body, 'spec')],
          [{ restoreSize: '1Gi' }, make(name).spec],
        );
        const patched = await api().patch('merge', `${path}/${name}/status`, {
          status: { readyToUse: true },
        });
        assert.deepEqual(at(patched.body, 'status'), { restoreSize: '1Gi', readyToUse: true });
        const main = await api().patch('merge', `${path}/${name}`, {
          status: { readyToUse: false },
          metadata: { labels: { x: 'y' } },
        });
        assert.deepEqual(
          [at(main.body, 'status', 'readyToUse'), at(main.body, 'metadata', 'labels')],
          [true, { x: 'y' }],
        );
      });

      it(`refuse an update of a ${kind} with an old resourceVersion`, async () => {
        const path = await collection();
        const name = unique('s');
        const created = await api().create(path, make(name));
        await api().patch('merge', `${path}/${name}`, { metadata: { labels: { x: 'y' } } });
        refused(await api().call('PUT', `${path}/${name}`, { body: created }), {
          code: 409,
          reason: 'Conflict',
        });
      });
    }

    it('keep fields that the schema does not describe', async () => {
      const name = unique('class');
      const made = await api().create(`${SNAPSHOTS}/volumesnapshotclasses`, {
        apiVersion: 'snapshot.storage.k8s.io/v1',
        kind: 'VolumeSnapshotClass',
        metadata: { name },
        driver: 'x.sutler.dev',
        deletionPolicy: 'Delete',
        parameters: { a: 'b' },
      });
      const read = await api().read(`${SNAPSHOTS}/volumesnapshotclasses/${name}`);
      assert.deepEqual(read, made);
      assert.deepEqual(at(read, 'parameters'), { a: 'b' });
    });
  });
}

function describeGrantVersions(api: () => Connection, kube: () => KubeClient): void {
  describe('reference grants', () => {
    const grant = (name: string, version: string) => ({
      apiVersion: `gateway.networking.k8s.io/${version}`,
      kind: 'ReferenceGrant',
      metadata: { name },
      spec: {
        from: [{ group: '', kind: 'PersistentVolumeClaim', namespace: 'b' }],
        to: [{ group: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot' }],
      },
    });
    after(() => removeCrds(kube(), [referenceGrantCrd(['v1beta1', 'v1'])]));

    it('are served in all versions of their definition, also in a later one', async () => {
      await installCrds(kube(), [referenceGrantCrd(['v1beta1'])]);
      const namespace = await api().namespace();
      const path = (version: string): string =>
        `${GRANTS}/${version}/namespaces/${namespace}/referencegrants`;
      await api().create(path('v1beta1'), grant('g', 'v1beta1'));
      assert.equal((await api().get(path('v1'))).status, 404);
      await installCrds(kube(), [referenceGrantCrd(['v1beta1', 'v1'])]);
      const seen = await api().read(`${path('v1')}/g`);
      assert.deepEqual(
        [at(seen, 'apiVersion'), at(seen, 'spec')],
        ['gateway.networking.k8s.io/v1', grant('g', 'v1').spec],
      );
    });

    it('are not served in a version that was removed', async () => {
      await installCrds(kube(), [referenceGrantCrd(['v1beta1', 'v1'])]);
      await installCrds(kube(), [referenceGrantCrd(['v1beta1'])]);
      await api().until(`${GRANTS}/v1/referencegrants`, (reply) => reply.status === 404);
      assert.equal((await api().get(`${GRANTS}/v1beta1/referencegrants`)).status, 200);
    });
  });
}

function describeAttributesClasses(api: () => Connection): void {
  describe('a volume attributes class', () => {
    const attributesClass = (name: string) => ({
      apiVersion: 'storage.k8s.io/v1',
      kind: 'VolumeAttributesClass',
      metadata: { name },
      driverName: 'x.sutler.dev',
      parameters: { iops: '100' },
    });

    it('is created, read and deleted', async () => {
      const name = unique('vac');
      const created = await api().create(ATTRIBUTES_CLASSES, attributesClass(name));
      assert.deepEqual(at(created, 'parameters'), { iops: '100' });
      assert.deepEqual(await api().read(`${ATTRIBUTES_CLASSES}/${name}`), created);
      assert.equal((await api().call('DELETE', `${ATTRIBUTES_CLASSES}/${name}`)).status, 200);
    });

    for (const [field, value] of [
      ['driverName', 'y.sutler.dev'],
      ['parameters', { iops: '200' }],
    ] as const) {
      it(`has an immutable ${field}`, async () => {
        const name = unique('vac');
        await api().create(ATTRIBUTES_CLASSES, attributesClass(name));
        refused(
          await api().patch('merge', `${ATTRIBUTES_CLASSES}/${name}`, { [field]: value }),
          invalid(new RegExp(field)),
        );
      });
    }

    it('requires a driver', async () => {
      const { driverName, ...rest } = attributesClass(unique('vac'));
      assert.equal(driverName, 'x.sutler.dev');
      refused(await api().call('POST', ATTRIBUTES_CLASSES, { body: rest }), invalid(/driverName/));
    });
  });
}

function snapshot(name: string) {
  return {
    apiVersion: 'snapshot.storage.k8s.io/v1',
    kind: 'VolumeSnapshot',
    metadata: { name },
    spec: { source: { persistentVolumeClaimName: 'c' }, volumeSnapshotClassName: 'k' },
  };
}

function content(name: string) {
  return {
    apiVersion: 'snapshot.storage.k8s.io/v1',
    kind: 'VolumeSnapshotContent',
    metadata: { name },
    spec: {
      deletionPolicy: 'Delete',
      driver: 'x.sutler.dev',
      source: { snapshotHandle: 'h' },
      volumeSnapshotRef: { namespace: 'default', name: 's' },
    },
  };
}
