import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { readAdmissionReview } from '#src/webhooks/admission.ts';
import { orProblem, RequestProblem } from '#src/webhooks/problem.ts';
import { CLAIM_NOTICE, REVIEW, VOLUME, VOLUME_NOTICE } from './fixtures.ts';

const { request } = REVIEW;
const POD_KIND = { group: '', version: 'v1', kind: 'Pod' };
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

  it('is a notice of a volume whose status changes', () =>
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

  for (const [what, change, expected] of [
    ['ignored if it is a dry run', { dryRun: true }, 'dry-run'],
    ['ignored if it is about another kind', { kind: POD_KIND }, 'other-kind'],
    [
      'ignored if it is about another group',
      { kind: { ...VOLUME_KIND, group: 'x' } },
      'other-group',
    ],
    ['ignored with another operation', { operation: 'CONNECT' }, 'other-type'],
    ['ignored without an object', { object: null }, 'no-object'],
    ['refused without a uid', { uid: '' }, '400 request.uid'],
  ] as const)
    it(`is ${what}`, () => assert.equal(readRequest(change), expected));

  for (const [what, review, expected] of [
    ['if it is none', { kind: 'Pod' }, '400 kind'],
    ['in another version', { ...REVIEW, apiVersion: 'admission.k8s.io/v1beta1' }, '400 apiVersion'],
    ['without a request', { ...REVIEW, request: null }, '400 request'],
    ['if it is no JSON', 'x', '400 body'],
  ] as const)
    it(`is refused ${what}`, () => assert.equal(read(review), expected));
});
