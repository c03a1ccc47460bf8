import type { Scene } from '../../../harness/differential/scene.ts';
import type { Fields } from '../../../conformance/connection.ts';
import {
  all,
  bound,
  refused,
  scenario,
  type Scenario,
} from '../../../harness/differential/scenario.ts';

const PATH = '/apis/storage.k8s.io/v1/volumeattributesclasses';

/** Claims that name a VolumeAttributesClass. */
export const attributesClasses: readonly Scenario[] = [
  scenario('vac-present', 'passes the parameters of the VolumeAttributesClass (B-36)', {
    class: { parameters: { 'test-param': 'from-sc' } },
    prepare: (scene) => makeAttributesClass(scene),
    claim: named,
  }),
  scenario('vac-no-parameters', 'accepts a VolumeAttributesClass with an empty value', {
    prepare: (scene) => makeAttributesClass(scene, { parameters: { key: '' } }),
    claim: named,
  }),
  scenario('vac-later', 'creates the volume once the VolumeAttributesClass exists (B-39)', {
    claim: named,
    ends: all(refused, (scene) => makeAttributesClass(scene), bound),
  }),
  scenario('vac-foreign', 'refuses the VolumeAttributesClass of another driver (B-40)', {
    prepare: (scene) => makeAttributesClass(scene, { driverName: 'other.example.com' }),
    claim: named,
    ends: refused,
  }),
];

export function makeAttributesClass(scene: Scene, fields: Fields = {}): Promise<unknown> {
  return scene.create(PATH, {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'VolumeAttributesClass',
    metadata: { name: scene.className },
    driverName: scene.driver,
    parameters: { 'test-param': 'from-vac' },
    ...fields,
  });
}

/** A claim that names the VolumeAttributesClass. */
export function named(scene: Scene): { readonly spec: Fields } {
  return { spec: { volumeAttributesClassName: scene.className } };
}
