import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { KubeObject } from '#src/kube/objects.ts';
import { secrets, snapshots } from '#src/kube/resources.ts';
import { RefusedError } from '#src/volumes/provisioning-options.ts';
import { list, notFound, read, untilChanged } from '#src/volumes/rule.ts';
import type { Answer, Rule } from '#src/volumes/rule.ts';

const ref = { namespace: 'space', name: 'thing' };
const thing: KubeObject = { metadata: { ...ref, uid: 'u', resourceVersion: '5' } };

/** Runs a rule of one step. */
function told<T>(rule: Rule<T>, answer: Answer): { readonly value?: T; readonly error?: RefusedError; readonly step: unknown } {
  const { value: step } = rule.next();
  try {
    const end = rule.next(answer);
    assert.ok(end.done === true);
    return { value: end.value, step };
  } catch (error) {
    assert.ok(error instanceof RefusedError);
    return { error, step };
  }
}

describe('a rule that reads', () => {
  it('asks for the object and goes on with it', () => {
    const { step, value } = told(read(snapshots, ref), { kind: 'found', object: thing });
    assert.deepEqual(step, { kind: 'read', resource: snapshots, ref });
    assert.equal(value, thing);
  });

  it('refuses until the object is there', () => {
    const { error } = told(read(snapshots, ref, 'no snapshot'), { kind: 'absent' });
    assert.equal(error?.message, 'no snapshot: volumesnapshots.snapshot.storage.k8s.io "thing" not found');
    assert.deepEqual(error.waitsFor, { resource: 'volumesnapshots', namespace: 'space', name: 'thing', seen: '' });
  });

  it('refuses in the server’s words, which no change of the object is known to end', () => {
    const { error } = told(read(snapshots, ref, 'no snapshot'), { kind: 'refused', code: 403, message: 'forbidden' });
    assert.equal(error?.message, 'no snapshot: forbidden');
    assert.equal(error.waitsFor, undefined);
  });

  it('needs no words of its own', () => {
    assert.equal(told(read(secrets, ref), { kind: 'absent' }).error?.message, 'secrets "thing" not found');
    assert.equal(told(read(secrets, ref), { kind: 'refused', code: 403, message: 'forbidden' }).error?.message, 'forbidden');
  });
});

describe('a rule that lists', () => {
  it('asks for the namespace and goes on with what is there', () => {
    const { step, value } = told(list(snapshots, 'space', 'no list'), { kind: 'listed', items: [thing] });
    assert.deepEqual(step, { kind: 'list', resource: snapshots, namespace: 'space' });
    assert.deepEqual(value, [thing]);
  });

  it('goes on with nothing where the server has no such kind', () => {
    assert.deepEqual(told(list(snapshots, 'space', 'no list'), { kind: 'absent' }).value, []);
  });

  it('refuses in the server’s words', () => {
    assert.equal(
      told(list(snapshots, 'space', 'no list'), { kind: 'refused', code: 403, message: 'forbidden' }).error?.message,
      'no list: forbidden',
    );
  });
});

describe('a refusal until an object changes', () => {
  it('names the object and the version that was seen', () => {
    assert.deepEqual(untilChanged(snapshots, thing, 'not ready').waitsFor, { resource: 'volumesnapshots', ...ref, seen: '5' });
  });

  it('names no namespace where there is none', () => {
    const { namespace: _, ...metadata } = thing.metadata;
    assert.deepEqual(untilChanged(snapshots, { metadata }, 'not ready').waitsFor, {
      resource: 'volumesnapshots',
      name: 'thing',
      seen: '5',
    });
  });
});

describe('an object that is not there', () => {
  it('is told as the API server does', () => {
    assert.equal(notFound(secrets, 'x'), 'secrets "x" not found');
    assert.equal(notFound(snapshots, 'x'), 'volumesnapshots.snapshot.storage.k8s.io "x" not found');
  });
});
