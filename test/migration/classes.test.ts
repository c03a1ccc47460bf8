import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Class } from '#src/kube/objects.ts';
import { translateClass } from '#src/migration/plugins.ts';
import { aClassOf, BETA_ZONE, GA_REGION, GA_ZONE, refusal } from './builders.ts';

const GCE = 'kubernetes.io/gce-pd';
const AWS = 'kubernetes.io/aws-ebs';
const CINDER = 'kubernetes.io/cinder';
const AZURE_DISK = 'kubernetes.io/azure-disk';
const AZURE_FILE = 'kubernetes.io/azure-file';
const VSPHERE = 'kubernetes.io/vsphere-volume';
const PORTWORX = 'kubernetes.io/portworx-volume';
const ALL = [GCE, AWS, CINDER, AZURE_DISK, AZURE_FILE, VSPHERE, PORTWORX];

const KEY: Readonly<Record<string, string>> = {
  [GCE]: 'topology.gke.io/zone',
  [AWS]: 'topology.ebs.csi.aws.com/zone',
  [CINDER]: 'topology.cinder.csi.openstack.org/zone',
  [AZURE_DISK]: 'topology.disk.csi.azure.com/zone',
  [VSPHERE]: 'topology.csi.vmware.com/zone',
};
const keyOf = (name: string) => KEY[name] ?? '';
const FSTYPE = 'csi.storage.k8s.io/fstype';

type Parameters = Readonly<Record<string, string>>;
const translated = (name: string, change: Partial<Class> = {}) =>
  translateClass(aClassOf(name, change));
const parametersOf = (name: string, parameters: Parameters) =>
  translated(name, { parameters }).parameters;
const topologiesOf = (name: string, change: Partial<Class>) =>
  translated(name, change).allowedTopologies;
const oneTerm = (key: string, values: readonly string[]) => [
  { matchLabelExpressions: [{ key, values }] },
];

describe('the parameters of an in-tree class', () => {
  const given = {
    Type: 'gp3',
    'csi.storage.k8s.io/provisioner-secret-name': 's',
    ['__proto__']: 'p',
  };
  const cases: readonly (readonly [string, plugin: string, Parameters, Parameters])[] = [
    ...[GCE, AWS, CINDER].flatMap((name) => [
      [
        `have fstype under CSI’s key for ${name}`,
        name,
        { fsType: 'x' },
        { [FSTYPE]: 'x' },
      ] as const,
      [
        `have fstype rather than CSI’s key for ${name}`,
        name,
        { fstype: 'x', [FSTYPE]: 'y' },
        { [FSTYPE]: 'x' },
      ] as const,
    ]),
    [
      'have fstype under CSI’s key for vSphere',
      VSPHERE,
      { FsType: 'x' },
      { [FSTYPE]: 'x', csimigration: 'true' },
    ],
    ...[AZURE_DISK, AZURE_FILE, PORTWORX].map(
      (name) => [`keep fstype for ${name}`, name, { fsType: 'x' }, { fsType: 'x' }] as const,
    ),
    [
      'have the lower-case one of several spellings',
      AWS,
      { FSTYPE: 'b', fstype: 'a' },
      { [FSTYPE]: 'a' },
    ],
    ...[GCE, AWS, CINDER, AZURE_DISK, AZURE_FILE, PORTWORX].map(
      (name) => [`keep other keys and their spelling for ${name}`, name, given, given] as const,
    ),
    ['are left out for vSphere, even CSI’s', VSPHERE, given, { csimigration: 'true' }],
    ...['iopspergb', 'iopsPerGB'].map(
      (key) =>
        [
          `let AWS’s driver raise the iops with ${key}, even if the class forbids it`,
          AWS,
          { [key]: '10', allowautoiopspergbincrease: 'false' },
          { [key]: '10', allowautoiopspergbincrease: 'true' },
        ] as const,
    ),
    ...[CINDER, AZURE_FILE, PORTWORX].map(
      (name) =>
        [
          `keep zones for ${name}`,
          name,
          { Zone: 'a', zones: 'b' },
          { Zone: 'a', zones: 'b' },
        ] as const,
    ),
    ['leave out zones for vSphere', VSPHERE, { zone: 'a', Zones: 'b' }, { csimigration: 'true' }],
  ];
  for (const [title, name, parameters, expected] of cases)
    it(title, () => assert.deepEqual(parametersOf(name, parameters), expected));

  const vsphere: Parameters = {
    storagePolicyName: 'storagepolicyname',
    datastore: 'datastore-migrationparam',
    diskFormat: 'diskformat-migrationparam',
    hostFailuresToTolerate: 'hostfailurestotolerate-migrationparam',
    forceProvisioning: 'forceprovisioning-migrationparam',
    cacheReservation: 'cachereservation-migrationparam',
    diskStripes: 'diskstripes-migrationparam',
    objectSpaceReservation: 'objectspacereservation-migrationparam',
    IOPSLimit: 'iopslimit-migrationparam',
  };
  for (const [key, out] of Object.entries(vsphere))
    it(`have ${out} for ${key} of vSphere`, () =>
      assert.deepEqual(parametersOf(VSPHERE, { [key]: 'v' }), {
        [out]: 'v',
        csimigration: 'true',
      }));

  for (const field of ['name', 'namespace'])
    it(`have the ${field} of Portworx’s secret for each of six purposes`, () => {
      const purposes = ['provisioner', 'controller-publish', 'node-publish', 'node-stage'];
      purposes.push('controller-expand', 'node-expand');
      const expected = Object.fromEntries(
        purposes.map((purpose) => [`csi.storage.k8s.io/${purpose}-secret-${field}`, 'value']),
      );
      const parameters = { [`OpenStorage.io/Auth-Secret-${field}`]: 'value', repl: '2' };
      assert.deepEqual(parametersOf(PORTWORX, parameters), { ...expected, repl: '2' });
    });

  it('are none for Portworx if the class has none', () =>
    assert.ok(!('parameters' in translated(PORTWORX))));
});

