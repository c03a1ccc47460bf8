import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { volumeName } from '#src/volumes/persistent-volume.ts';
import { hasMessage } from './plans.ts';

const UID = '0123abcd-4567-89ef-0123-456789abcdef';
const named = (volumeNameUuidLength: number, uid = UID, volumeNamePrefix = 'pvc') =>
  volumeName(uid, { volumeNamePrefix, volumeNameUuidLength });

describe('the name of a volume', () => {
  it('is prefix and whole UID with length -1', () => assert.equal(named(-1), `pvc-${UID}`));

  it('has the UID’s first digits, without dashes, with another length', () => {
    assert.equal(named(12), 'pvc-0123abcd4567');
    assert.equal(named(32), 'pvc-0123abcd456789ef0123456789abcdef');
  });

  it('has the whole UID if that is shorter', () => assert.equal(named(32, 'testid'), 'pvc-testid'));

  it('begins with the configured prefix', () =>
    assert.equal(named(5, 'testid', 'test'), 'test-testi'));

  it('needs a prefix', () => {
    assert.throws(() => named(-1, UID, ''), hasMessage('volume name prefix cannot be of length 0'));
  });

  it('needs a UID', () => {
    for (const length of [-1, 5])
      assert.throws(() => named(length, ''), hasMessage('corrupted PVC object, it is missing UID'));
  });
});
