import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { judgeCreateFailure } from '#src/volumes/create-result.ts';

const judged = (codeName: string, from: 'driver' | 'gateway' | 'nobody') =>
  judgeCreateFailure({ codeName, driverSaid: from === 'driver', notForwarded: from === 'gateway' });

const FINAL = [
  'Unknown',
  'InvalidArgument',
  'NotFound',
  'PermissionDenied',
  'ResourceExhausted',
  'FailedPrecondition',
  'OutOfRange',
  'Unimplemented',
  'Internal',
  'DataLoss',
  'Unauthenticated',
];

describe('judgeCreateFailure', () => {
  for (const code of FINAL) {
    it(`takes ${code} from the driver as a refusal`, () => assert.equal(judged(code, 'driver').kind, 'refused'));
    it(`takes ${code} that nobody vouches for as ambiguous`, () => assert.equal(judged(code, 'nobody').kind, 'ambiguous'));
  }
  for (const code of ['Canceled', 'DeadlineExceeded', 'Aborted']) {
    it(`takes ${code} as a sign that the driver is still at it`, () => {
      assert.deepEqual(judged(code, 'driver'), { kind: 'ambiguous', running: true });
    });
  }
  for (const code of ['Unavailable', 'AlreadyExists']) {
    it(`never takes ${code} as final`, () => assert.deepEqual(judged(code, 'driver'), { kind: 'ambiguous', running: false }));
  }
  it('knows only InvalidArgument as infeasible', () => {
    assert.deepEqual(judged('InvalidArgument', 'driver'), { kind: 'refused', infeasible: true });
    assert.deepEqual(judged('Internal', 'driver'), { kind: 'refused', infeasible: false });
  });
  it('knows a gateway that is busy with the same volume', () => {
    assert.deepEqual(judged('Aborted', 'gateway'), { kind: 'not-forwarded', busy: true });
    assert.deepEqual(judged('Unavailable', 'gateway'), { kind: 'not-forwarded', busy: false });
  });
});
