import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { addFinalizer, hasFinalizer, removeFinalizer } from '#src/kube/finalizer-patches.ts';

const OURS = 'ours';

describe('hasFinalizer', () => {
  it('is true for an entry of the list only', () => {
    const object = { metadata: { finalizers: ['a', OURS] } };
    assert.equal(hasFinalizer(object, OURS), true);
    assert.equal(hasFinalizer(object, 'our'), false);
    assert.equal(hasFinalizer({ metadata: {} }, OURS), false);
  });
});

describe('addFinalizer', () => {
  it('changes nothing if the object has the finalizer (P-86)', () => {
    assert.equal(addFinalizer({ finalizers: ['a', OURS, 'b'] }, OURS), undefined);
  });

  it('creates a missing list (P-87)', () => {
    assert.deepEqual(addFinalizer({}, OURS), { list: [OURS], patch: { finalizers: [OURS] } });
  });

  it('fills an empty list (P-88)', () => {
    assert.deepEqual(addFinalizer({ finalizers: [] }, OURS), {
      list: [OURS],
      patch: { finalizers: [OURS] },
    });
  });

  it('appends to a list, and sends only our finalizer and the order (P-89)', () => {
    const finalizers = ['a', 'b'];
    assert.deepEqual(addFinalizer({ finalizers }, OURS), {
      list: ['a', 'b', OURS],
      patch: { finalizers: [OURS], '$setElementOrder/finalizers': ['a', 'b', OURS] },
    });
    assert.deepEqual(finalizers, ['a', 'b'], 'the list that was given is as it was');
  });
});

describe('removeFinalizer', () => {
  const terminating = { deletionTimestamp: 'now' };

  it('sends null for the last one of an object that is being deleted (P-81)', () => {
    assert.deepEqual(removeFinalizer({ finalizers: [OURS], ...terminating }, OURS), {
      list: [],
      patch: { finalizers: null },
    });
  });

  it('keeps what is added meanwhile to an object that is not being deleted', () => {
    assert.deepEqual(removeFinalizer({ finalizers: [OURS] }, OURS), {
      list: [],
      patch: { '$deleteFromPrimitiveList/finalizers': [OURS] },
    });
  });

  it('changes nothing if the object lacks the finalizer (P-82)', () => {
    assert.equal(removeFinalizer({ finalizers: ['a'], ...terminating }, OURS), undefined);
  });

  it('keeps the others and their order (P-83)', () => {
    const finalizers = ['a', OURS, 'b'];
    assert.deepEqual(removeFinalizer({ finalizers, ...terminating }, OURS), {
      list: ['a', 'b'],
      patch: {
        '$deleteFromPrimitiveList/finalizers': [OURS],
        '$setElementOrder/finalizers': ['a', 'b'],
      },
    });
    assert.deepEqual(finalizers, ['a', OURS, 'b'], 'the list that was given is as it was');
  });

  it('changes nothing in an empty list (P-84)', () =>
    assert.equal(removeFinalizer({ finalizers: [], ...terminating }, OURS), undefined));

  it('changes nothing if there is no list (P-85)', () =>
    assert.equal(removeFinalizer(terminating, OURS), undefined));
});
