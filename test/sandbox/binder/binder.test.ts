import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { silentLog } from '#src/runtime/log.ts';
import { type JsonObject, memberAt, textAt } from '../../../sandbox/api/json-value.ts';
import { claims } from '../../../sandbox/api/kinds/claims.ts';
import { pods } from '../../../sandbox/api/kinds/core.ts';
import { events } from '../../../sandbox/api/kinds/events.ts';
import { classes } from '../../../sandbox/api/kinds/storage.ts';
import { volumes } from '../../../sandbox/api/kinds/volumes.ts';
import type { KubeObject } from '../../../sandbox/api/kube-object.ts';
import type { Operations } from '../../../sandbox/api/operations.ts';
import { type Binder, startBinder } from '../../../sandbox/binder/binder.ts';
import { emptyOperations } from '../empty-operations.ts';

const ACCESS = { accessModes: ['ReadWriteOnce'] };

// Behaviour that a client can observe is tested by test/conformance/binder.ts, also on the real
// controller. These tests need access to the store.
describe('the volume binder', () => {
  let operations: Operations;
  let binder: Binder;

  beforeEach(() => {
    operations = emptyOperations();
    operations.create(classes, undefined, { metadata: { name: 'fast' }, provisioner: 'x.dev' });
    binder = startBinder({ operations, log: silentLog });
  });
  afterEach(() => binder.close());

  const claim = (name: string, spec: JsonObject = {}) =>
    operations.create(claims, 'default', {
      metadata: { name },
      spec: {
        ...ACCESS,
        storageClassName: 'fast',
        resources: { requests: { storage: '1Gi' } },
        ...spec,
      },
    }).object;
  const volume = (name: string, spec: JsonObject = {}, metadata: JsonObject = {}) =>
    operations.create(volumes, undefined, {
      metadata: { name, ...metadata },
      spec: {
        ...ACCESS,
        storageClassName: 'fast',
        capacity: { storage: '1Gi' },
        csi: { driver: 'x.dev', volumeHandle: name },
        ...spec,
      },
    }).object;
  const referenceTo = ({ metadata }: KubeObject) => ({
    namespace: 'default',
    name: metadata.name,
    uid: metadata.uid,
  });
  const claimNow = (name: string) =>
    operations.get({ resource: claims, namespace: 'default', name }).object;
  const volumeNow = (name: string) => operations.get({ resource: volumes, name }).object;
  const phase = (object: KubeObject) => textAt(object, 'status', 'phase');
  const reasons = () =>
    [...operations.store.collection(events).objects.values()]
      .map(
        ({ object }) => `${textAt(object, 'involvedObject', 'name')} ${textAt(object, 'reason')}`,
      )
      .sort();

  it('handles objects that existed before it started', async () => {
    await binder.close();
    const waiting = claim('early');
    volume('pv', { claimRef: referenceTo(waiting) });
    binder = startBinder({ operations, log: silentLog });
    await binder.idle();
    assert.deepEqual([phase(claimNow('early')), phase(volumeNow('pv'))], ['Bound', 'Bound']);
  });

  it('writes three times to bind a provisioned claim: phase, binding, status', async () => {
    const waiting = claim('c');
    await binder.idle();
    const marked = claimNow('c').metadata.resourceVersion;
    const writesBefore = operations.store.collection(claims).history.length;
    volume('pv', { claimRef: referenceTo(waiting) });
    const before = operations.store.revision;
    await binder.idle();
    assert.equal(operations.store.revision - before, 3);
    assert.equal(operations.store.collection(claims).history.length - writesBefore, 2);
    assert.notEqual(claimNow('c').metadata.resourceVersion, marked);
  });

  it('records an event only when the reason changes', async () => {
    claim('c');
    claim('lost', { storageClassName: 'none' });
    await binder.idle();
    for (let i = 0; i < 3; i += 1) {
      operations.patch({ resource: claims, namespace: 'default', name: 'c' }, 'merge', {
        metadata: { labels: { i: String(i) } },
      });
      await binder.idle();
    }
    assert.deepEqual(reasons(), ['c ExternalProvisioning', 'lost ProvisioningFailed']);
  });

  it('keeps a deleted claim while a pod uses it', async () => {
    claim('c');
    const spec = {
      containers: [{ name: 'a', image: 'a' }],
      volumes: [{ name: 'v', persistentVolumeClaim: { claimName: 'c' } }],
    };
    operations.create(pods, 'default', { metadata: { name: 'p' }, spec });
    await binder.idle();
    operations.delete({ resource: claims, namespace: 'default', name: 'c' });
    await binder.idle();
    assert.ok(claimNow('c').metadata.deletionTimestamp !== undefined);
    operations.delete({ resource: pods, namespace: 'default', name: 'p' });
    await binder.idle();
    assert.throws(() => claimNow('c'), /not found/);
  });

  it('releases a duplicate volume of a bound claim, and frees one it chose', async () => {
    const waiting = claim('c');
    volume('first', { claimRef: referenceTo(waiting) });
    await binder.idle();
    const made = { annotations: { 'pv.kubernetes.io/provisioned-by': 'x.dev' } };
    volume(
      'second',
      { claimRef: referenceTo(waiting), persistentVolumeReclaimPolicy: 'Delete' },
      made,
    );
    volume(
      'third',
      { claimRef: referenceTo(waiting) },
      { annotations: { 'pv.kubernetes.io/bound-by-controller': 'yes' } },
    );
    await binder.idle();
    assert.deepEqual(
      ['first', 'second', 'third'].map((name) => phase(volumeNow(name))),
      ['Bound', 'Released', 'Available'],
    );
    assert.equal(memberAt(volumeNow('third'), 'spec', 'claimRef'), undefined);
  });

  it('marks a claim as Lost if its volume belongs to another claim', async () => {
    const [a, b] = [claim('a'), claim('b')];
    volume('pv', { claimRef: referenceTo(a) });
    await binder.idle();
    operations.patch({ resource: volumes, name: 'pv' }, 'merge', {
      spec: { claimRef: { name: 'b', uid: b.metadata.uid } },
    });
    await binder.idle();
    assert.equal(phase(claimNow('a')), 'Lost');
    assert.ok(reasons().includes('a ClaimMisbound'));
  });

  for (const [what, spec, metadata] of [
    ['another class', { storageClassName: 'slow' }, {}],
    ['another volume mode', { volumeMode: 'Block' }, {}],
    ['fewer access modes', { accessModes: ['ReadOnlyMany'] }, {}],
    ['an attributes class', { volumeAttributesClassName: 'gold' }, {}],
    ['labels that the selector does not match', {}, { labels: { tier: 'slow' } }],
  ] as const) {
    it(`does not choose a volume with ${what}`, async () => {
      volume('pv', { ...spec } as JsonObject, { ...metadata });
      await binder.idle();
      claim('c', {
        selector: { matchExpressions: [{ key: 'tier', operator: 'NotIn', values: ['slow'] }] },
      });
      await binder.idle();
      assert.deepEqual([phase(claimNow('c')), phase(volumeNow('pv'))], ['Pending', 'Available']);
    });
  }

  it('chooses a free volume that appears while the claim waits', async () => {
    claim('c');
    await binder.idle();
    volume('pv');
    await binder.idle();
    assert.equal(textAt(claimNow('c'), 'spec', 'volumeName'), 'pv');
    assert.equal(textAt(volumeNow('pv'), 'spec', 'claimRef', 'uid'), claimNow('c').metadata.uid);
  });

  it('does nothing after it was closed', async () => {
    await binder.close();
    claim('c');
    await binder.idle();
    assert.equal(claimNow('c').metadata.annotations, undefined);
  });
});
