import assert from 'node:assert/strict';
import { it } from 'node:test';
import { volumeFailedDelete } from '#src/volumes/deletion.ts';
import { aVolume } from './builders.ts';

it('is a warning on the volume as it was read (P-11)', () => {
  const volume = aVolume();
  const { name, uid, resourceVersion } = volume.metadata;
  assert.deepEqual(volumeFailedDelete(volume, 'busy'), {
    type: 'Warning',
    reason: 'VolumeFailedDelete',
    message: 'busy',
    regarding: { kind: 'PersistentVolume', apiVersion: 'v1', name, uid, resourceVersion },
  });
});
