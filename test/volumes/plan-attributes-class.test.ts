import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { VolumeAttributesClass } from '#src/kube/objects.ts';
import { volumeAttributesClasses } from '#src/kube/resources.ts';
import { planVolume } from '#src/volumes/plan.ts';
import { aClaim, aClass, options } from './builders.ts';
import {
  completePv,
  type Given,
  planCreation,
  planRefusal,
  runPlan,
  withCapability,
} from './plans.ts';
import { anApi, type ApiObjects } from './source-builders.ts';

const claim = aClaim({ spec: { volumeAttributesClassName: 'gold' } });
const cls = aClass({ parameters: { 'test-param': 'from-sc' } });
const storedClass = (change: Partial<VolumeAttributesClass> = {}): ApiObjects => [
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
  it('sends its parameters beside the class’s, and the PV names it (B-36)', async () => {
    const given = { ...common, objects: storedClass() };
    const { request } = await planCreation(given);
    assert.deepEqual(request.mutableParameters, { 'test-param': 'from-vac' });
    assert.deepEqual(request.parameters, { 'test-param': 'from-sc' });
    assert.equal((await completePv(given)).spec.volumeAttributesClassName, 'gold');
  });

  it('is refused without the feature gate, which the message names (B-37)', async () => {
    const given = { ...common, objects: storedClass(), gates: { VolumeAttributesClass: false } };
    assert.match(
      (await planRefusal(given)).message,
      new RegExp(
        '^the claim names VolumeAttributesClass gold, and the feature gate ' +
          'VolumeAttributesClass is off',
      ),
    );
    assert.deepEqual((await runPlan(given)).steps, []);
  });

  it('waits until the VolumeAttributesClass exists (B-39)', async () => {
    assert.deepEqual(await planRefusal(common), {
      kind: 'refuse',
      message: 'volumeattributesclasses.storage.k8s.io "gold" not found',
      waitsFor: [{ resource: 'volumeattributesclasses', name: 'gold', seen: '' }],
    });
  });

  it('is refused if it is of another driver (B-40)', async () => {
    assert.equal(
      (await planRefusal({ ...common, objects: storedClass({ driverName: 'other' }) })).message,
      'VAC gold referenced in PVC is for driver other which does not match driver name test-driver',
    );
  });

  it('sends empty parameters if it has none', async () => {
    const [entry] = storedClass();
    assert.ok(entry);
    const { parameters: _, ...bare } = entry[1] as VolumeAttributesClass;
    assert.deepEqual(
      (await planCreation({ ...common, objects: [[volumeAttributesClasses, bare]] })).request
        .mutableParameters,
      {},
    );
  });

  it('is a plain claim if the name is empty', async () => {
    const given = { ...common, claim: aClaim({ spec: { volumeAttributesClassName: '' } }) };
    assert.deepEqual((await runPlan(given)).steps, []);
    assert.equal((await completePv(given)).spec.volumeAttributesClassName, undefined);
  });

  it('is not refused for a defect, whose error passes', () => {
    const driver = withCapability('MODIFY_VOLUME');
    const broken = { ...anApi([]), get: () => Promise.reject(new TypeError('broken')) };
    return assert.rejects(
      planVolume(broken, { claim, cls, driver, options }),
      new TypeError('broken'),
    );
  });

  it('reads the VolumeAttributesClass once, after all other checks', async () => {
    assert.deepEqual((await runPlan({ ...common, objects: storedClass() })).steps, [
      'read volumeattributesclasses gold',
    ]);
  });
});
