import assert from 'node:assert/strict';
import { it } from 'node:test';
import { methodsByPath } from '#src/csi/methods.ts';

it('methodsByPath contains every method of csi.proto', () => {
  assert.equal(
    methodsByPath.get('/csi.v1.Controller/CreateVolume')?.input.typeName,
    'csi.v1.CreateVolumeRequest',
  );
  assert.equal(methodsByPath.size, 3 + 15 + 4 + 8);
});
