import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Claim, Class } from '#src/kube/objects.ts';
import { volumeAttributesClasses } from '#src/kube/resources.ts';
import type { DriverFacts } from '#src/volumes/driver-facts.ts';
import { aClaim, aClass, driver } from './builders.ts';
import { type Given, planCreation, planRefusal, withCapability } from './plans.ts';
import { aSourceClaim, aSourceVolume, cloneObjects, SNAPSHOT_GROUP } from './source-builders.ts';

const N = 'csi.storage.k8s.io/';
const IN_TREE = 'kubernetes.io/gce-pd';

describe('a claim is refused', () => {
  const unsupported = (what: string, capability: string) =>
    `CSI driver does not support ${what}: ${capability} capability is not reported`;
  const asking = (spec: Partial<Claim['spec']>): Given => ({ claim: aClaim({ spec }) });
  const snapshot = { apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot', name: 's' };
  const refusals: readonly (readonly [title: string, Given, message: string])[] = [
    [
      'with a selector, even an empty one (B-18)',
      asking({ selector: {} }),
      'claim Selector is not supported',
    ],
    [
      'without UID (B-19)',
      { claim: aClaim({ metadata: { uid: '' } }) },
      'corrupted PVC object, it is missing UID',
    ],
    [
      'with an access mode that CSI does not know',
      asking({ accessModes: ['Other'] }),
      'unsupported AccessMode combination: [Other]',
    ],
    [
      'by a driver without controller',
      { driver: { ...driver, pluginCapabilities: new Set() } },
      unsupported('dynamic provisioning', 'plugin CONTROLLER_SERVICE'),
    ],
    [
      'by a driver that can’t create volumes',
      { driver: { ...driver, controllerCapabilities: new Set() } },
      unsupported('dynamic provisioning', 'controller CREATE_DELETE_VOLUME'),
    ],
    [
      'for a snapshot, by a driver that can’t restore',
      asking({ dataSource: snapshot }),
      unsupported('snapshot restore', 'controller CREATE_DELETE_SNAPSHOT'),
    ],
    [
      'for a clone, by a driver that can’t clone (D-02)',
      asking({ dataSource: { kind: 'PersistentVolumeClaim', name: 'c' } }),
      unsupported('clone operations', 'controller CLONE_VOLUME'),
    ],
    [
      'for an attributes class, by a driver that can’t modify (B-38)',
      asking({ volumeAttributesClassName: 'gold' }),
      unsupported('VolumeAttributesClass', 'controller MODIFY_VOLUME'),
    ],
  ];
  for (const [title, given, message] of refusals)
    it(title, async () =>
      assert.deepEqual(await planRefusal(given), { kind: 'refuse', message, waitsFor: [] }),
    );
});

/** The message for a fault, and a function that corrects only that fault. */
type Fault = readonly [message: RegExp, correct: (given: Given) => Given];

const withSpec = (given: Given, spec: Partial<Claim['spec']>): Given => {
  const { claim = aClaim() } = given;
  return { ...given, claim: { ...claim, spec: { ...claim.spec, ...spec } } };
};
const without = (given: Given, field: keyof Claim['spec']): Given => {
  const { claim = aClaim() } = given;
  const { [field]: _, ...spec } = claim.spec;
  return { ...given, claim: { ...claim, spec } };
};
const withParameters = (given: Given, parameters: Record<string, string>): Given => ({
  ...given,
  cls: aClass({ parameters }),
});
const withFacts = (given: Given, facts: Partial<DriverFacts>): Given => ({
  ...given,
  driver: { ...(given.driver ?? driver), ...facts },
});
const zoned: Partial<Class> = {
  provisioner: IN_TREE,
  allowedTopologies: [{ matchLabelExpressions: [{ key: 'zone', values: ['a'] }] }],
  parameters: { zone: 'a' },
};
const attributes = (driverName: string) => ({
  metadata: { name: 'gold', uid: 'g', resourceVersion: '1' },
  driverName,
});
const inSpace = {
  namespace: 'space',
  uid: 'fake-claim-uid',
  name: 'fake-pvc',
  resourceVersion: '1',
};
const sources = cloneObjects(
  aSourceClaim({ metadata: inSpace, spec: { resources: { requests: { storage: '100' } } } }),
  aSourceVolume({ spec: { claimRef: inSpace } }),
);

const FAULTS: readonly Fault[] = [
  [
    /^dataSourceRef namespace specified but/,
    (given) =>
      withSpec(without(given, 'dataSourceRef'), {
        dataSource: { apiGroup: 'wrong', kind: 'VolumeSnapshot', name: '' },
      }),
  ],
  [
    /^failed to translate storage class: /,
    (given) => withParameters(given, { fstype: 'a', [`${N}fstype`]: 'b' }),
  ],
  [
    /^the PVC source not found for PVC claim$/,
    (given) =>
      withSpec(given, {
        dataSource: { apiGroup: 'wrong', kind: 'VolumeSnapshot', name: 'fake-pvc' },
      }),
  ],
  [
    new RegExp(
      String.raw`^the PVC source does not belong to the right APIGroup\. Expected ` +
        String.raw`snapshot\.storage\.k8s\.io, Got wrong$`,
    ),
    (given) => withSpec(given, { dataSource: { kind: 'PersistentVolumeClaim', name: 'fake-pvc' } }),
  ],
  [
    /plugin CONTROLLER_SERVICE capability/,
    (given) => withFacts(given, { pluginCapabilities: new Set(['CONTROLLER_SERVICE']) }),
  ],
  [
    /controller CREATE_DELETE_VOLUME/,
    (given) => withFacts(given, { controllerCapabilities: new Set(['CREATE_DELETE_VOLUME']) }),
  ],
  [/controller CLONE_VOLUME/, (given) => withFacts(given, withCapability('CLONE_VOLUME'))],
  [
    /controller MODIFY_VOLUME/,
    (given) => withFacts(given, withCapability('CLONE_VOLUME', 'MODIFY_VOLUME')),
  ],
  [/^claim Selector is not supported$/, (given) => without(given, 'selector')],
  [/^volume name prefix cannot be of length 0$/, (given) => ({ ...given, options: {} })],
  [
    /^corrupted PVC object/,
    (given) => ({ ...given, claim: { ...aClaim(), spec: given.claim?.spec ?? {} } }),
  ],
  [
    /^fstype specified in parameters with both/,
    (given) => withParameters(given, { [`${N}provisioner-secret-name`]: 'a' }),
  ],
  [
    /^unsupported AccessMode combination: \[Other\]$/,
    (given) => withSpec(given, { accessModes: ['ReadWriteOnce'] }),
  ],
  [
    /^error getting handle for DataSource Type PersistentVolumeClaim by Name fake-pvc: /,
    (given) => ({ ...given, objects: sources }),
  ],
  [
    /for Provisioner secrets specified/,
    (given) => withParameters(given, { [`${N}node-stage-secret-name`]: 'a', [`${N}other`]: 'b' }),
  ],
  [/for NodeStage secrets specified/, (given) => withParameters(given, { [`${N}other`]: 'b' })],
  [/^failed to strip CSI Parameters of prefixed keys/, (given) => withParameters(given, {})],
  [
    /^volumeattributesclasses\.storage\.k8s\.io "gold" not found$/,
    (given) => ({
      ...given,
      objects: [...sources, [volumeAttributesClasses, attributes('other')]],
    }),
  ],
  [
    /^VAC gold referenced in PVC is for driver other/,
    (given) => ({
      ...given,
      objects: [...sources, [volumeAttributesClasses, attributes('test-driver')]],
    }),
  ],
];

describe('a plan reports the first of several faults, in upstream’s order', () => {
  const { dataSourceRef, selector, volumeAttributesClassName } = {
    dataSourceRef: { kind: 'Backup', name: 'b', namespace: 'elsewhere' },
    selector: {},
    volumeAttributesClassName: 'gold',
  };
  let given: Given = {
    claim: aClaim({
      metadata: { uid: '' },
      spec: { accessModes: ['Other'], dataSourceRef, selector, volumeAttributesClassName },
    }),
    cls: aClass(zoned),
    driver: {
      ...driver,
      inTreeName: IN_TREE,
      pluginCapabilities: new Set(),
      controllerCapabilities: new Set(),
    },
    options: { volumeNamePrefix: '' },
  };
  for (const [message, correct] of FAULTS) {
    const faulty = given;
    it(message.source.replaceAll(/[\\^$]/g, ''), async () =>
      assert.match((await planRefusal(faulty)).message, message),
    );
    given = correct(given);
  }
  const whole = given;
  it('and none once all are corrected', async () =>
    assert.equal((await planCreation(whole)).request.name, 'test-testi'));
});
