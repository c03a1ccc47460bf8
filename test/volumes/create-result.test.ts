import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isStillRunning, judgeCreateFailure } from '#src/volumes/create-result.ts';

type Sender = 'driver' | 'gateway' | 'unknown';
const judged = (codeName: string, from: Sender, isNotFoundAmbiguous = false) =>
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

/* The numbered cases of codes are in test/jobs/claim/call-create-volume.test.ts, with their effect
 * on the record. */
describe('an error of CreateVolume', () => {
  for (const code of FINAL) {
    it(`is a refusal if the driver says ${code}`, () => {
      assert.deepEqual(judged(code, 'driver'), {
        kind: 'refused',
        infeasible: code === 'InvalidArgument',
      });
    });
    it(`is ambiguous if ${code} may not be from the driver`, () => {
      assert.deepEqual(judged(code, 'unknown'), { kind: 'ambiguous', running: false });
    });
  }
  for (const code of RUNNING) {
    it(`means that the driver is still running: ${code}`, () => {
      assert.equal(isStillRunning(code), true);
      for (const from of ['driver', 'unknown'] as const)
        assert.deepEqual(judged(code, from), { kind: 'ambiguous', running: true });
    });
  }
  for (const code of ['Unavailable', 'AlreadyExists']) {
    it(`is never final: ${code}`, () => {
      assert.equal(isStillRunning(code), false);
      assert.deepEqual(judged(code, 'driver'), { kind: 'ambiguous', running: false });
    });
  }
  it('is ambiguous if NotFound may be about the content source', () => {
    assert.deepEqual(judged('NotFound', 'driver', true), { kind: 'ambiguous', running: false });
    assert.deepEqual(judged('Internal', 'driver', true), { kind: 'refused', infeasible: false });
  });
  it('means that nothing was sent if it is from the gateway; Aborted: it is busy', () => {
    assert.deepEqual(judged('Aborted', 'gateway'), { kind: 'not-forwarded', busy: true });
    assert.deepEqual(judged('Unavailable', 'gateway'), { kind: 'not-forwarded', busy: false });
    assert.deepEqual(judged('NotFound', 'gateway', true), { kind: 'not-forwarded', busy: false });
  });
});
