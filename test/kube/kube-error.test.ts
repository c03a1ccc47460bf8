import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  answerError,
  isAlreadyExists,
  isConflict,
  isExpired,
  isForbidden,
  isInvalid,
  isNotFound,
  isOutage,
  KubeError,
  missingRule,
  statusError,
} from '#src/kube/kube-error.ts';
import { statusOf } from '../harness/kube-server.ts';

const answer = (code: number, reason: string, message: string): KubeError =>
  answerError('get x', { code, body: JSON.stringify(statusOf(code, reason, message)) });

describe('answerError', () => {
  it("carries the server's message, code and reason", () => {
    const error = answer(
      409,
      'AlreadyExists',
      'object is being deleted: persistentvolumes "pvc-1" already exists',
    );
    assert.equal(
      error.serverMessage,
      'object is being deleted: persistentvolumes "pvc-1" already exists',
    );
    assert.equal(
      error.message,
      'get x: HTTP 409: object is being deleted: persistentvolumes "pvc-1" already exists',
    );
    assert.deepEqual([error.code, error.reason], [409, 'AlreadyExists']);
  });

  it('distinguishes a taken name from a conflict, both 409', () => {
    const taken = answer(409, 'AlreadyExists', 'taken');
    const changed = answer(409, 'Conflict', 'changed');
    assert.deepEqual([isAlreadyExists(taken), isConflict(taken)], [true, false]);
    assert.deepEqual([isAlreadyExists(changed), isConflict(changed)], [false, true]);
  });

  it('a 404 of a proxy or about an unknown path does not mean that the object is absent', () => {
    assert.equal(isNotFound(answer(404, 'NotFound', 'persistentvolumes "x" not found')), true);
    assert.equal(
      isNotFound(answerError('get x', { code: 404, body: '404 page not found\n' })),
      false,
    );
    assert.equal(
      isNotFound(answerError('get x', { code: 404, body: '<html>nginx</html>' })),
      false,
    );
    assert.equal(
      isNotFound(answerError('get x', { code: 404, body: '{"kind":"Something"}' })),
      false,
    );
  });

  it('counts 429, 5xx and the lack of an answer as an outage', () => {
    const isOutageWith = (code: number): boolean => isOutage(answer(code, 'Whatever', 'no'));
    assert.deepEqual([401, 403, 409, 429, 500, 503].map(isOutageWith), [
      false,
      false,
      false,
      true,
      true,
      true,
    ]);
    assert.equal(
      isOutage(new KubeError({ code: 0, reason: 'Network', serverMessage: 'refused' })),
      true,
    );
  });

  it('recognizes the other answers by their code', () => {
    const checks = [
      [403, isForbidden],
      [410, isExpired],
      [422, isInvalid],
    ] as const;
    for (const [code, is] of checks) {
      assert.equal(is(answer(code, 'Whatever', 'no')), true);
      assert.equal(is(answer(418, 'Whatever', 'no')), false);
      assert.equal(is(new Error(String(code))), false);
    }
  });

  it('reads Retry-After as seconds, as a date, or from the Status', () => {
    assert.equal(answerError('x', { code: 429, body: '', retryAfter: '2' }).retryAfterMs, 2000);
    const inMs =
      answerError('x', {
        code: 429,
        body: '',
        retryAfter: new Date(Date.now() + 60_000).toUTCString(),
      }).retryAfterMs ?? 0;
    assert.ok(inMs > 50_000 && inMs <= 60_000, String(inMs));
    assert.equal(
      answerError('x', {
        code: 500,
        body: JSON.stringify({ kind: 'Status', details: { retryAfterSeconds: 3 } }),
      }).retryAfterMs,
      3000,
    );
    assert.equal(answerError('x', { code: 500, body: '' }).retryAfterMs, undefined);
  });

  it('keeps the first 2,000 characters of a body that is no Status', () => {
    assert.equal(
      answerError('x', { code: 502, body: 'Bad Gateway\n' }).serverMessage,
      'Bad Gateway',
    );
    assert.equal(
      answerError('x', { code: 502, body: 'y'.repeat(10_000) }).serverMessage.length,
      2000,
    );
    assert.equal(answerError('x', { code: 500, body: '{broken' }).serverMessage, '{broken');
  });
});

describe('statusError', () => {
  it('reads the Status of an ERROR event; anything else counts as 500', () => {
    assert.equal(
      isExpired(statusError('watch x', statusOf(410, 'Expired', 'too old resource version'))),
      true,
    );
    assert.deepEqual(
      [
        statusError('watch x', 'what').code,
        statusError('watch x', null).code,
        statusError('watch x', {}).code,
      ],
      [500, 500, 500],
    );
  });
});

describe('missingRule', () => {
  const refusal = (message: string, code = 403) => missingRule(answer(code, 'Forbidden', message));
  const inGroup = (group: string) =>
    `User "u" cannot create resource "leases" in API group "${group}"`;

  it('is the rule that grants what the API server refused', () => {
    assert.equal(
      refusal(`${inGroup('')} at the cluster scope`),
      "{ apiGroups: [''], resources: [leases], verbs: [create] }",
    );
    assert.equal(
      refusal(`${inGroup('coordination.k8s.io')} in the namespace "ns"`),
      "{ apiGroups: ['coordination.k8s.io'], resources: [leases], verbs: [create] } in ns",
    );
  });

  it('is none for other errors, and where an admission webhook or a quota refused', () => {
    assert.equal(refusal('admission webhook "w" denied the request'), undefined);
    assert.equal(refusal(inGroup(''), 500), undefined);
  });
});
