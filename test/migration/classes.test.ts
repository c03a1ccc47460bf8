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

const KEY: Readonly<Record<string, string>> = {
  [GCE]: 'topology.gke.io/zone',
  [AWS]: 'topology.ebs.csi.aws.com/zone',
  [CINDER]: 'topology.cinder.csi.openstack.org/zone',
  [AZURE_DISK]: 'topology.disk.csi.azure.com/zone',
  [VSPHERE]: 'topology.csi.vmware.com/zone',
};
const keyOf = (name: string) => KEY[name] ?? '';
const ALL = [GCE, AWS, CINDER, AZURE_DISK, AZURE_FILE, VSPHERE, PORTWORX];

const translated = (name: string, change: Partial<Class> = {}) =>
  translateClass(aClassOf(name, change));
const parameters = (name: string, given: Record<string, string>) =>
  translated(name, { parameters: given }).parameters;
const oneTerm = (key: string, values: readonly string[]) => [
  { matchLabelExpressions: [{ key, values }] },
];

describe('fstype of an in-tree class', () => {
  for (const name of [GCE, AWS, CINDER]) {
    it(`becomes csi.storage.k8s.io/fstype for ${name}, in any case`, () => {
      for (const spelling of ['fstype', 'fsType', 'FSTYPE']) {
        assert.deepEqual(parameters(name, { [spelling]: 'ext3' }), {
          'csi.storage.k8s.io/fstype': 'ext3',
        });
      }
    });

    it(`wins over csi.storage.k8s.io/fstype for ${name}, in any order`, () => {
      const both = { fstype: 'ext3', 'csi.storage.k8s.io/fstype': 'xfs' };
      const turned = { 'csi.storage.k8s.io/fstype': 'xfs', fstype: 'ext3' };
      for (const given of [both, turned])
        assert.deepEqual(parameters(name, given), { 'csi.storage.k8s.io/fstype': 'ext3' });
    });
  }

  it('becomes csi.storage.k8s.io/fstype for vSphere too', () => {
    assert.deepEqual(parameters(VSPHERE, { FsType: 'ext3' }), {
      'csi.storage.k8s.io/fstype': 'ext3',
      csimigration: 'true',
    });
  });

  for (const name of [AZURE_DISK, AZURE_FILE, PORTWORX]) {
    it(`stays for ${name}`, () =>
      assert.deepEqual(parameters(name, { fsType: 'ext3' }), { fsType: 'ext3' }));
  }

  it('is the lower-case one of several spellings, in any order', () => {
    for (const given of [
      { fstype: 'a', FSTYPE: 'b' },
      { FSTYPE: 'b', fstype: 'a' },
    ]) {
      assert.deepEqual(parameters(AWS, given), { 'csi.storage.k8s.io/fstype': 'a' });
    }
  });
});

