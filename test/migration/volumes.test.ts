import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { NewVolume, VolumeSpec } from '#src/kube/objects.ts';
import { isInTreeVolume, PLUGINS, toCsiVolume, toInTreeVolume } from '#src/migration/plugins.ts';
import type { SourceField } from '#src/migration/in-tree-plugin.ts';
import { affinity, aNewVolume, aStoredVolume, refusal } from './builders.ts';

const URI = '/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/disk';
/** A PV's spec for each in-tree source. */
const SOURCES: Readonly<Record<SourceField, VolumeSpec>> = {
  gcePersistentDisk: { gcePersistentDisk: { pdName: 'disk', fsType: 'ext4' } },
  awsElasticBlockStore: {
    awsElasticBlockStore: { volumeID: 'vol-1', fsType: 'ext4', readOnly: true, partition: 1 },
  },
  cinder: { cinder: { volumeID: 'id', readOnly: true } },
  azureDisk: {
    azureDisk: {
      diskName: 'disk',
      diskURI: URI,
      cachingMode: 'None',
      fsType: 'ext4',
      kind: 'Managed',
      readOnly: true,
    },
  },
  azureFile: {
    azureFile: { secretName: 'secret', shareName: 'share', secretNamespace: 'ns', readOnly: true },
  },
  vsphereVolume: { vsphereVolume: { volumePath: 'path', fsType: 'ext4' } },
  portworxVolume: { portworxVolume: { volumeID: 'id', fsType: 'ext4' } },
};
const HANDLES: Readonly<Partial<Record<SourceField, string>>> = {
  gcePersistentDisk: 'projects/p/zones/us-east1-b/disks/disk',
  azureDisk: URI,
  azureFile: 'group#account#share',
};

/** The new volume from which a stored one was made. */
function asNew({
  metadata: { name, labels, annotations },
  spec,
}: ReturnType<typeof toCsiVolume>): NewVolume {
  const metadata = { name, ...(labels ? { labels } : {}), ...(annotations ? { annotations } : {}) };
  return { apiVersion: 'v1', kind: 'PersistentVolume', metadata, spec };
}

describe('isInTreeVolume', () => {
  for (const { source } of PLUGINS) {
    it(`is true for ${source}`, () =>
      assert.equal(isInTreeVolume(aStoredVolume(SOURCES[source])), true));
  }
  it('is false for a CSI volume and for one of another kind', () => {
    assert.equal(isInTreeVolume(aNewVolume('some.driver')), false);
    assert.equal(isInTreeVolume(aStoredVolume({ hostPath: { path: '/' } })), false);
  });
});

describe('toCsiVolume', () => {
  for (const { source, csiDriver } of PLUGINS) {
    it(`replaces ${source} by a source of ${csiDriver}, and keeps all else`, () => {
      const others = { storageClassName: 'class', mountOptions: ['o'], unknown: { to: 'us' } };
      const volume = aStoredVolume({ ...SOURCES[source], ...others });
      const { spec, ...around } = toCsiVolume(volume);
      const { csi, capacity, ...rest } = spec;
      assert.equal(csi?.driver, csiDriver);
      assert.deepEqual(capacity, { storage: '1Gi' });
      assert.deepEqual(rest, others);
      const { spec: _, ...expected } = volume;
      assert.deepEqual(around, expected);
    });
  }

  it('refuses a volume without an in-tree source', () => {
    assert.throws(
      () => toCsiVolume(aStoredVolume({})),
      refusal('could not find in-tree plugin translation logic for "pv"'),
    );
    const csi = { driver: 'ebs.csi.aws.com', volumeHandle: 'vol-1' };
    assert.throws(
      () => toCsiVolume(aStoredVolume({ csi })),
      refusal('could not find in-tree plugin translation logic for "pv"'),
    );
  });
});

describe('toInTreeVolume', () => {
  for (const { source, inTreeName } of PLUGINS) {
    it(`replaces the CSI source by ${source}, and keeps all else`, () => {
      const others = { storageClassName: 'class', mountOptions: ['o'], unknown: { to: 'us' } };
      const annotations = {
        'volume.kubernetes.io/provisioner-deletion-secret-name': 's',
        'pv.kubernetes.io/provisioned-by': inTreeName,
      };
      const csi = {
        volumeHandle: HANDLES[source] ?? 'handle',
        volumeAttributes: { sharename: 'share', secretname: 'secret' },
      };
      const volume = toInTreeVolume(
        aNewVolume(inTreeName, csi, { spec: others, metadata: { annotations } }),
      );
      const { [source]: made, capacity, ...rest } = volume.spec;
      assert.ok(made !== undefined);
      assert.deepEqual(capacity, { storage: '1Gi' });
      assert.deepEqual(rest, others);
      assert.deepEqual(volume.metadata, { name: 'pv', finalizers: ['f'], annotations });
      assert.equal(isInTreeVolume(volume), true);
    });
  }

  it('refuses a volume without a CSI source', () => {
    const { metadata, spec, ...head } = aNewVolume('x');
    const { csi: _, ...rest } = spec;
    assert.throws(
      () => toInTreeVolume({ ...head, metadata, spec: rest }),
      refusal('CSI persistent volume was nil'),
    );
  });

  for (const driver of ['sample.csi.sutler.dev', '', '__proto__']) {
    it(`refuses the driver "${driver}"`, () => {
      assert.throws(
        () => toInTreeVolume(aNewVolume(driver)),
        refusal(`could not find in-tree plugin translation logic for ${driver}`),
      );
    });
  }
});

describe('there and back', () => {
  // Not among these: vSphere, whose path is not the driver's handle. The readOnly of Portworx and
  // the secret of Cinder are lost.
  for (const source of [
    'gcePersistentDisk',
    'awsElasticBlockStore',
    'cinder',
    'azureDisk',
    'azureFile',
    'portworxVolume',
  ] as const) {
    it(`${source} is unchanged`, () => {
      const volume = aStoredVolume(
        { ...SOURCES[source], accessModes: ['ReadWriteOnce'] },
        { annotations: { a: 'b' } },
      );
      const back = toInTreeVolume(asNew(toCsiVolume(volume)));
      assert.deepEqual(back.spec, volume.spec);
      assert.deepEqual(back.metadata.annotations, { a: 'b' });
    });
  }

  it('a new GCE volume is deleted by a handle without its project', () => {
    const nodeAffinity = affinity({ 'topology.gke.io/zone': ['us-east1-b'] });
    const { metadata, spec } = toInTreeVolume(
      aNewVolume(
        'kubernetes.io/gce-pd',
        { volumeHandle: 'projects/p/zones/us-east1-b/disks/disk' },
        { spec: { nodeAffinity } },
      ),
    );
    const { labels = {} } = metadata;
    assert.equal(
      toCsiVolume(aStoredVolume(spec, { labels })).spec.csi?.volumeHandle,
      'projects/UNSPECIFIED/zones/us-east1-b/disks/disk',
    );
  });
});
