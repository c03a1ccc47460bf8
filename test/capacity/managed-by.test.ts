import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { limitedName, managedBy } from '#src/capacity/objects.ts';

const BASE = 'external-provisioner';
const node = (length: number): string => `node${'a'.repeat(length)}`;

const NAMES: readonly (readonly [title: string, base: string, node: string, name: string])[] = [
  ['joins short names (O-09)', BASE, 'node01', `${BASE}-node01`],
  ['leaves out an empty base (O-10)', '', 'node01', 'node01'],
  ['keeps a name of 63 characters (O-11)', BASE, node(38), `${BASE}-${node(38)}`],
  ['cuts the base of a longer one (O-12)', BASE, node(39), `external-p-53f40b57-${node(39)}`],
  ['cuts it to one character (O-13)', BASE, node(48), `e-53f40b57-${node(48)}`],
  ['leaves out a node that is too long (O-14)', BASE, node(49), `${BASE}-a3607ff1`],
  ['leaves out a node that is longer than a label (O-15)', BASE, node(63), `${BASE}-df38e37f`],
  ['has the hash alone without a base (O-16)', '', node(63), 'fa65587e'],
];

describe('the name of a provisioner', () => {
  for (const [title, base, suffix, name] of NAMES)
    it(title, () => assert.equal(limitedName(base, suffix), name));

  it('is upstream’s for all nodes', () => assert.equal(managedBy(), BASE));
  it('has the node for one node', () => assert.equal(managedBy('n1'), `${BASE}-n1`));
});
