import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { KubeObject } from '#src/kube/objects.ts';
import { type Resource, secrets, snapshotContents, snapshots } from '#src/kube/resources.ts';
import { alsoWaitFor, read, RefusedError, refuseUntilChanged } from '#src/rules/rule.ts';
import { anApi } from '../volumes/source-builders.ts';

const ref = { namespace: 'space', name: 'thing' };
const thing: KubeObject = { metadata: { ...ref, uid: 'u', resourceVersion: '5' } };
const ABSENT = anApi([]);

async function refusalOf(rule: Promise<unknown>): Promise<RefusedError> {
  const error: unknown = await rule.then(
    () => assert.fail('it does not refuse'),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof RefusedError, String(error));
  return error;
}

describe('read', () => {
  it('refuses until the object is created', async () => {
    const error = await refusalOf(read(ABSENT, snapshots, ref, 'no snapshot'));
    assert.equal(
      error.message,
      'no snapshot: volumesnapshots.snapshot.storage.k8s.io "thing" not found',
    );
    assert.deepEqual(error.waitsFor, [
      { resource: 'volumesnapshots', namespace: 'space', name: 'thing', seen: '' },
    ]);
  });

  it('refuses with the server’s message, and waits for no object', async () => {
    const api = anApi([], [], { verb: 'read', code: 403, message: 'forbidden' });
    const error = await refusalOf(read(api, snapshots, ref, 'no snapshot'));
    assert.equal(error.message, 'no snapshot: forbidden');
    assert.deepEqual(error.waitsFor, []);
  });

  it('fails with the error of a server that is down', () => {
    const api = anApi([], [], { verb: 'read', code: 503, message: 'unavailable' });
    return assert.rejects(read(api, snapshots, ref), { name: 'KubeError', code: 503 });
  });

  it('says that the server does not serve the kind', async () => {
    const api = anApi([], [], { verb: 'read', code: 404, message: 'page not found' });
    const messageFor = async (resource: Resource) =>
      (await refusalOf(read(api, resource, ref))).message;
    assert.equal(
      await messageFor(snapshots),
      'the server could not find the requested resource ' +
        '(get volumesnapshots.snapshot.storage.k8s.io thing)',
    );
    assert.equal(
      await messageFor(secrets),
      'the server could not find the requested resource (get secrets thing)',
    );
  });
});

describe('alsoWaitFor', () => {
  const content = { metadata: { name: 'content', uid: 'c', resourceVersion: '6' } };
  const waits = async (refusal: RefusedError) =>
    (await refusalOf(alsoWaitFor(snapshots, thing, Promise.reject(refusal)))).waitsFor;
  const ON_THING = { resource: 'volumesnapshots', ...ref, seen: '5' };

  it('adds the referring object to what the refusal waits for', async () => {
    const on = { resource: 'volumesnapshotcontents', name: 'content', seen: '6' };
    const refusal = refuseUntilChanged(snapshotContents, content, 'no handle');
    assert.deepEqual(await waits(refusal), [on, ON_THING]);
  });

  it('adds no object twice', async () => {
    const refusal = refuseUntilChanged(snapshots, thing, 'not ready');
    assert.deepEqual(await waits(refusal), [ON_THING]);
  });
});
