import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { leaseNamespace } from '#src/election/flags.ts';

describe('leaseNamespace', () => {
  it('is the flag, if given', async () => {
    assert.equal(await leaseNamespace('flagged', { POD_NAMESPACE: 'pod' }), 'flagged');
  });

  it('is POD_NAMESPACE without the flag', async () => {
    assert.equal(await leaseNamespace('', { POD_NAMESPACE: 'pod' }), 'pod');
  });

  it('is "default" outside a pod', async () => {
    assert.equal(await leaseNamespace('', {}), 'default');
  });
});
