import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Claim, Class } from '#src/kube/objects.ts';
import { volumeAttributesClasses } from '#src/kube/resources.ts';
import { omitUnset } from '#src/runtime/json.ts';
import type { DriverFacts } from '#src/volumes/driver-facts.ts';
import { aClaim, aClass, driver } from './builders.ts';
import { type Given, planCreation, planRefusal, withCapability } from './plans.ts';
import {
  type ApiObjects,
  aSourceClaim,
  aSourceVolume,
  cloneObjects,
  SNAPSHOT_GROUP,
} from './source-builders.ts';

const N = 'csi.storage.k8s.io/';
const IN_TREE = 'kubernetes.io/gce-pd';

/** What a plan is made of. */
interface Parts {
  /** Beside those of the fixture; undefined: the field is missing. */
  readonly spec?: Partial<Record<keyof Claim['spec'], unknown>>;
  readonly uid?: string;
  readonly prefix?: string;
  readonly cls?: Partial<Class>;
  readonly facts?: Partial<DriverFacts>;
  readonly objects?: ApiObjects;
}
const givenOf = ({ spec, uid, prefix, cls, facts, objects }: Parts): Given =>
  omitUnset({
    claim: aClaim({
      metadata: omitUnset({ uid }),
      spec: omitUnset({ ...spec }) as Partial<Claim['spec']>,
    }),
    cls: aClass(cls),
    driver: { ...driver, ...facts },
    options: omitUnset({ volumeNamePrefix: prefix }),
    objects,
  });

const unsupported = (what: string, capability: string) =>
  `CSI driver does not support ${what}: ${capability} capability is not reported`;
const able = (...capabilities: string[]): Parts => {
  const { controllerCapabilities } = withCapability(...capabilities);
  return { facts: { controllerCapabilities } };
};
const from = (kind: string, name: string, apiGroup?: string): Parts => ({
  spec: { dataSource: omitUnset({ kind, name, apiGroup }) },
});
const withParameters = (parameters: Record<string, string>): Parts => ({ cls: { parameters } });
const inSpace = { ...aSourceClaim().metadata, namespace: 'space' };
const source: ApiObjects = cloneObjects(
  aSourceClaim({ metadata: inSpace, spec: { resources: { requests: { storage: '100' } } } }),
  aSourceVolume({ spec: { claimRef: inSpace } }),
);
const attributesOf = (driverName: string): Parts => {
  const metadata = { name: 'gold', uid: 'g', resourceVersion: '1' };
  const gold = { metadata, driverName };
  return { objects: [...source, [volumeAttributesClasses, gold]] };
};
const half = (purpose: string) =>
  'failed to get name and namespace template from params: either name and namespace for ' +
  `${purpose} secrets specified, Both must be specified`;

