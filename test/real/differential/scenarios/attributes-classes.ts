import { all, bound, refused, type Scenario } from '../../../harness/differential/scenario.ts';
import type { Scene } from '../../../harness/differential/scene.ts';
import type { Fields } from '../../../conformance/connection.ts';

const PATH = '/apis/storage.k8s.io/v1/volumeattributesclasses';

/** Claims that name a VolumeAttributesClass. */
export const attributesClasses: readonly Scenario[] = [
  {
    name: 'vac-present',
    title: 'passes the parameters of the VolumeAttributesClass (B-36)',
    class: { parameters: { 'test-param': 'from-sc' } },
    prepare: (scene) => makeAttributesClass(scene),
    claim: named,
    ends: bound,
  },
  {
    name: 'vac-no-parameters',
    title: 'accepts a VolumeAttributesClass with an empty value',
    prepare: (scene) => makeAttributesClass(scene, { parameters: { key: '' } }),
    claim: named,
    ends: bound,
  },
  {
    name: 'vac-missing',
    title: 'refuses while the VolumeAttributesClass is missing (B-39)',
    claim: named,
    ends: refused,
  },
  {
    name: 'vac-later',
    title: 'creates the volume once the VolumeAttributesClass exists',
    claim: named,
    ends: all(refused, (scene) => makeAttributesClass(scene), bound),
  },
  {
    name: 'vac-foreign',
    title: 'refuses the VolumeAttributesClass of another driver (B-40)',
    prepare: (scene) => makeAttributesClass(scene, { driverName: 'other.example.com' }),
    claim: named,
    ends: refused,
  },
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
