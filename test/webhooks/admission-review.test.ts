import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { readAdmissionReview } from '#src/webhooks/admission.ts';
import { orProblem, RequestProblem } from '#src/webhooks/problem.ts';
import { CLAIM_NOTICE, REVIEW, VOLUME, VOLUME_NOTICE } from './fixtures.ts';

const { request } = REVIEW;
const VOLUME_KIND = { group: '', version: 'v1', kind: 'PersistentVolume' };

/** The notice, the reason why there is none, or the field of the problem. */
function read(review: unknown): unknown {
  const text = typeof review === 'string' ? review : JSON.stringify(review);
  const read = orProblem(() => readAdmissionReview(Buffer.from(text)));
  return read instanceof RequestProblem ? `${read.status} ${read.field ?? ''}` : read.verdict;
}

function readRequest(change: object): unknown {
  return read({ ...REVIEW, request: { ...request, ...change } });
}

describe('an AdmissionReview', () => {
  it('is a notice of a claim that is created', () =>
    assert.deepEqual(read(`${JSON.stringify(REVIEW)}\n`), CLAIM_NOTICE));

  it('is one of a volume whose status changes', () =>
    assert.deepEqual(
      readRequest({
        kind: VOLUME_KIND,
        subResource: 'status',
        name: 'pvc-6d1f',
        namespace: undefined,
        operation: 'UPDATE',
        object: VOLUME,
        oldObject: VOLUME,
      }),
      VOLUME_NOTICE,
    ));

  it('names the object by the old one if a collection is deleted', () =>
    assert.deepEqual(
      readRequest({ name: '', operation: 'DELETE', object: null, oldObject: request.object }),
      CLAIM_NOTICE,
    ));

  it('is ignored if it is a dry run', () => assert.equal(readRequest({ dryRun: true }), 'dry-run'));

  it('is ignored if it is about another kind', () =>
    assert.equal(readRequest({ kind: { group: '', version: 'v1', kind: 'Pod' } }), 'other-kind'));

  it('is ignored if it is about another group', () =>
    assert.equal(
      readRequest({ kind: { group: 'x', version: 'v1', kind: 'PersistentVolume' } }),
      'other-group',
    ));

  it('is ignored with another operation', () =>
    assert.equal(readRequest({ operation: 'CONNECT' }), 'other-type'));

  it('is ignored without an object', () =>
    assert.equal(readRequest({ object: null }), 'no-object'));

  it('is ignored with odd parts', () => {
    for (const change of [{ kind: null }, { kind: 5 }, { name: '../x' }, { namespace: 'A' }])
      assert.equal(readRequest(change), 'no-object');
  });

  it('is refused if it is none', () => assert.equal(read({ kind: 'Pod' }), '400 kind'));

  it('is refused in another version', () =>
    assert.equal(read({ ...REVIEW, apiVersion: 'admission.k8s.io/v1beta1' }), '400 apiVersion'));

  it('is refused without a request', () =>
    assert.equal(read({ ...REVIEW, request: null }), '400 request'));

  it('is refused without a uid', () => assert.equal(readRequest({ uid: '' }), '400 request.uid'));

  it('is refused if it is no JSON', () => assert.equal(read('x'), '400 body'));
});