/** Faults in the order in which a plan reports them, upstream’s, and what corrects each. */
const FAULTS: readonly (readonly [title: string, message: string, correction: Parts])[] = [
  [
    'a reference to a namespace without the feature gate',
    'dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled',
    { spec: { dataSourceRef: undefined, ...from('VolumeSnapshot', '', 'wrong').spec } },
  ],
  [
    'a class that can’t be translated',
    'failed to translate storage class: cannot simultaneously set allowed topologies and ' +
      'zone/zones parameters',
    withParameters({ fstype: 'a', [`${N}fstype`]: 'b' }),
  ],
  [
    'a source without a name (C-03)',
    'the PVC source not found for PVC claim',
    from('VolumeSnapshot', 's', 'wrong'),
  ],
  [
    'a snapshot of another group (C-05)',
    'the PVC source does not belong to the right APIGroup. Expected snapshot.storage.k8s.io, ' +
      'Got wrong',
    from('VolumeSnapshot', 's', SNAPSHOT_GROUP),
  ],
  [
    'a driver without controller',
    unsupported('dynamic provisioning', 'plugin CONTROLLER_SERVICE'),
    { facts: { pluginCapabilities: driver.pluginCapabilities } },
  ],
  [
    'a driver that can’t create volumes',
    unsupported('dynamic provisioning', 'controller CREATE_DELETE_VOLUME'),
    able(),
  ],
  [
    'a restore by a driver that can’t restore',
    unsupported('snapshot restore', 'controller CREATE_DELETE_SNAPSHOT'),
    from('PersistentVolumeClaim', 'fake-pvc'),
  ],
  [
    'a clone by a driver that can’t clone (D-02)',
    unsupported('clone operations', 'controller CLONE_VOLUME'),
    able('CLONE_VOLUME'),
  ],
  [
    'an attributes class of a driver that can’t modify (B-38)',
    unsupported('VolumeAttributesClass', 'controller MODIFY_VOLUME'),
    able('CLONE_VOLUME', 'MODIFY_VOLUME'),
  ],
  [
    'a selector, even an empty one (B-18)',
    'claim Selector is not supported',
    { spec: { selector: undefined } },
  ],
  ['an empty prefix', 'volume name prefix cannot be of length 0', { prefix: 'test' }],
  ['a claim without UID (B-19)', 'corrupted PVC object, it is missing UID', { uid: 'testid' }],
  [
    'a file system that is named twice (B-03)',
    'fstype specified in parameters with both "fstype" and "csi.storage.k8s.io/fstype" keys',
    withParameters({ [`${N}provisioner-secret-name`]: 'a' }),
  ],
  [
    'an access mode that CSI does not know',
    'unsupported AccessMode combination: [Other]',
    { spec: { accessModes: ['ReadWriteOnce'] } },
  ],
  [
    'a source that does not exist',
    'error getting handle for DataSource Type PersistentVolumeClaim by Name fake-pvc: error ' +
      'getting PVC fake-pvc (namespace "space") from api server: persistentvolumeclaim ' +
      '"fake-pvc" not found',
    { objects: source },
  ],
  [
    'half a provisioner secret (B-17)',
    half('Provisioner'),
    withParameters({ [`${N}node-stage-secret-name`]: 'a', [`${N}other`]: 'b' }),
  ],
  ['half another secret', half('NodeStage'), withParameters({ [`${N}other`]: 'b' })],
  [
    'an unknown reserved parameter (A-10)',
    'failed to strip CSI Parameters of prefixed keys: found unknown parameter key ' +
      `"${N}other" with reserved namespace ${N}`,
    withParameters({}),
  ],
  [
    'an attributes class that does not exist',
    'volumeattributesclasses.storage.k8s.io "gold" not found',
    attributesOf('other'),
  ],
  [
    'an attributes class of another driver (B-40)',
    'VAC gold referenced in PVC is for driver other which does not match driver name test-driver',
    attributesOf('test-driver'),
  ],
];

describe('a plan reports the first of several faults:', () => {
  const reference = { kind: 'Backup', name: 'b', namespace: 'elsewhere' };
  let parts: Parts = {
    uid: '',
    prefix: '',
    spec: {
      accessModes: ['Other'],
      dataSourceRef: reference,
      selector: {},
      volumeAttributesClassName: 'gold',
    },
    cls: {
      provisioner: IN_TREE,
      allowedTopologies: [{ matchLabelExpressions: [{ key: 'zone', values: ['a'] }] }],
      parameters: { zone: 'a' },
    },
    facts: {
      inTreeName: IN_TREE,
      pluginCapabilities: new Set(),
      controllerCapabilities: new Set(),
    },
  };
  for (const [title, message, correction] of FAULTS) {
    const faulty = parts;
    it(title, async () => assert.equal((await planRefusal(givenOf(faulty))).message, message));
    const [spec, facts] = [
      { ...parts.spec, ...correction.spec },
      { ...parts.facts, ...correction.facts },
    ];
    parts = { ...parts, ...correction, spec, facts };
  }
  const whole = parts;
  it('and none once all are corrected', async () =>
    assert.equal((await planCreation(givenOf(whole))).request.name, 'test-testi'));
});
