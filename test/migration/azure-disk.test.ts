import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { toInTreeVolume, translateHandle } from '#src/migration/plugins.ts';
import { aNewVolume, aStoredVolume, AZURE_DISK_URI as URI, refusal } from './builders.ts';

describe('an Azure disk for its driver', () => {
  for (const kind of ['Shared', ''])
    it(`is refused for kind "${kind}"`, () => {
      const volume = aStoredVolume({ azureDisk: { diskName: 'disk', diskURI: URI, kind } });
      const text = `kind(${kind}) is not supported in csi migration`;
      assert.throws(() => translateHandle(volume), refusal(text));
    });
});

describe('the name of a new volume of the Azure disk driver', () => {
  const nameOf = (volumeHandle: string) =>
    toInTreeVolume(aNewVolume('kubernetes.io/azure-disk', { volumeHandle })).spec.azureDisk
      ?.diskName;
  const names: Readonly<Record<string, string>> = {
    [`prefix${URI}/`]: 'disk/',
    [`/subscriptions/old${URI}${URI}`]: 'disk',
    '/subscriptions//resourceGroups//providers/Microsoft.Compute/disks/d': 'd',
    [`${URI}/providers/Microsoft.Compute/disks/`]: 'disk/providers/Microsoft.Compute/disks/',
    'https://account.blob.core.windows.net/vhds/a/b.vhd': 'a/b.vhd',
  };
  for (const [uri, name] of Object.entries(names))
    it(`is ${name} for ${uri}`, () => assert.equal(nameOf(uri), name));

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
    it(`is refused for the handle "${uri}"`, () => {
      const text = `could not get disk name from ${uri}, correct format: ${format}`;
      assert.throws(() => nameOf(uri), refusal(text));
    });

  it('is refused quickly for a handle that would make a regular expression slow', () => {
    const volumeHandle = '/subscriptions//resourceGroups/'.repeat(10_000);
    assert.throws(() => nameOf(volumeHandle), { name: 'RefusedError' });
  });
});
