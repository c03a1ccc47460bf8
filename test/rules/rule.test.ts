import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { KubeObject } from '#src/kube/objects.ts';
import { type Resource, secrets, snapshotContents, snapshots } from '#src/kube/resources.ts';
import {
  alsoWaitFor,
  type Answer,
  catchRefusal,
  list,
  read,
  RefusedError,
  refuseUntilChanged,
  rewordRefusal,
  type Rule,
} from '#src/rules/rule.ts';

const ref = { namespace: 'space', name: 'thing' };
const thing: KubeObject = { metadata: { ...ref, uid: 'u', resourceVersion: '5' } };

function* broken(): Rule<never> {
  yield { kind: 'list', resource: snapshots, namespace: 'space' };
  throw new TypeError('a defect');
}

/** Runs a rule of one step, and answers the step. */
function runStep<T>(
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

describe('read', () => {
  it('yields a read step and returns the object', () => {
    const { step, value } = runStep(read(snapshots, ref), { kind: 'found', object: thing });
    assert.deepEqual(step, { kind: 'read', resource: snapshots, ref });
    assert.equal(value, thing);
  });

  it('refuses until the object is created', () => {
    const { error } = runStep(read(snapshots, ref, 'no snapshot'), { kind: 'absent' });
    assert.equal(
      error?.message,
      'no snapshot: volumesnapshots.snapshot.storage.k8s.io "thing" not found',
    );
    assert.deepEqual(error.waitsFor, [
      { resource: 'volumesnapshots', namespace: 'space', name: 'thing', seen: '' },
    ]);
  });

  it('refuses with the server’s message, and waits for no object', () => {
    const { error } = runStep(read(snapshots, ref, 'no snapshot'), {
      kind: 'refused',
      code: 403,
      message: 'forbidden',
    });
    assert.equal(error?.message, 'no snapshot: forbidden');
    assert.deepEqual(error.waitsFor, []);
  });

  it('says that the server does not serve the kind', () => {
    const messageFor = (resource: Resource) =>
      runStep(read(resource, ref), { kind: 'absent', isUnknownKind: true }).error?.message;
    assert.equal(
      messageFor(snapshots),
      'the server could not find the requested resource ' +
        '(get volumesnapshots.snapshot.storage.k8s.io thing)',
    );
    assert.equal(
      messageFor(secrets),
      'the server could not find the requested resource (get secrets thing)',
    );
  });
});

describe('list', () => {
  it('yields a list step and returns the objects', () => {
    const { step, value } = runStep(list(snapshots, 'space', 'no list'), {
      kind: 'listed',
      items: [thing],
    });
    assert.deepEqual(step, { kind: 'list', resource: snapshots, namespace: 'space' });
    assert.deepEqual(value, [thing]);
  });

  it('returns nothing if the server does not serve the kind', () => {
    assert.deepEqual(runStep(list(snapshots, 'space', 'no list'), { kind: 'absent' }).value, []);
  });

  it('refuses with the server’s message', () => {
    assert.equal(
      runStep(list(snapshots, 'space', 'no list'), {
        kind: 'refused',
        code: 403,
        message: 'forbidden',
      }).error?.message,
      'no list: forbidden',
    );
  });
});

describe('refuseUntilChanged', () => {
  it('waits for the object from the version that was read', () => {
    assert.deepEqual(refuseUntilChanged(snapshots, thing, 'not ready').waitsFor, [
      { resource: 'volumesnapshots', ...ref, seen: '5' },
    ]);
  });
});

describe('alsoWaitFor', () => {
  const content = { metadata: { name: 'content', uid: 'c', resourceVersion: '6' } };
  const waits = (rule: Rule<never>) =>
    runStep(alsoWaitFor(snapshots, thing, rule), { kind: 'absent' }).error?.waitsFor;
  function* refusing(refusal: RefusedError): Rule<never> {
    yield { kind: 'list', resource: snapshots, namespace: 'space' };
    throw refusal;
  }
  const ON_THING = { resource: 'volumesnapshots', ...ref, seen: '5' };

  it('adds the referring object to what the refusal waits for', () => {
    const on = { resource: 'volumesnapshotcontents', name: 'content', seen: '6' };
    assert.deepEqual(waits(refusing(refuseUntilChanged(snapshotContents, content, 'no handle'))), [
      on,
      ON_THING,
    ]);
  });

  it('adds no object twice', () => {
    assert.deepEqual(waits(refusing(refuseUntilChanged(snapshots, thing, 'not ready'))), [
      ON_THING,
    ]);
  });

  it('adds nothing to a refusal that waits for no object', () => {
    assert.deepEqual(waits(refusing(new RefusedError('no'))), []);
  });
});

describe('rewordRefusal', () => {
  it('changes the message and keeps what the refusal waits for', () => {
    const rule = rewordRefusal(read(secrets, ref), (message) => `no secret: ${message}`);
    const { error } = runStep(rule, { kind: 'absent' });
    assert.equal(error?.message, 'no secret: secrets "thing" not found');
    assert.deepEqual(error.waitsFor, [{ resource: 'secrets', ...ref, seen: '' }]);
  });
});

describe('the error of a defect', () => {
  const finish = (rule: Rule<never>): void => {
    rule.next();
    rule.next({ kind: 'absent' });
  };
  const throwing = (): never => {
    throw new TypeError('a defect');
  };
  for (const [what, run] of [
    ['alsoWaitFor', () => finish(alsoWaitFor(snapshots, thing, broken()))],
    ['rewordRefusal', () => finish(rewordRefusal(broken(), () => 'other words'))],
    ['catchRefusal', () => catchRefusal(throwing, () => assert.fail('it is no refusal'))],
  ] as const)
    it(`passes ${what}`, () => assert.throws(run, TypeError));
});

it('catchRefusal turns a refusal into the caller’s value', () => {
  const refuse = (): string => {
    throw new RefusedError('no');
  };
  assert.equal(
    catchRefusal(refuse, ({ message }) => `${message}!`),
    'no!',
  );
});
