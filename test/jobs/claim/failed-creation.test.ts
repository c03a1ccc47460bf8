import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isStillRunning } from '#src/csi/status.ts';
import { judgeCreateFailure } from '#src/jobs/claim/failed-creation.ts';

const FINAL =
  'Unknown NotFound PermissionDenied ResourceExhausted FailedPrecondition OutOfRange ' +
  'Unimplemented Internal DataLoss Unauthenticated InvalidArgument';
const RUNNING = ['Canceled', 'DeadlineExceeded', 'Aborted'];

/* The numbered cases of codes are in call-create-volume.test.ts, with their effect on the
 * job. */
describe('an error of CreateVolume', () => {
  const judged = (codeName: string, from: 'driver' | 'gateway' | 'unknown', isSource = false) =>
    judgeCreateFailure(
      { codeName, driverSaid: from === 'driver', notForwarded: from === 'gateway' },
      { isNotFoundUnknown: isSource },
    );

  it('is a refusal if the driver says a final code; InvalidArgument: an infeasible request', () => {
    for (const code of FINAL.split(' '))
      assert.deepEqual(
        judged(code, 'driver'),
        { kind: 'refused', infeasible: code === 'InvalidArgument' },
        code,
      );
  });
  it('has an unknown end if a final code may not be from the driver', () => {
    for (const code of FINAL.split(' '))
      assert.deepEqual(judged(code, 'unknown'), { kind: 'unknown', running: false }, code);
  });
  it('means for some codes that the driver is still running, whoever says them', () => {
    for (const code of RUNNING) {
      assert.equal(isStillRunning(code), true);
      for (const from of ['driver', 'unknown'] as const)
        assert.deepEqual(judged(code, from), { kind: 'unknown', running: true }, code);
    }
  });
  it('is never final for Unavailable and AlreadyExists', () => {
    for (const code of ['Unavailable', 'AlreadyExists']) {
      assert.equal(isStillRunning(code), false);
      assert.deepEqual(judged(code, 'driver'), { kind: 'unknown', running: false }, code);
    }
  });
  it('has an unknown end if NotFound may be about the content source', () => {
    assert.deepEqual(judged('NotFound', 'driver', true), { kind: 'unknown', running: false });
    assert.deepEqual(judged('Internal', 'driver', true), { kind: 'refused', infeasible: false });
  });
  it('means that nothing was sent if the gateway says so', () => {
    for (const code of ['Aborted', 'Unavailable', 'NotFound'])
      assert.deepEqual(judged(code, 'gateway', true), { kind: 'not-forwarded' }, code);
  });
});