describe('the allowed topologies of an in-tree class', () => {
  const given = [
    {
      matchLabelExpressions: [
        { key: GA_ZONE, values: ['b', 'a'] },
        { key: 'rack', values: ['r'] },
        { key: BETA_ZONE, values: ['c'] },
      ],
      unknown: 'to us',
    },
    {},
    { matchLabelExpressions: [{ key: GA_REGION, values: ['r'] }] },
  ];
  for (const name of [GCE, AWS, CINDER, AZURE_DISK, VSPHERE]) {
    const key = keyOf(name);
    it(`have the driver’s key for zones for ${name}; all else stays`, () => {
      const [first, ...others] = given;
      const [zones, rack, old] = first?.matchLabelExpressions ?? [];
      assert.deepEqual(topologiesOf(name, { allowedTopologies: given }), [
        { ...first, matchLabelExpressions: [{ ...zones, key }, rack, { ...old, key }] },
        ...others,
      ]);
    });
  }

  for (const name of [GCE, AWS, AZURE_DISK]) {
    const key = keyOf(name);
    it(`are the zone of the parameters for ${name}`, () => {
      const { parameters, allowedTopologies } = translated(name, {
        parameters: { Zone: 'us-east1-a,b ', type: 'x' },
        allowedTopologies: [],
      });
      assert.deepEqual(allowedTopologies, oneTerm(key, ['us-east1-a,b ']));
      assert.deepEqual(parameters, { type: 'x' });
    });

    it(`are the zones of the parameters before the zone for ${name}, split at commas`, () => {
      const { parameters, allowedTopologies } = translated(name, {
        parameters: { zone: 'z1', ZONES: 'us-east1-a, us-east1-b,' },
      });
      assert.deepEqual(allowedTopologies, oneTerm(key, ['us-east1-a', ' us-east1-b', '']));
      assert.deepEqual(parameters, {});
    });

    it(`may not stand next to zones for ${name}`, () => {
      const cls = { parameters: { zone: 'z1' }, allowedTopologies: oneTerm('rack', ['r1']) };
      const text = 'cannot simultaneously set allowed topologies and zone/zones parameters';
      assert.throws(() => translated(name, cls), refusal(text));
    });
  }

  const AZURE = keyOf(AZURE_DISK);
  it('have an empty value for fault domains of Azure regions without zones', () => {
    const values = ['0', '12', 'eastus-1', '1a', '-1', ''];
    assert.deepEqual(
      topologiesOf(AZURE_DISK, { allowedTopologies: oneTerm(BETA_ZONE, values) }),
      oneTerm(AZURE, ['', '', 'eastus-1', '1a', '-1', '']),
    );
  });

  it('have it also under the driver’s own key and for zones', () => {
    const own = { allowedTopologies: oneTerm(AZURE, ['0', 'a']) };
    for (const cls of [own, { parameters: { zones: '0,a' } }])
      assert.deepEqual(topologiesOf(AZURE_DISK, cls), oneTerm(AZURE, ['', 'a']));
  });

  it('keep numeric values of other keys', () => {
    const own = oneTerm('rack', ['1']);
    assert.deepEqual(topologiesOf(AZURE_DISK, { allowedTopologies: own }), own);
  });
});

describe('an in-tree class', () => {
  it('keeps its provisioner, but for Portworx', () => {
    const provisioners = ALL.map((name) => translated(name).provisioner);
    assert.deepEqual(provisioners, [...ALL.slice(0, -1), 'pxd.portworx.com']);
  });

  it('does not change at all for Azure File', () => {
    const cls = aClassOf(AZURE_FILE, {
      parameters: { fsType: 'x', zone: 'z' },
      allowedTopologies: oneTerm(GA_ZONE, ['0']),
    });
    assert.deepEqual(translateClass(cls), cls);
  });

  for (const name of ALL)
    it(`keeps every other field for ${name}`, () => {
      const others = {
        mountOptions: ['ro'],
        reclaimPolicy: 'Retain',
        unknown: { to: 'us' },
      } as const;
      const { parameters: _, provisioner: __, metadata, ...kept } = translated(name, others);
      assert.deepEqual(kept, others);
      assert.deepEqual(metadata, aClassOf(name).metadata);
    });

  for (const name of ['kubernetes.io/rbd', '', '__proto__'])
    it(`is refused for the provisioner "${name}"`, () => {
      const text = `could not find in-tree storage class parameter translation logic for "${name}"`;
      assert.throws(() => translateClass(aClassOf(name)), refusal(text));
    });
});
