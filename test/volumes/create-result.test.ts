import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isStillRunning, judgeCreateFailure } from '#src/volumes/create-result.ts';

type Speaker = 'driver' | 'gateway' | 'nobody';
const judged = (codeName: string, from: Speaker, isNotFoundAmbiguous = false) =>
  judgeCreateFailure(
    { codeName, driverSaid: from === 'driver', notForwarded: from === 'gateway' },
    { isNotFoundAmbiguous },
  );

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
const RUNNING = ['Canceled', 'DeadlineExceeded', 'Aborted'];

/* The numbered codes are in test/jobs/claim/create-codes.test.ts, where the record shows what they
 * mean. */
describe('the error of a CreateVolume', () => {
  for (const code of FINAL) {
    it(`is a refusal where the driver says ${code}`, () => {
      assert.deepEqual(judged(code, 'driver'), {
        kind: 'refused',
        infeasible: code === 'InvalidArgument',
      });
    });
    it(`is ambiguous where nobody vouches for ${code}`, () => {
      assert.deepEqual(judged(code, 'nobody'), { kind: 'ambiguous', running: false });
    });
  }
  for (const code of RUNNING) {
    it(`says that the driver is still at it: ${code}`, () => {
      assert.equal(isStillRunning(code), true);
      for (const from of ['driver', 'nobody'] as const)
        assert.deepEqual(judged(code, from), { kind: 'ambiguous', running: true });
    });
  }
  for (const code of ['Unavailable', 'AlreadyExists']) {
    it(`is never final: ${code}`, () => {
      assert.equal(isStillRunning(code), false);
      assert.deepEqual(judged(code, 'driver'), { kind: 'ambiguous', running: false });
    });
  }
  it('is no refusal where the source is not found and an earlier call may have made the volume', () => {
    assert.deepEqual(judged('NotFound', 'driver', true), { kind: 'ambiguous', running: false });
    assert.deepEqual(judged('Internal', 'driver', true), { kind: 'refused', infeasible: false });
  });
  it('is that of a gateway which sent nothing, and may be busy with the same volume', () => {
    assert.deepEqual(judged('Aborted', 'gateway'), { kind: 'not-forwarded', busy: true });
    assert.deepEqual(judged('Unavailable', 'gateway'), { kind: 'not-forwarded', busy: false });
    assert.deepEqual(judged('NotFound', 'gateway', true), { kind: 'not-forwarded', busy: false });
  });
});
