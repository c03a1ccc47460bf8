import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Class } from '#src/kube/objects.ts';
import { describeItem, desiredItems } from '#src/capacity/items.ts';

const cls = (name: string, o: Partial<Class> = {}): Class => ({
  metadata: { name, uid: name, resourceVersion: '1' },
  provisioner: 'driver',
  volumeBindingMode: 'WaitForFirstConsumer',
  ...o,
});
const SEGMENT = [['zone', 'a']] as const;
const namesOf = (classes: readonly Class[], includesImmediate = false): readonly string[] =>
  desiredItems(classes, [SEGMENT], { driver: 'driver', includesImmediate }).map(describeItem);

describe('capacity is published', () => {
  it('for classes of the driver', () =>
    assert.deepEqual(namesOf([cls('a'), cls('b', { provisioner: 'other' })]), [
      'class a in zone=a',
    ]));

  it('not for immediate binding, unless asked for', () => {
    const now = cls('now', { volumeBindingMode: 'Immediate' });
    assert.deepEqual(namesOf([now]), []);
    assert.deepEqual(namesOf([now], true), ['class now in zone=a']);
  });

  it('for a class without a binding mode', () => {
    const { volumeBindingMode: _, ...bare } = cls('bare');
    assert.deepEqual(namesOf([bare]), ['class bare in zone=a']);
  });
});
