import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { capacityPlace } from '#src/capacity/flags.ts';
import { UsageError } from '#src/runtime/flags.ts';

describe('--enable-capacity', () => {
  const flags = { enableCapacity: true, capacityOwnerrefLevel: 1 };
  for (const [what, env] of [
    ['NAMESPACE env variable for CSIStorageCapacity objects', { POD_NAME: 'p' }],
    ['POD_NAME env variable to determine CSIStorageCapacity owner', { NAMESPACE: 'ns' }],
  ] as const)
    it(`says that it needs ${what}`, () =>
      assert.throws(() => capacityPlace(flags, env), new UsageError(`need ${what}`)));
});
