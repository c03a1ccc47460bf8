import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { toInTreeVolume, translateHandle } from '#src/migration/plugins.ts';
import { aNewVolume, aStoredVolume, BETA_ZONE, GA_ZONE, refusal } from './builders.ts';

describe('the handle of a GCE volume for its driver', () => {
  const handle = (labels: Record<string, string>) =>
    translateHandle(aStoredVolume({ gcePersistentDisk: { pdName: 'disk' } }, { labels }))?.handle;

  const handles: Readonly<Record<string, readonly [Record<string, string>, place: string]>> = {
    'is zonal by the one zone of its label': [{ [GA_ZONE]: 'us-east1-b' }, 'zones/us-east1-b'],
    'reads the beta label first': [{ [BETA_ZONE]: 'beta', [GA_ZONE]: 'ga' }, 'zones/beta'],
    'reads the GA label if beta is empty': [{ [BETA_ZONE]: '', [GA_ZONE]: 'ga' }, 'zones/ga'],
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
});

describe('a new volume of the GCE driver is refused', () => {
  const make = (volumeHandle: string, partition = '') =>
    toInTreeVolume(
      aNewVolume('kubernetes.io/gce-pd', { volumeHandle, volumeAttributes: { partition } }),
    );
  it('for a handle of five parts', () => {
    const text = 'failed to get id components.Got: 5, wanted 6 components or more. ';
    assert.throws(() => make('projects/p/zones/z/disks'), refusal(text));
  });
  it('for a partition that is no number', () => {
    const text = 'Failed to convert partition x to integer: it is no whole number of 32 bits';
    assert.throws(() => make('projects/p/zones/z/disks/d', 'x'), refusal(text));
  });
});
