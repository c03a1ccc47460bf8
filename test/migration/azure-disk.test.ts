import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { AzureDiskSource, CsiSource } from '#src/kube/objects.ts';
import { toCsiVolume, toInTreeVolume } from '#src/migration/plugins.ts';
import { affinity, aNewVolume, aStoredVolume, GA_ZONE, refusal } from './builders.ts';

const URI = '/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/disk';
const KEY = 'topology.disk.csi.azure.com/zone';

describe('an Azure disk for its driver', () => {
  const csi = (source: Partial<AzureDiskSource>) =>
    toCsiVolume(aStoredVolume({ azureDisk: { diskName: 'disk', diskURI: URI, ...source } })).spec
      .csi;
  const plain = { driver: 'disk.csi.azure.com', volumeHandle: URI };

  it('is managed, and has the source’s fields', () =>
    assert.deepEqual(csi({ fsType: 'ext4', readOnly: true, cachingMode: 'None' }), {
      ...plain,
      fsType: 'ext4',
      readOnly: true,
      volumeAttributes: { kind: 'Managed', cachingmode: 'None', fstype: 'ext4' },
    }));

  it('lacks the fields that the source lacks', () =>
    assert.deepEqual(csi({ kind: 'managed' }), {
      ...plain,
      volumeAttributes: { kind: 'Managed' },
    }));

  it('has the source’s fields even if they are empty', () =>
    assert.deepEqual(csi({ fsType: '', cachingMode: '' }), {
      ...plain,
      fsType: '',
      volumeAttributes: { kind: 'Managed', cachingmode: '', fstype: '' },
    }));

  for (const kind of ['Shared', ''])
    it(`is refused for kind "${kind}"`, () => {
      const text = `kind(${kind}) is not supported in csi migration`;
      assert.throws(() => csi({ kind }), refusal(text));
    });

  it('keeps its topology', () => {
    const nodeAffinity = affinity({ [GA_ZONE]: ['1'] });
    const volume = aStoredVolume({ azureDisk: { diskName: 'disk', diskURI: URI }, nodeAffinity });
    assert.deepEqual(toCsiVolume(volume).spec.nodeAffinity, nodeAffinity);
  });
});

describe('a new volume of the Azure disk driver', () => {
  const source = (csi: Partial<CsiSource>) =>
    toInTreeVolume(aNewVolume('kubernetes.io/azure-disk', { volumeHandle: URI, ...csi })).spec
      .azureDisk;
  const plain = { diskName: 'disk', diskURI: URI, kind: 'Managed' };

  it('always has file system, readOnly and kind', () => {
    assert.deepEqual(source({}), { ...plain, fsType: '', readOnly: false });
    const given = { fsType: 'xfs', readOnly: true };
    assert.deepEqual(source(given), { ...plain, ...given });
  });

  it('has caching mode and file system from the attributes, in any case', () => {
    const volumeAttributes = { CachingMode: 'None', FsType: 'ext4' };
    const full = source({ fsType: 'xfs', volumeAttributes });
    assert.deepEqual([full?.cachingMode, full?.fsType], ['None', 'ext4']);
    const none = { cachingmode: '', fstype: '' };
    const empty = source({ fsType: 'xfs', volumeAttributes: none });
    assert.deepEqual([empty?.cachingMode, empty?.fsType], [undefined, 'xfs']);
  });

  const names: Readonly<Record<string, string>> = {
    [`prefix${URI}/`]: 'disk/',
    [`/subscriptions/old${URI}${URI}`]: 'disk',
    '/subscriptions//resourceGroups//providers/Microsoft.Compute/disks/d': 'd',
    [`${URI}/providers/Microsoft.Compute/disks/`]: 'disk/providers/Microsoft.Compute/disks/',
    'https://account.blob.core.windows.net/vhds/a/b.vhd': 'a/b.vhd',
  };
  for (const [uri, name] of Object.entries(names))
    it(`has the name ${name} for ${uri}`, () =>
      assert.equal(source({ volumeHandle: uri })?.diskName, name));

  const managed =
    '.*/subscriptions/(?:.*)/resourceGroups/(?:.*)/providers/Microsoft.Compute/disks/(.+)';
  const blob = 'http(?:.*)://(?:.*)/vhds/(.+)';
  const refused: Readonly<Record<string, string>> = {
    disk: managed,
    http: managed,
    httpx: blob,
    '': managed,
    '/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/': managed,
    [`https://x${URI}`]: blob,
    '/resourceGroups/g/subscriptions/s/providers/Microsoft.Compute/disks/d': managed,
    '/subscriptions/resourceGroups/g/providers/Microsoft.Compute/disks/d': managed,
    'https:/vhds/d://x': blob,
    'HTTP://account/vhds/disk.vhd': blob,
    'http://account/vhds/': blob,
  };
  for (const [uri, format] of Object.entries(refused))
    it(`is refused for the handle "${uri}"`, () =>
      assert.throws(
        () => source({ volumeHandle: uri }),
        refusal(`could not get disk name from ${uri}, correct format: ${format}`),
      ));

  it('is refused quickly for a handle that would make a regular expression slow', () => {
    const volumeHandle = '/subscriptions//resourceGroups/'.repeat(10_000);
    assert.throws(() => source({ volumeHandle }), { name: 'RefusedError' });
  });

  it('keeps its topology', () => {
    const nodeAffinity = affinity({ [KEY]: ['eastus-1'] });
    const { metadata, spec } = toInTreeVolume(
      aNewVolume('kubernetes.io/azure-disk', { volumeHandle: URI }, { spec: { nodeAffinity } }),
    );
    assert.deepEqual([spec.nodeAffinity, metadata.labels], [nodeAffinity, undefined]);
  });
});
