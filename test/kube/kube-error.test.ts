import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  answerError,
  isAlreadyExists,
  isConflict,
  isNotFound,
  isOutage,
  type KubeError,
  missingRule,
} from '#src/kube/kube-error.ts';
import { statusOf } from '../harness/kube-server.ts';

const answer = (code: number, reason: string, message: string): KubeError =>
  answerError('get x', { code, body: JSON.stringify(statusOf(code, reason, message)) });

describe('answerError', () => {
  it("carries the server's message, code and reason", () => {
    const error = answer(409, 'AlreadyExists', 'object is being deleted: "pvc-1" already exists');
    const { serverMessage, message, code, reason } = error;
    assert.equal(serverMessage, 'object is being deleted: "pvc-1" already exists');
    assert.equal(message, `get x: HTTP 409: ${serverMessage}`);
    assert.deepEqual([code, reason], [409, 'AlreadyExists']);
  });

  it('distinguishes a taken name from a conflict, both 409', () => {
    const taken = answer(409, 'AlreadyExists', 'taken');
    const changed = answer(409, 'Conflict', 'changed');
    assert.deepEqual([isAlreadyExists(taken), isConflict(taken)], [true, false]);
    assert.deepEqual([isAlreadyExists(changed), isConflict(changed)], [false, true]);
  });

  it('a 404 of a proxy or about an unknown path does not mean that the object is absent', () => {
    assert.equal(isNotFound(answer(404, 'NotFound', 'persistentvolumes "x" not found')), true);
    for (const body of ['404 page not found\n', '<html>nginx</html>', '{"kind":"Something"}'])
      assert.equal(isNotFound(answerError('get x', { code: 404, body })), false, body);
  });

  it('counts 429, 5xx and the lack of an answer as an outage', () => {
    const codes = [0, 401, 403, 409, 429, 500, 503];
    const outages = codes.filter((code) => isOutage(answer(code, 'Whatever', 'no')));
    assert.deepEqual(outages, [0, 429, 500, 503]);
  });

  it('reads Retry-After as seconds, as a date, or from the Status', () => {
    const waitOf = (retryAfter?: string, body = ''): number | undefined =>
      answerError('x', { code: 429, body, retryAfter }).retryAfterMs;
    assert.equal(waitOf('2'), 2000);
    assert.ok((waitOf('Thu, 01 Jan 2099 00:00:00 GMT') ?? 0) > 60_000);
    assert.equal(waitOf('Thu, 01 Jan 2020 00:00:00 GMT'), 0);
    assert.equal(waitOf(undefined, '{"kind":"Status","details":{"retryAfterSeconds":3}}'), 3000);
    assert.equal(waitOf(), undefined);
  });

  it('keeps the first 2,000 characters of a body that is no Status', () => {
    const messageOf = (body: string): string => answerError('x', { code: 502, body }).serverMessage;
    assert.equal(messageOf('Bad Gateway\n'), 'Bad Gateway');
    assert.equal(messageOf('y'.repeat(10_000)).length, 2000);
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
