import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  decodeAnswer,
  decodeRequest,
  encodeAnswer,
  encodeRequest,
} from '#src/records/stored-request.ts';
import { plannedRequest, volumeAnswer } from '../harness/planned-request.ts';

describe('stored request', () => {
  it('is decoded to what was encoded, with and without a secret', () => {
    const secret = { name: 'login', namespace: 'storage' };
    for (const planned of [plannedRequest(), plannedRequest({ secret })])
      assert.deepEqual(decodeRequest(encodeRequest(planned)), planned);
  });

  it('is refused when sutler did not write it', () => {
    const texts = encodeRequest(plannedRequest());
    for (const pvTemplate of ['{}', 'null', '"text"'])
      assert.throws(
        () => decodeRequest({ ...texts, pvTemplate }),
        /its PV template is not what sutler/,
      );
  });

  it('has an answer only where one was stored', () => {
    assert.equal(decodeAnswer(''), undefined);
    const answer = volumeAnswer('h');
    for (const seal of ['', 'a seal'])
      assert.deepEqual(decodeAnswer(encodeAnswer(answer, seal)), { answer, seal });
  });
});
