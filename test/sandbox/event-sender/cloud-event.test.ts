import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { cloudEvent } from '../../../sandbox/event-sender/cloud-event.ts';

const how = { source: 'https://10.96.0.1:443', id: 'an-id', nowMs: Date.UTC(2026, 8, 14, 8, 30) };
const claim = {
  kind: 'PersistentVolumeClaim',
  apiVersion: 'v1',
  metadata: { namespace: 'shop', name: 'db', annotations: { note: 'fast & <cheap>' } },
};
const volume = { kind: 'PersistentVolume', apiVersion: 'v1', metadata: { name: 'pv-1' } };

describe('cloudEvent', () => {
  it('has its attributes in the headers', () =>
    assert.deepEqual(
      cloudEvent({ type: 'ADDED', object: claim }, { ...how, mode: 'reference' }).headers,
      {
        'content-type': 'application/json',
        'ce-specversion': '1.0',
        'ce-id': 'an-id',
        'ce-type': 'dev.knative.apiserver.ref.add',
        'ce-source': 'https://10.96.0.1:443',
        'ce-subject': '/apis/v1/namespaces/shop/persistentvolumeclaims/db',
        'ce-time': '2026-09-14T08:30:00.000000000Z',
        'ce-kind': 'PersistentVolumeClaim',
        'ce-apiversion': 'v1',
        'ce-name': 'db',
        'ce-namespace': 'shop',
        'kn-namespace': 'default',
      },
    ));

  it('refers to the object, without namespace for one of the cluster', () => {
    const bodyOf = (object: typeof claim | typeof volume) =>
      cloudEvent({ type: 'DELETED', object }, { ...how, mode: 'reference' }).body;
    assert.equal(
      bodyOf(claim),
      '{"kind":"PersistentVolumeClaim","namespace":"shop","name":"db","apiVersion":"v1"}',
    );
    assert.equal(bodyOf(volume), '{"kind":"PersistentVolume","name":"pv-1","apiVersion":"v1"}');
  });

  it('of an object of the cluster has an empty namespace', () => {
    const event = cloudEvent({ type: 'MODIFIED', object: volume }, { ...how, mode: 'reference' });
    assert.equal(event.headers['ce-namespace'], '');
    assert.equal(event.headers['ce-subject'], '/apis/v1/namespaces//persistentvolumes/pv-1');
  });

  it('contains the whole object in resource mode, written as Go does', () => {
    const event = cloudEvent({ type: 'MODIFIED', object: claim }, { ...how, mode: 'resource' });
    assert.equal(event.headers['ce-type'], 'dev.knative.apiserver.resource.update');
    assert.equal(
      event.body,
      '{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":' +
        '{"note":"fast \\u0026 \\u003ccheap\\u003e"},"name":"db","namespace":"shop"}}',
    );
  });
});
