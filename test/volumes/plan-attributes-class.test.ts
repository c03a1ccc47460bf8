import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { VolumeAttributesClass } from '#src/kube/objects.ts';
import { volumeAttributesClasses } from '#src/kube/resources.ts';
import { planVolume } from '#src/volumes/plan.ts';
import { aClaim, aClass, options } from './builders.ts';
import { created, planned, refused, volumeOf, withCapability, type Given } from './plans.ts';
import type { World } from './source-builders.ts';

const claim = aClaim({ spec: { volumeAttributesClassName: 'gold' } });
const cls = aClass({ parameters: { 'test-param': 'from-sc' } });
const holding = (change: Partial<VolumeAttributesClass> = {}): World => [
  [
    volumeAttributesClasses,
    {
      metadata: { name: 'gold', uid: 'gold-uid', resourceVersion: '61' },
      driverName: 'test-driver',
      parameters: { 'test-param': 'from-vac' },
      ...change,
    },
  ],
];
const common: Given = { claim, cls, driver: withCapability('MODIFY_VOLUME') };

describe('a claim with a VolumeAttributesClass', () => {
  it('has its parameters sent beside the class’s, and the PV names it (B-36)', () => {
    const given = { ...common, world: holding() };
    const { request } = created(given);
    assert.deepEqual(request.mutableParameters, { 'test-param': 'from-vac' });
    assert.deepEqual(request.parameters, { 'test-param': 'from-sc' });
    assert.equal(volumeOf(given).spec.volumeAttributesClassName, 'gold');
  });

  it('is refused, naming the gate, where that is off (B-37)', () => {
    const given = { ...common, world: holding(), gates: { VolumeAttributesClass: false } };
    assert.match(
      refused(given).message,
      /^the claim names VolumeAttributesClass gold, and the feature gate VolumeAttributesClass is off/,
    );
    assert.deepEqual(planned(given).steps, []);
  });

  it('waits for one that is missing (B-39)', () => {
    assert.deepEqual(refused(common), {
      kind: 'refuse',
      message: 'volumeattributesclasses.storage.k8s.io "gold" not found',
      waitsFor: [{ resource: 'volumeattributesclasses', name: 'gold', seen: '' }],
    });
  });

  it('is refused for one of another driver (B-40)', () => {
    assert.equal(
      refused({ ...common, world: holding({ driverName: 'other' }) }).message,
      'VAC gold referenced in PVC is for driver other which does not match driver name test-driver',
    );
  });

  it('has nothing sent where that has no parameters', () => {
    const [entry] = holding();
    assert.ok(entry);
    const { parameters: _, ...bare } = entry[1] as VolumeAttributesClass;
    assert.deepEqual(
      created({ ...common, world: [[volumeAttributesClasses, bare]] }).request.mutableParameters,
      {},
    );
  });

  it('is a plain claim where the name is empty', () => {
    const given = { ...common, claim: aClaim({ spec: { volumeAttributesClassName: '' } }) };
    assert.deepEqual(planned(given).steps, []);
    assert.equal(volumeOf(given).spec.volumeAttributesClassName, undefined);
  });

  it('is not refused for what is no refusal', () => {
    const rule = planVolume({
      claim,
      cls,
      className: 'class',
      driver: withCapability('MODIFY_VOLUME'),
      options,
    });
    assert.equal(rule.next().done, false);
    assert.throws(() => rule.throw(new TypeError('broken')), {
      name: 'TypeError',
      message: 'broken',
    });
  });

  it('has the attributes class read once, after everything else was checked', () => {
    assert.deepEqual(planned({ ...common, world: holding() }).steps, [
      'read volumeattributesclasses gold',
    ]);
  });
});
