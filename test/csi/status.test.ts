import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Code, codeName, CsiError } from '#src/csi/status.ts';

describe('gRPC status', () => {
  it('names every code as Go does', () => {
    assert.equal(codeName(0), 'OK');
    assert.equal(codeName(1), 'Canceled');
    assert.equal(codeName(Code.ResourceExhausted), 'ResourceExhausted');
    assert.equal(codeName(16), 'Unauthenticated');
    assert.equal(codeName(17), 'Code(17)');
    for (const [name, code] of Object.entries(Code)) assert.equal(codeName(code), name);
  });

  it('formats an error as upstream’s events show it', () => {
    const error = new CsiError({
      code: 8,
      details: 'pool is full',
      method: '/m',
      driverSaid: true,
    });
    assert.equal(error.message, 'rpc error: code = ResourceExhausted desc = pool is full');
    assert.deepEqual(
      [error.driverSaid, error.notForwarded, error.codeName],
      [true, false, 'ResourceExhausted'],
    );
  });
});
