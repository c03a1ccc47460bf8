import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DEFAULT_GATES } from '#src/volumes/flags.ts';
import { isKnownAs, missingCapability, supportsTopology } from '#src/volumes/driver-facts.ts';
import { driver, DRIVER } from './builders.ts';
import { withCapability, withTopology } from './plans.ts';

describe('a driver', () => {
  it('is known by its name and by that of the plug-in that it replaced', () => {
    const successor = { name: DRIVER, inTreeName: 'kubernetes.io/test-disk' };
    const names = [DRIVER, 'kubernetes.io/test-disk', 'other'];
    const known = names.map((name) => isKnownAs(successor, name));
    assert.deepEqual(known, [true, true, false]);
  });

  it('is not known by a missing name, even if it replaced no plug-in', () =>
    assert.equal(isKnownAs({ name: DRIVER }, undefined), false));

  it('has topology if it reports so and the feature gate is on', () => {
    assert.equal(supportsTopology(withTopology, DEFAULT_GATES), true);
    assert.equal(supportsTopology(withTopology, { ...DEFAULT_GATES, Topology: false }), false);
    assert.equal(supportsTopology(driver, DEFAULT_GATES), false);
  });

  it('lacks nothing for a populator’s claim, nor for what it supports', () => {
    assert.equal(missingCapability(driver, { sourceKind: 'populator' }), undefined);
    const able = withCapability('CLONE_VOLUME', 'MODIFY_VOLUME');
    assert.equal(missingCapability(able, { sourceKind: 'clone', modifies: true }), undefined);
  });
});
