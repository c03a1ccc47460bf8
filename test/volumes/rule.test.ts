import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { KubeObject } from '#src/kube/objects.ts';
import type { Resource } from '#src/kube/resources.ts';
import { secrets, snapshotContents, snapshots } from '#src/kube/resources.ts';
import { RefusedError } from '#src/volumes/provisioning-options.ts';
import { list, notFound, orUntilChanged, read, untilChanged } from '#src/volumes/rule.ts';
import type { Answer, Rule } from '#src/volumes/rule.ts';

const ref = { namespace: 'space', name: 'thing' };
const thing: KubeObject = { metadata: { ...ref, uid: 'u', resourceVersion: '5' } };

/** Runs a rule of one step. */
function told<T>(
  rule: Rule<T>,
  answer: Answer,
): { readonly value?: T; readonly error?: RefusedError; readonly step: unknown } {
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
    assert.equal(
      error?.message,
      'no snapshot: volumesnapshots.snapshot.storage.k8s.io "thing" not found',
    );
    assert.deepEqual(error.waitsFor, [
      { resource: 'volumesnapshots', namespace: 'space', name: 'thing', seen: '' },
    ]);
  });

  it('refuses in the server’s words, which no change of the object is known to end', () => {
    const { error } = told(read(snapshots, ref, 'no snapshot'), {
      kind: 'refused',
      code: 403,
      message: 'forbidden',
    });
    assert.equal(error?.message, 'no snapshot: forbidden');
    assert.deepEqual(error.waitsFor, []);
  });

  it('says that the server has no such kind', () => {
    const words = (resource: Resource) =>
      told(read(resource, ref), { kind: 'absent', isUnknownKind: true }).error?.message;
    assert.equal(
      words(snapshots),
      'the server could not find the requested resource (get volumesnapshots.snapshot.storage.k8s.io thing)',
    );
    assert.equal(
      words(secrets),
      'the server could not find the requested resource (get secrets thing)',
    );
  });

  it('needs no words of its own', () => {
    assert.equal(
      told(read(secrets, ref), { kind: 'absent' }).error?.message,
      'secrets "thing" not found',
    );
    assert.equal(
      told(read(secrets, ref), { kind: 'refused', code: 403, message: 'forbidden' }).error?.message,
      'forbidden',
    );
  });
});

describe('a rule that lists', () => {
  it('asks for the namespace and goes on with what is there', () => {
    const { step, value } = told(list(snapshots, 'space', 'no list'), {
      kind: 'listed',
      items: [thing],
    });
    assert.deepEqual(step, { kind: 'list', resource: snapshots, namespace: 'space' });
    assert.deepEqual(value, [thing]);
  });

  it('goes on with nothing where the server has no such kind', () => {
    assert.deepEqual(told(list(snapshots, 'space', 'no list'), { kind: 'absent' }).value, []);
  });

  it('refuses in the server’s words', () => {
    assert.equal(
      told(list(snapshots, 'space', 'no list'), {
        kind: 'refused',
        code: 403,
        message: 'forbidden',
      }).error?.message,
      'no list: forbidden',
    );
  });
});

describe('a refusal until an object changes', () => {
  it('names the object and the version that was seen', () => {
    assert.deepEqual(untilChanged(snapshots, thing, 'not ready').waitsFor, [
      { resource: 'volumesnapshots', ...ref, seen: '5' },
    ]);
  });

  it('names no namespace where there is none', () => {
    const { namespace: _, ...metadata } = thing.metadata;
    assert.deepEqual(untilChanged(snapshots, { metadata }, 'not ready').waitsFor, [
      {
        resource: 'volumesnapshots',
        name: 'thing',
        seen: '5',
      },
    ]);
  });
});

describe('a rule about what an object refers to', () => {
  const content = { metadata: { name: 'content', uid: 'c', resourceVersion: '6' } };
  const waits = (rule: Rule<never>) =>
    told(orUntilChanged(snapshots, thing, rule), { kind: 'absent' }).error?.waitsFor;
  function* refusing(refusal: RefusedError): Rule<never> {
    yield { kind: 'list', resource: snapshots, namespace: 'space' };
    throw refusal;
  }
  function* broken(): Rule<never> {
    yield { kind: 'list', resource: snapshots, namespace: 'space' };
    throw new TypeError('a defect');
  }
  const ON_THING = { resource: 'volumesnapshots', ...ref, seen: '5' };

  it('waits for a change of the reference too', () => {
    const on = { resource: 'volumesnapshotcontents', name: 'content', seen: '6' };
    assert.deepEqual(waits(refusing(untilChanged(snapshotContents, content, 'no handle'))), [
      on,
      ON_THING,
    ]);
  });

  it('names the reference once where that is what it waits for', () => {
    assert.deepEqual(waits(refusing(untilChanged(snapshots, thing, 'not ready'))), [ON_THING]);
  });

  it('waits for nothing where no change is known to end the refusal', () => {
    assert.deepEqual(waits(refusing(new RefusedError('no'))), []);
  });

  it('lets what is no refusal pass', () => {
    const rule = orUntilChanged(snapshots, thing, broken());
    rule.next();
    assert.throws(() => rule.next({ kind: 'absent' }), TypeError);
  });
});

describe('an object that is not there', () => {
  it('is told as the API server does', () => {
    assert.equal(notFound(secrets, 'x'), 'secrets "x" not found');
    assert.equal(notFound(snapshots, 'x'), 'volumesnapshots.snapshot.storage.k8s.io "x" not found');
  });
});
