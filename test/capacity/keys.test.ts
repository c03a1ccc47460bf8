import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseCapacityKey, refreshKey, removalKey } from '#src/capacity/items.ts';
import { objectName } from '#src/capacity/objects.ts';
import { jobData, type JobKey, parseJob } from '#src/queue/contract.ts';

const ITEM = { className: 'fast', segment: [['zone', 'a']] } as const;
const MANAGER = { driver: 'driver', managedBy: 'external-provisioner' };

/** The key as a worker reads it. */
function received(key: JobKey): JobKey {
  const parsed = parseJob(JSON.parse(JSON.stringify(jobData(key))));
  assert.ok(parsed.ok);
  return parsed.key;
}

describe('a job of the capacity queue', () => {
  it('names the value itself', () =>
    assert.deepEqual(parseCapacityKey(received(refreshKey(ITEM))), {
      kind: 'refresh',
      item: ITEM,
    }));

  it('is the same for equal values, and another one for others', () => {
    const { uid } = refreshKey(ITEM);
    assert.equal(refreshKey({ ...ITEM }).uid, uid);
    assert.notEqual(refreshKey({ ...ITEM, segment: [] }).uid, uid);
    assert.notEqual(refreshKey({ ...ITEM, className: 'slow' }).uid, uid);
  });

  it('holds a segment of any length', () => {
    const item = { className: 'fast', segment: [['k'.repeat(300), 'v'.repeat(300)]] } as const;
    assert.deepEqual(parseCapacityKey(received(refreshKey(item))), { kind: 'refresh', item });
  });

  it('names the object that is to be deleted', () => {
    const metadata = { uid: 'uid', namespace: 'ns', name: 'csisc-1', resourceVersion: '1' };
    assert.deepEqual(parseCapacityKey(received(removalKey({ metadata }))), {
      kind: 'remove',
      namespace: 'ns',
      name: 'csisc-1',
    });
  });

  for (const name of ['', 'x', '{}', '[]', '[1,[]]', '["a",[["b"]]]'])
    it(`is refused if nobody made it: ${name}`, () =>
      assert.equal(
        parseCapacityKey({ kind: 'capacity', uid: 'u', namespace: '', name }),
        undefined,
      ));
});

describe('the name of an object', () => {
  it('follows from driver, provisioner, class and segment', () => {
    const name = objectName(MANAGER, ITEM);
    assert.match(name, /^csisc-[0-9a-f]{24}$/);
    assert.equal(objectName(MANAGER, { ...ITEM }), name);
    assert.notEqual(objectName({ ...MANAGER, driver: 'other' }, ITEM), name);
    assert.notEqual(objectName({ ...MANAGER, managedBy: 'other' }, ITEM), name);
    assert.notEqual(objectName(MANAGER, { ...ITEM, segment: [] }), name);
  });
});
