import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type {
  Class,
  CsiSource,
  Labels,
  NewVolume,
  NodeSelectorTerm,
  TopologySelectorTerm,
  Volume,
  VolumeSpec,
} from '#src/kube/objects.ts';
import {
  isInTreeVolume,
  PLUGINS,
  toCsiVolume,
  toInTreeVolume,
  translateClass,
} from '#src/migration/plugins.ts';
import { RefusedError } from '#src/rules/rule.ts';
import { seeded } from '../harness/seeded.ts';
import { BETA_REGION, BETA_ZONE, frozen, GA_REGION, GA_ZONE } from './builders.ts';

const INPUTS = 10_000;

const random = seeded(20261121);
const below = (count: number) => Math.floor(random() * count);
const pick = <T>(from: readonly [T, ...T[]]): T => from[below(from.length)] ?? from[0];
const maybe = <T extends object>(part: () => T): Partial<T> => (random() < 0.5 ? part() : {});
const many = <T>(most: number, make: () => T): T[] => Array.from({ length: below(most + 1) }, make);

const ODD = [
  '',
  ' ',
  '__proto__',
  'constructor',
  '\u0000',
  '\ud800',
  '%',
  '%zz',
  '#',
  '##',
  '__',
  'a,b',
  '//',
  '日本',
  '-',
  '$1',
] as const;
const WORDS = [
  ...ODD,
  'us-east1-b',
  'us-east1-c',
  'us-east-1a',
  'us-west-2-lax-1a',
  'us-east1-b__us-east1-c',
  '0',
  '7',
  '-1',
  'Managed',
  'true',
  'vol-1',
  'aws://us-east-1a/vol-1',
  'aws://[/vol-1',
  'aws://z/vol-%ff',
  'projects/p/zones/z/disks/d',
  '/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d',
  'https://a/vhds/d',
  'g#a#s',
  'azure-storage-account-a-secret',
] as const;
const KEYS = [
  ...ODD,
  GA_ZONE,
  GA_REGION,
  BETA_ZONE,
  BETA_REGION,
  'zone',
  'Zones',
  'fsType',
  'fstype',
  'FSTYPE',
  'iopsPerGB',
  'diskFormat',
  'partition',
  'shareName',
  'secretname',
  'cachingMode',
  'initialvolumefilepath',
  'openstorage.io/auth-secret-name',
  'openstorage.io/auth-secret-namespace',
  'kubernetes.io/azure-file-resource-group',
  'topology.gke.io/zone',
  'topology.ebs.csi.aws.com/zone',
  'topology.cinder.csi.openstack.org/zone',
  'topology.disk.csi.azure.com/zone',
  'topology.csi.vmware.com/zone',
  'topology.csi.vmware.com/region',
] as const;

/** Mostly words that have a meaning in some field, sometimes parts of two. */
const word = (): string =>
  random() < 0.8 ? pick(WORDS) : pick(WORDS).slice(0, below(12)) + pick(WORDS).slice(below(6));
const map = (): Labels => Object.fromEntries(many(5, () => [pick(KEYS), word()] as const));
const list = (): string[] => many(3, word);

function term(): NodeSelectorTerm {
  const expressions = () =>
    many(3, () => ({
      key: pick(KEYS),
      operator: pick(['In', 'Exists'] as const),
      ...maybe(() => ({ values: list() })),
    }));
  return {
    ...maybe(() => ({ matchExpressions: expressions() })),
    ...maybe(() => ({ matchFields: expressions() })),
  };
}

function topologyTerm(): TopologySelectorTerm {
  return maybe(() => ({
    matchLabelExpressions: many(3, () => ({ key: pick(KEYS), values: list() })),
  }));
}

function aClass(): Class {
  return {
    metadata: { name: word(), uid: 'u', resourceVersion: '1' },
    provisioner: word(),
    ...maybe(() => ({ parameters: map() })),
    ...maybe(() => ({ allowedTopologies: many(3, topologyTerm) })),
  };
}

const mount = () => ({
  ...maybe(() => ({ fsType: word() })),
  ...maybe(() => ({ readOnly: random() < 0.5 })),
});
const partition = () => maybe(() => ({ partition: below(5) - 1 }));
const secret = () => ({
  ...maybe(() => ({ name: word() })),
  ...maybe(() => ({ namespace: word() })),
});

