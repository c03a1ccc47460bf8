import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { causeNamed } from '#src/explain/causes.ts';
import { faultOf, groupFaults } from '#src/explain/fault.ts';

const refused = (object: string, sentence: string) => ({
  object,
  cause: causeNamed('Refused', sentence),
});

describe('the fault of an object', () => {
  const same: readonly (readonly [string, string, string])[] = [
    ['numbers', '5Gi of 10 are left, at 1.5 MB/s', '6Gi of 7 are left, at 2.25 MB/s'],
    ['its own name', 'claim "data-a" of ns/data-a is too large', 'claim "b" of ns/b is too large'],
    [
      'its volume',
      'volume pvc-3f1c5a52-0c7e-4b5e-9d70-0123456789ab',
      'volume pvc-00000000-0c7e-4b5e-9d70-0123456789ac',
    ],
    ['ids of a driver', 'request 9f86d081884c7d65 failed', 'request 0b2e4f8a1c3d5e7f failed'],
  ];
  for (const [what, first, second] of same)
    it(`is the same with other ${what}`, () =>
      assert.equal(faultOf(refused('ns/data-a', first)), faultOf(refused('ns/b', second))));

  const others: readonly (readonly [string, string, string])[] = [
    ['class', 'StorageClass "fast-1" does not exist', 'StorageClass "fast-2" does not exist'],
    ['object', 'waits for secrets ns/login', 'waits for secrets ns/token'],
    ['text', 'the pool is full', 'the quota is used up'],
  ];
  for (const [what, first, second] of others)
    it(`is another with another ${what}`, () =>
      assert.notEqual(faultOf(refused('ns/a', first)), faultOf(refused('ns/a', second))));

  it('is another with another cause of the same sentence', () => {
    const forbidden = { object: 'ns/a', cause: causeNamed('Forbidden', 'no') };
    assert.notEqual(faultOf(forbidden), faultOf(refused('ns/a', 'no')));
  });

  it('is told first if somebody has to act, then if it is of many', () => {
    const fine = { object: 'ns/f', cause: causeNamed('Queued', 'it waits') };
    const all = [fine, fine, refused('ns/a', 'x'), refused('ns/b', 'y'), refused('ns/c', 'y')];
    assert.deepEqual(
      groupFaults(all).map(([{ object }, ...more]) => [object, more.length]),
      [
        ['ns/b', 1],
        ['ns/a', 0],
        ['ns/f', 1],
      ],
    );
  });
});
