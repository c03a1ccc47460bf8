import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { VolumeSpec } from '#src/kube/objects.ts';
import { toCsiVolume, toInTreeVolume } from '#src/migration/plugins.ts';
import {
  affinity,
  aNewVolume,
  aStoredVolume,
  BETA_ZONE,
  GA_REGION,
  GA_ZONE,
  refusal,
} from './builders.ts';

const NAME = 'kubernetes.io/gce-pd';
const KEY = 'topology.gke.io/zone';
const HANDLE = 'projects/p/zones/us-east1-b/disks/disk';

describe('a GCE volume for its driver', () => {
  const stored = (spec: VolumeSpec = {}, labels: Record<string, string> = {}) =>
    toCsiVolume(aStoredVolume({ gcePersistentDisk: { pdName: 'disk' }, ...spec }, { labels }));
  const handle = (labels: Record<string, string>) => stored({}, labels).spec.csi?.volumeHandle;

  it('has the source’s fields', () => {
    const source = { pdName: 'disk', fsType: 'ext4', readOnly: true, partition: 2 };
    assert.deepEqual(stored({ gcePersistentDisk: source }).spec.csi, {
      driver: 'pd.csi.storage.gke.io',
      volumeHandle: 'projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk',
      fsType: 'ext4',
      readOnly: true,
      volumeAttributes: { partition: '2' },
    });
  });

  for (const partition of [undefined, 0]) {
    it(`has an empty partition for ${partition}`, () => {
      const source = { pdName: 'disk', ...(partition === undefined ? {} : { partition }) };
      assert.deepEqual(stored({ gcePersistentDisk: source }).spec.csi?.volumeAttributes, {
        partition: '',
      });
    });
  }

  it('is zonal by the one zone of its label', () => {
    for (const label of [GA_ZONE, BETA_ZONE]) {
      assert.equal(
        handle({ [label]: 'us-east1-b' }),
        'projects/UNSPECIFIED/zones/us-east1-b/disks/disk',
      );
    }
  });

  it('reads the beta label first, and the GA one if that is empty', () => {
    assert.equal(
      handle({ [BETA_ZONE]: 'beta', [GA_ZONE]: 'ga' }),
      'projects/UNSPECIFIED/zones/beta/disks/disk',
    );
    assert.equal(
      handle({ [BETA_ZONE]: '', [GA_ZONE]: 'ga' }),
      'projects/UNSPECIFIED/zones/ga/disks/disk',
    );
  });

  it('is regional by several zones', () => {
    assert.equal(
      handle({ [GA_ZONE]: 'us-east1-b__us-east1-c' }),
      'projects/UNSPECIFIED/regions/us-east1/disks/disk',
    );
  });

  it('is refused for several zones without a common region', () => {
    const text =
      'failed to get region from zones: multiple or no regions gotten from zones, got: ' +
      'us-east1, us-west1';
    assert.throws(() => handle({ [GA_ZONE]: 'us-east1-b__us-west1-c' }), refusal(text));
    assert.throws(
      () => handle({ [GA_ZONE]: 'us-east1-b__' }),
      /^RefusedError: failed to get region from zones: zone in unexpected format/,
    );
  });

  it('has an unspecified zone if no label names one', () => {
    assert.equal(handle({ [GA_ZONE]: '' }), 'projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk');
  });

  it('has its zones under the driver’s key', () => {
    assert.deepEqual(
      stored({ nodeAffinity: affinity({ [GA_ZONE]: ['us-east1-b'] }) }).spec.nodeAffinity,
      affinity({ [KEY]: ['us-east1-b'] }),
    );
    assert.deepEqual(
      stored({}, { [GA_ZONE]: 'us-east1-b' }).spec.nodeAffinity,
      affinity({ [KEY]: ['us-east1-b'] }),
    );
  });

  const modes: readonly (readonly [readonly string[], string])[] = [
    [['ReadWriteOnce'], 'ReadWriteOnce'],
    [['ReadWriteMany'], 'ReadWriteOnce'],
    [['ReadOnlyMany'], 'ReadOnlyMany'],
    [['ReadOnlyMany', 'ReadWriteOnce'], 'ReadWriteOnce'],
    [['ReadOnlyMany', 'ReadWriteMany'], 'ReadWriteOnce'],
    [['ReadWriteOncePod'], 'ReadWriteOnce'],
    [['ReadWriteOncePod', 'ReadOnlyMany'], 'ReadOnlyMany'],
    [[], 'ReadWriteOnce'],
  ];
  for (const [accessModes, mode] of modes) {
    it(`with access modes [${accessModes.join()}] has ${mode}`, () =>
      assert.deepEqual(stored({ accessModes }).spec.accessModes, [mode]));
  }
  it('without access modes has none', () => assert.ok(!('accessModes' in stored().spec)));
});

describe('a new volume of the GCE driver', () => {
  const source = (csi: NonNullable<Parameters<typeof aNewVolume>[1]>) =>
    toInTreeVolume(aNewVolume(NAME, { volumeHandle: HANDLE, ...csi })).spec.gcePersistentDisk;

  it('keeps disk name, file system and readOnly', () => {
    assert.deepEqual(source({ fsType: 'xfs', readOnly: true, volumeAttributes: { a: 'b' } }), {
      pdName: 'disk',
      fsType: 'xfs',
      readOnly: true,
    });
  });

  it('has the sixth part of the handle as its name', () => {
    assert.equal(
      source({ volumeHandle: 'projects/p/regions/us-east1/disks/disk/more' })?.pdName,
      'disk',
    );
    assert.equal(source({ volumeHandle: '/////' })?.pdName, '');
  });

  it('is refused for a shorter handle', () => {
    const text = 'failed to get id components.Got: 5, wanted 6 components or more. ';
    assert.throws(() => source({ volumeHandle: 'projects/p/zones/z/disks' }), refusal(text));
  });

  it('has a partition if the attributes name one', () => {
    assert.equal(source({ volumeAttributes: { partition: '3' } })?.partition, 3);
    assert.ok(!('partition' in (source({ volumeAttributes: { partition: '' } }) ?? {})));
  });

  for (const partition of ['x', '1.5', '0x1', ' 1', '2147483648']) {
    it(`is refused for partition "${partition}"`, () => {
      const why = 'it is no whole number of 32 bits';
      const text = `Failed to convert partition ${partition} to integer: ${why}`;
      assert.throws(() => source({ volumeAttributes: { partition } }), refusal(text));
    });
  }

  it('has zone and region in affinity and labels', () => {
    const given = { nodeAffinity: affinity({ [KEY]: ['us-east1-c', 'us-east1-b'] }) };
    const { metadata, spec } = toInTreeVolume(
      aNewVolume(NAME, { volumeHandle: HANDLE }, { spec: given }),
    );
    assert.deepEqual(
      spec.nodeAffinity,
      affinity({ [GA_ZONE]: ['us-east1-c', 'us-east1-b'], [GA_REGION]: ['us-east1'] }),
    );
    assert.deepEqual(metadata.labels, {
      [GA_ZONE]: 'us-east1-b__us-east1-c',
      [GA_REGION]: 'us-east1',
    });
  });

  it('is refused for a term without zones', () => {
    const text =
      'failed to translate topology. PV:pv. Error:Failed to handle region topology. error: ' +
      'no zones specified';
    const volume = aNewVolume(
      NAME,
      { volumeHandle: HANDLE },
      { spec: { nodeAffinity: affinity({ rack: ['r'] }) } },
    );
    assert.throws(() => toInTreeVolume(volume), refusal(text));
  });
});