describe('zone and zones of an in-tree class', () => {
  for (const name of [GCE, AWS, AZURE_DISK]) {
    it(`zone becomes the only allowed topology for ${name}`, () => {
      const { parameters, allowedTopologies } = translated(name, {
        parameters: { Zone: 'us-east1-a,b ', type: 'x' },
      });
      assert.deepEqual(allowedTopologies, oneTerm(keyOf(name), ['us-east1-a,b ']));
      assert.deepEqual(parameters, { type: 'x' });
    });

    it(`zones is split at commas for ${name}, without trimming`, () => {
      const { parameters, allowedTopologies } = translated(name, {
        parameters: { ZONES: 'us-east1-a, us-east1-b,,' },
      });
      assert.deepEqual(
        allowedTopologies,
        oneTerm(keyOf(name), ['us-east1-a', ' us-east1-b', '', '']),
      );
      assert.deepEqual(parameters, {});
    });

    it(`zones wins over zone for ${name}`, () => {
      for (const given of [
        { zone: 'z1', zones: 'z2,z3' },
        { zones: 'z2,z3', zone: 'z1' },
      ]) {
        const cls = translated(name, { parameters: given });
        assert.deepEqual(cls.allowedTopologies, oneTerm(keyOf(name), ['z2', 'z3']));
        assert.deepEqual(cls.parameters, {});
      }
    });

    it(`empty zones become one empty value for ${name}`, () => {
      assert.deepEqual(
        translated(name, { parameters: { zones: '' } }).allowedTopologies,
        oneTerm(keyOf(name), ['']),
      );
      assert.deepEqual(
        translated(name, { parameters: { zone: '' } }).allowedTopologies,
        oneTerm(keyOf(name), ['']),
      );
    });

    it(`refuses zones next to allowed topologies for ${name}`, () => {
      for (const parameter of ['zone', 'zones']) {
        const cls = aClassOf(name, {
          parameters: { [parameter]: 'z1' },
          allowedTopologies: oneTerm('rack', ['r1']),
        });
        assert.throws(
          () => translateClass(cls),
          refusal('cannot simultaneously set allowed topologies and zone/zones parameters'),
        );
      }
    });

    it(`accepts zones next to an empty list of allowed topologies for ${name}`, () => {
      const cls = translated(name, { parameters: { zone: 'z' }, allowedTopologies: [] });
      assert.deepEqual(cls.allowedTopologies, oneTerm(keyOf(name), ['z']));
    });
  }

  for (const name of [CINDER, AZURE_FILE, PORTWORX]) {
    it(`have no meaning for ${name}`, () => {
      const cls = translated(name, { parameters: { Zone: 'z1', zones: 'z2' } });
      assert.deepEqual(cls.parameters, { Zone: 'z1', zones: 'z2' });
      assert.equal(cls.allowedTopologies, undefined);
    });
  }

  it('are left out for vSphere', () => {
    const cls = translated(VSPHERE, { parameters: { zone: 'z1', Zones: 'z2' } });
    assert.deepEqual(cls.parameters, { csimigration: 'true' });
    assert.equal(cls.allowedTopologies, undefined);
  });
});

describe('allowed topologies of an in-tree class', () => {
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
    { matchLabelExpressions: [] },
  ];

  for (const name of [GCE, AWS, CINDER, AZURE_DISK, VSPHERE]) {
    it(`have the driver’s key for zones for ${name}; all else stays`, () => {
      assert.deepEqual(translated(name, { allowedTopologies: given }).allowedTopologies, [
        {
          matchLabelExpressions: [
            { key: keyOf(name), values: ['b', 'a'] },
            { key: 'rack', values: ['r'] },
            { key: keyOf(name), values: ['c'] },
          ],
          unknown: 'to us',
        },
        {},
        { matchLabelExpressions: [{ key: GA_REGION, values: ['r'] }] },
        { matchLabelExpressions: [] },
      ]);
    });

    it(`stay empty or absent for ${name}`, () => {
      assert.deepEqual(translated(name, { allowedTopologies: [] }).allowedTopologies, []);
      assert.ok(!('allowedTopologies' in translated(name)));
    });
  }

  for (const name of [AZURE_FILE, PORTWORX]) {
    it(`stay for ${name}`, () =>
      assert.deepEqual(translated(name, { allowedTopologies: given }).allowedTopologies, given));
  }

  it('have an empty value for fault domains of Azure regions without zones', () => {
    const own = [
      {
        matchLabelExpressions: [
          { key: BETA_ZONE, values: ['0', '12', 'eastus-1', '1a', '-1', ''] },
        ],
      },
    ];
    const expected = oneTerm(keyOf(AZURE_DISK), ['', '', 'eastus-1', '1a', '-1', '']);
    assert.deepEqual(
      translated(AZURE_DISK, { allowedTopologies: own }).allowedTopologies,
      expected,
    );
  });

  it('have it also under the driver’s own key and for zones', () => {
    const own = oneTerm(keyOf(AZURE_DISK), ['0', 'a']);
    assert.deepEqual(
      translated(AZURE_DISK, { allowedTopologies: own }).allowedTopologies,
      oneTerm(keyOf(AZURE_DISK), ['', 'a']),
    );
    const { allowedTopologies } = translated(AZURE_DISK, { parameters: { zones: '0,a' } });
    assert.deepEqual(allowedTopologies, oneTerm(keyOf(AZURE_DISK), ['', 'a']));
  });

  it('keep numeric values of other keys', () => {
    assert.deepEqual(
      translated(AZURE_DISK, { allowedTopologies: oneTerm('rack', ['1']) }).allowedTopologies,
      oneTerm('rack', ['1']),
    );
  });
});

