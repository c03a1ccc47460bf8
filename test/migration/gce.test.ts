import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CsiSource, VolumeSpec } from '#src/kube/objects.ts';
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

const KEY = 'topology.gke.io/zone';
const HANDLE = 'projects/p/zones/us-east1-b/disks/disk';

describe('a GCE volume for its driver', () => {
  const stored = (spec: VolumeSpec = {}, labels: Record<string, string> = {}) =>
    toCsiVolume(aStoredVolume({ gcePersistentDisk: { pdName: 'disk' }, ...spec }, { labels })).spec;
  const handle = (labels: Record<string, string>) => stored({}, labels).csi?.volumeHandle;

  it('has the source’s fields', () => {
    const source = { pdName: 'disk', fsType: 'ext4', readOnly: true, partition: 2 };
    assert.deepEqual(stored({ gcePersistentDisk: source }).csi, {
      driver: 'pd.csi.storage.gke.io',
      volumeHandle: 'projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk',
      fsType: 'ext4',
      readOnly: true,
      volumeAttributes: { partition: '2' },
    });
  });

  for (const source of [{ pdName: 'disk' }, { pdName: 'disk', partition: 0 }])
    it(`has an empty partition for ${JSON.stringify(source)}`, () =>
      assert.deepEqual(stored({ gcePersistentDisk: source }).csi?.volumeAttributes, {
        partition: '',
      }));

  const handles: Readonly<Record<string, readonly [Record<string, string>, place: string]>> = {
    'is zonal by the one zone of its label': [{ [GA_ZONE]: 'us-east1-b' }, 'zones/us-east1-b'],
    'reads the beta label first': [{ [BETA_ZONE]: 'beta', [GA_ZONE]: 'ga' }, 'zones/beta'],
    'reads the GA label if the beta one is empty': [
      { [BETA_ZONE]: '', [GA_ZONE]: 'ga' },
      'zones/ga',
    ],
    'is regional by several zones': [{ [GA_ZONE]: 'us-east1-b__us-east1-c' }, 'regions/us-east1'],
    'has an unspecified zone for an empty label': [{ [GA_ZONE]: '' }, 'zones/UNSPECIFIED'],
  };
  for (const [title, [labels, place]] of Object.entries(handles))
    it(title, () => assert.equal(handle(labels), `projects/UNSPECIFIED/${place}/disks/disk`));

  it('is refused for several zones without a common region', () => {
    const text =
      'failed to get region from zones: multiple or no regions gotten from zones, got: ' +
      'us-east1, us-west1';
    assert.throws(() => handle({ [GA_ZONE]: 'us-east1-b__us-west1-c' }), refusal(text));
  });

  it('has its zones under the driver’s key', () =>
    assert.deepEqual(
      stored({ nodeAffinity: affinity({ [GA_ZONE]: ['us-east1-b'] }) }).nodeAffinity,
      affinity({ [KEY]: ['us-east1-b'] }),
    ));

  const modes: readonly (readonly [readonly string[], string])[] = [
    [['ReadWriteMany'], 'ReadWriteOnce'],
    [['ReadOnlyMany'], 'ReadOnlyMany'],
    [['ReadOnlyMany', 'ReadWriteOnce'], 'ReadWriteOnce'],
    [['ReadOnlyMany', 'ReadWriteMany'], 'ReadWriteOnce'],
    [['ReadWriteOncePod'], 'ReadWriteOnce'],
    [['ReadWriteOncePod', 'ReadOnlyMany'], 'ReadOnlyMany'],
    [[], 'ReadWriteOnce'],
  ];
  for (const [accessModes, mode] of modes)
    it(`with access modes [${accessModes.join()}] has ${mode}`, () =>
      assert.deepEqual(stored({ accessModes }).accessModes, [mode]));
  it('without access modes has none', () => assert.ok(!('accessModes' in stored())));
});

describe('a new volume of the GCE driver', () => {
  const made = (csi: Partial<CsiSource> = {}, spec: VolumeSpec = {}) =>
    toInTreeVolume(aNewVolume('kubernetes.io/gce-pd', { volumeHandle: HANDLE, ...csi }, { spec }));
  const source = (csi: Partial<CsiSource>) => made(csi).spec.gcePersistentDisk;

  it('keeps disk name, file system and readOnly', () =>
    assert.deepEqual(source({ fsType: 'xfs', readOnly: true, volumeAttributes: { a: 'b' } }), {
      pdName: 'disk',
      fsType: 'xfs',
      readOnly: true,
    }));

  it('has the sixth part of the handle as its name', () => {
    const volumeHandle = 'projects/p/regions/us-east1/disks/disk/more';
    assert.equal(source({ volumeHandle })?.pdName, 'disk');
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

  it('is refused for a partition that is no number', () => {
    const text = 'Failed to convert partition x to integer: it is no whole number of 32 bits';
    assert.throws(() => source({ volumeAttributes: { partition: 'x' } }), refusal(text));
  });

  it('has zone and region in affinity and labels', () => {
    const nodeAffinity = affinity({ [KEY]: ['us-east1-c', 'us-east1-b'] });
    const { metadata, spec } = made({}, { nodeAffinity });
    assert.deepEqual(
      spec.nodeAffinity,
      affinity({ [GA_ZONE]: ['us-east1-c', 'us-east1-b'], [GA_REGION]: ['us-east1'] }),
    );
    assert.deepEqual(metadata.labels, {
      [GA_ZONE]: 'us-east1-b__us-east1-c',
      [GA_REGION]: 'us-east1',
    });
    const labels = metadata.labels ?? {};
    assert.equal(
      toCsiVolume(aStoredVolume(spec, { labels })).spec.csi?.volumeHandle,
      'projects/UNSPECIFIED/regions/us-east1/disks/disk',
    );
  });
});