const SOURCES: readonly [() => VolumeSpec, ...(() => VolumeSpec)[]] = [
  () => ({}),
  () => ({ gcePersistentDisk: { pdName: word(), ...mount(), ...partition() } }),
  () => ({ awsElasticBlockStore: { volumeID: word(), ...mount(), ...partition() } }),
  () => ({ cinder: { volumeID: word(), ...mount(), ...maybe(() => ({ secretRef: secret() })) } }),
  () => ({
    azureDisk: {
      diskName: word(),
      diskURI: word(),
      ...mount(),
      ...maybe(() => ({ kind: word() })),
      ...maybe(() => ({ cachingMode: word() })),
    },
  }),
  () => ({
    azureFile: {
      secretName: word(),
      shareName: word(),
      ...mount(),
      ...maybe(() => ({ secretNamespace: pick([null, word()]) })),
    },
  }),
  () => ({
    vsphereVolume: {
      volumePath: word(),
      ...mount(),
      ...maybe(() => ({ storagePolicyName: word() })),
    },
  }),
  () => ({ portworxVolume: { volumeID: word(), ...mount() } }),
];

function csiSource(): CsiSource {
  return {
    driver: random() < 0.05 ? word() : (PLUGINS[below(PLUGINS.length)]?.csiDriver ?? ''),
    volumeHandle: word(),
    ...mount(),
    ...maybe(() => ({ volumeAttributes: map() })),
    ...maybe(() => ({ nodeStageSecretRef: secret() })),
  };
}

function volumeOf(source: VolumeSpec): NewVolume {
  const terms = () => many(3, term);
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: {
      name: word(),
      ...maybe(() => ({ labels: map() })),
      ...maybe(() => ({ annotations: map() })),
    },
    spec: {
      ...source,
      ...maybe(() => ({
        accessModes: many(3, () =>
          pick(['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod']),
        ),
      })),
      ...maybe(() => ({ claimRef: secret() })),
      ...maybe(() => ({
        nodeAffinity: maybe(() => ({ required: { nodeSelectorTerms: terms() } })),
      })),
      ...maybe(() => ({ storageClassName: word() })),
    },
  };
}

/** The result, or undefined for a refusal; any other error fails the test, for example that of a
 * write to the frozen input. */
function outcome<T, R>(input: T, rule: (input: T) => R): R | undefined {
  frozen(input);
  try {
    return rule(input);
  } catch (error) {
    assert.ok(error instanceof RefusedError, `${String(error)} for ${JSON.stringify(input)}`);
    return undefined;
  }
}

/** Encodes and decodes as JSON, which drops undefined fields and prototypes. */
const onTheWire = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

describe(`of ${INPUTS} generated inputs`, () => {
  it('each class is translated or refused, and keeps its name', () => {
    let done = 0;
    for (let i = 0; i < INPUTS; i++) {
      const inTreeName =
        random() < 0.05 ? word() : (PLUGINS[below(PLUGINS.length)]?.inTreeName ?? '');
      const cls = { ...aClass(), provisioner: inTreeName };
      const out = outcome(cls, translateClass);
      if (out === undefined) continue;
      done++;
      assert.deepEqual(out.metadata, cls.metadata);
      assert.deepEqual(onTheWire(out), out);
    }
    assert.ok(done > INPUTS / 2 && done < INPUTS, String(done));
  });

  it('each in-tree volume becomes a CSI one or is refused, and keeps its metadata', () => {
    let done = 0;
    for (let i = 0; i < INPUTS; i++) {
      const made = volumeOf(pick(SOURCES)());
      const volume: Volume = {
        ...made,
        metadata: { ...made.metadata, uid: 'u', resourceVersion: '1' },
      };
      const out = outcome(volume, toCsiVolume);
      if (!isInTreeVolume(volume)) assert.equal(out, undefined);
      if (out === undefined) continue;
      done++;
      assert.equal(isInTreeVolume(out), false);
      assert.equal(typeof out.spec.csi?.volumeHandle, 'string');
      assert.deepEqual(out.metadata, volume.metadata);
      assert.deepEqual(onTheWire(out), out);
    }
    assert.ok(done > INPUTS / 2 && done < INPUTS, String(done));
  });

  it('each CSI volume becomes an in-tree one or is refused, and keeps its labels', () => {
    let done = 0;
    for (let i = 0; i < INPUTS; i++) {
      const volume = volumeOf(random() < 0.02 ? {} : { csi: csiSource() });
      const out = outcome(volume, toInTreeVolume);
      if (out === undefined) continue;
      done++;
      assert.equal(isInTreeVolume(out), true);
      assert.equal(out.spec.csi, undefined);
      assert.equal(out.metadata.name, volume.metadata.name);
      assert.deepEqual(
        { ...out.metadata.labels, ...volume.metadata.labels },
        out.metadata.labels ?? {},
      );
      assert.deepEqual(onTheWire(out), out);
    }
    assert.ok(done > INPUTS / 4 && done < INPUTS, String(done));
  });
});