describe('other parameters of an in-tree class', () => {
  const given = {
    Type: 'gp3',
    availability: 'nova',
    'csi.storage.k8s.io/provisioner-secret-name': 's',
    ['__proto__']: 'p',
  };
  for (const name of [GCE, AWS, CINDER, AZURE_DISK, AZURE_FILE, PORTWORX]) {
    it(`keep their spelling for ${name}`, () => assert.deepEqual(parameters(name, given), given));
  }

  for (const spelling of ['iopspergb', 'iopsPerGB']) {
    it(`${spelling} of AWS lets the driver raise the iops`, () => {
      assert.deepEqual(parameters(AWS, { [spelling]: '10' }), {
        [spelling]: '10',
        allowautoiopspergbincrease: 'true',
      });
    });
  }

  it('iopspergb of AWS does so even if the class forbids it', () => {
    const given = { iopspergb: '10', allowautoiopspergbincrease: 'false' };
    assert.deepEqual(parameters(AWS, given), { ...given, allowautoiopspergbincrease: 'true' });
  });

  const vsphere: Readonly<Record<string, string>> = {
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
  for (const [key, out] of Object.entries(vsphere)) {
    it(`${key} of vSphere becomes ${out}`, () =>
      assert.deepEqual(parameters(VSPHERE, { [key]: 'v' }), { [out]: 'v', csimigration: 'true' }));
  }

  it('are left out for vSphere, even reserved ones of CSI', () => {
    assert.deepEqual(parameters(VSPHERE, given), { csimigration: 'true' });
    assert.deepEqual(parameters(VSPHERE, { csimigration: 'false' }), { csimigration: 'true' });
  });

  for (const name of [GCE, AWS, CINDER, AZURE_DISK]) {
    it(`are an empty map if there are none for ${name}`, () =>
      assert.deepEqual(translated(name).parameters, {}));
  }
  it('are only csimigration if there are none for vSphere', () => {
    assert.deepEqual(translated(VSPHERE).parameters, { csimigration: 'true' });
  });
});

describe('the secret of a Portworx class', () => {
  const PURPOSES = [
    'provisioner',
    'controller-publish',
    'node-publish',
    'node-stage',
    'controller-expand',
    'node-expand',
  ];
  for (const field of ['name', 'namespace']) {
    it(`has its ${field} repeated for each of six purposes, in any case`, () => {
      const expected = Object.fromEntries(
        PURPOSES.map((purpose) => [`csi.storage.k8s.io/${purpose}-secret-${field}`, 'value']),
      );
      for (const key of [
        `openstorage.io/auth-secret-${field}`,
        `OpenStorage.io/Auth-Secret-${field}`,
      ]) {
        assert.deepEqual(parameters(PORTWORX, { [key]: 'value', repl: '2' }), {
          ...expected,
          repl: '2',
        });
      }
    });
  }

  it('adds no parameters to a class without any', () => {
    assert.ok(!('parameters' in translated(PORTWORX)));
    assert.deepEqual(parameters(PORTWORX, {}), {});
  });
});

describe('translateClass', () => {
  for (const name of ALL.filter((name) => name !== PORTWORX)) {
    it(`keeps the provisioner ${name}`, () => assert.equal(translated(name).provisioner, name));
  }
  it('replaces Portworx’s provisioner by the driver', () =>
    assert.equal(translated(PORTWORX).provisioner, 'pxd.portworx.com'));

  it('changes nothing at all for Azure File', () => {
    const cls = aClassOf(AZURE_FILE, {
      parameters: { fsType: 'x', zone: 'z' },
      allowedTopologies: oneTerm(GA_ZONE, ['0']),
    });
    assert.deepEqual(translateClass(cls), cls);
  });

  for (const name of ALL) {
    it(`keeps every other field for ${name}`, () => {
      const others = {
        mountOptions: ['ro'],
        reclaimPolicy: 'Retain' as const,
        allowVolumeExpansion: true,
        unknown: { to: 'us' },
      };
      const { parameters: _, provisioner: __, metadata, ...kept } = translated(name, others);
      assert.deepEqual(kept, others);
      assert.deepEqual(metadata, aClassOf(name).metadata);
    });
  }

  for (const name of ['kubernetes.io/rbd', '', 'ebs.csi.aws.com', '__proto__']) {
    it(`refuses the provisioner "${name}"`, () => {
      const text = `could not find in-tree storage class parameter translation logic for "${name}"`;
      assert.throws(() => translateClass(aClassOf(name)), refusal(text));
    });
  }
});
