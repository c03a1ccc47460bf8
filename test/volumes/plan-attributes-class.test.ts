import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { VolumeAttributesClass } from '#src/kube/objects.ts';
import { volumeAttributesClasses } from '#src/kube/resources.ts';
import { aClaim, aClass } from './builders.ts';
import {
  completePv,
  type Given,
  planCreation,
  planRefusal,
  runPlan,
  withCapability,
} from './plans.ts';
import type { ApiObjects } from './source-builders.ts';

const gold = { name: 'gold', uid: 'gold-uid', resourceVersion: '61' };
const stored = (change: Partial<VolumeAttributesClass>): ApiObjects => [
  [volumeAttributesClasses, { metadata: gold, driverName: 'test-driver', ...change }],
];
const given: Given = {
  claim: aClaim({ spec: { volumeAttributesClassName: 'gold' } }),
  cls: aClass({ parameters: { 'test-param': 'from-sc' } }),
  driver: withCapability('MODIFY_VOLUME'),
  objects: stored({ parameters: { 'test-param': 'from-vac' } }),
};

describe('a claim with a VolumeAttributesClass', () => {
  it('sends its parameters beside the class’s, and the PV names it (B-36)', async () => {
    const { request } = await planCreation(given);
    assert.deepEqual(request.mutableParameters, { 'test-param': 'from-vac' });
    assert.deepEqual(request.parameters, { 'test-param': 'from-sc' });
    assert.equal((await completePv(given)).spec.volumeAttributesClassName, 'gold');
  });

  it('is refused without the feature gate, which the message names (B-37)', async () => {
    const gated = { ...given, gates: { VolumeAttributesClass: false } };
    const { message } = await planRefusal(gated);
    assert.match(message, /^the claim names VolumeAttributesClass gold, and the feature gate/);
    assert.deepEqual((await runPlan(gated)).steps, []);
  });

  it('waits until the VolumeAttributesClass exists (B-39)', async () => {
    assert.deepEqual(await planRefusal({ ...given, objects: [] }), {
      kind: 'refuse',
      message: 'volumeattributesclasses.storage.k8s.io "gold" not found',
      waitsFor: [{ resource: 'volumeattributesclasses', name: 'gold', seen: '' }],
    });
  });

  it('sends empty parameters if it has none', async () => {
    const { request } = await planCreation({ ...given, objects: stored({}) });
    assert.deepEqual(request.mutableParameters, {});
  });

  it('is a plain claim if the name is empty', async () => {
    const claim = aClaim({ spec: { volumeAttributesClassName: '' } });
    const { spec } = await completePv({ ...given, claim, objects: [] });
    assert.equal(spec.volumeAttributesClassName, undefined);
  });
});
