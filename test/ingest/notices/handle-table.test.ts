import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { HandleTable, SharedNames } from '#src/ingest/notices/handle-table.ts';
import type { Volume } from '#src/kube/objects.ts';

const volume = (name: string, volumeHandle?: string, driver = 'd.example'): Volume => ({
  metadata: { name, uid: name, resourceVersion: '1' },
  spec: volumeHandle === undefined ? {} : { csi: { driver, volumeHandle } },
});

describe('handle table', () => {
  it('finds a handle that a second PV names', () => {
    const table = new HandleTable();
    assert.equal(table.add(volume('one', 'h')), false);
    assert.equal(table.hasShared, false);
    assert.equal(table.add(volume('two', 'h')), true);
    assert.ok(table.isShared(volume('one', 'h')));
    assert.ok(!table.isShared(volume('three', 'other')));
  });

  it('takes the same handle of another driver, and no handle, for no sharing', () => {
    const table = new HandleTable();
    for (const each of [
      volume('one', 'h'),
      volume('two', 'h', 'e.example'),
      volume('three'),
      volume('four'),
    ])
      table.add(each);
    assert.equal(table.hasShared, false);
  });

  it('takes a PV that is listed twice for one', () => {
    const table = new HandleTable();
    table.add(volume('one', 'h'));
    assert.equal(table.add(volume('one', 'h')), false);
    assert.equal(table.hasShared, false);
  });
});

describe('shared names', () => {
  it('are those of handles with two PVs or more, of one driver', () => {
    const names = new SharedNames();
    for (const each of [
      volume('one', 'h'),
      volume('two', 'h'),
      volume('two', 'h'),
      volume('three', 'other'),
      volume('four', 'x', 'e.example'),
      volume('five', 'x', 'e.example'),
    ])
      names.add(each);
    assert.deepEqual(names.of('d.example'), new Map([['h', ['one', 'two']]]));
    assert.deepEqual(names.of('f.example'), new Map());
    assert.ok(names.has(volume('one', 'h')));
    assert.ok(!names.has(volume('six', 'h')));
  });
});
