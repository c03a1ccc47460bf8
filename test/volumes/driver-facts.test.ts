import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DEFAULT_GATES } from '#src/volumes/flags.ts';
import { isKnownAs, missingCapability, supportsTopology } from '#src/volumes/driver-facts.ts';
import { driver, DRIVER } from './builders.ts';
import { withCapability, withTopology } from './plans.ts';

describe('a driver', () => {
  const successor = { name: DRIVER, inTreeName: 'kubernetes.io/test-disk' };

  it('is known by its name and by that of the plug-in that it replaced', () => {
    assert.equal(isKnownAs(successor, DRIVER), true);
    assert.equal(isKnownAs(successor, 'kubernetes.io/test-disk'), true);
    assert.equal(isKnownAs(successor, 'other'), false);
  });

  it('is not known by a missing name, even if it replaced no plug-in', () =>
    assert.equal(isKnownAs({ name: DRIVER }, undefined), false));

  it('has topology if it reports so and the feature gate is on', () => {
    assert.equal(supportsTopology(withTopology, DEFAULT_GATES), true);
    assert.equal(supportsTopology(withTopology, { ...DEFAULT_GATES, Topology: false }), false);
    assert.equal(supportsTopology(driver, DEFAULT_GATES), false);
  });

  it('lacks nothing for a plain claim, nor for what it supports', () => {
    assert.equal(missingCapability(driver), undefined);
    assert.equal(missingCapability(driver, { sourceKind: 'populator' }), undefined);
    assert.equal(
      missingCapability(withCapability('CREATE_DELETE_SNAPSHOT'), { sourceKind: 'snapshot' }),
      undefined,
    );
    assert.equal(
      missingCapability(withCapability('CLONE_VOLUME', 'MODIFY_VOLUME'), {
        sourceKind: 'clone',
        modifies: true,
      }),
      undefined,
    );
  });
});
