import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fc from 'fast-check';
import type { Claim, Class, KubeObject, Volume, VolumeAttachment } from '#src/kube/objects.ts';
import { planDeletion, shouldDelete } from '#src/volumes/deletion.ts';
import { DEFAULT_GATES } from '#src/volumes/flags.ts';
import { planVolume, type VolumePlan } from '#src/volumes/plan.ts';
import type { Answer, Step } from '#src/rules/rule.ts';
import { aClaim, aClass, aVolume, DRIVER, options } from './builders.ts';
import { aCluster } from '../topology/fake-cluster.ts';

const RUNS = 3_000;
/** A fixed seed, so that every run has the same inputs; a failure prints the smallest input. */
const SEED = 20_261_121;

const CAPABILITIES = [
  'CREATE_DELETE_VOLUME',
  'CREATE_DELETE_SNAPSHOT',
  'CLONE_VOLUME',
  'MODIFY_VOLUME',
  'SINGLE_NODE_MULTI_WRITER',
];
const PLUGIN = ['CONTROLLER_SERVICE', 'VOLUME_ACCESSIBILITY_CONSTRAINTS'];
const word = fc.oneof(
  fc.constantFrom('', 'a', 'x y', 'größe', '${pv.name}', '${pvc.name}', '${', '$1', '__proto__'),
  fc.string(),
);
const size = fc.oneof(
  fc.constantFrom('0', '100', '1.5Gi', '1500m', '99999999999Ei', '-1', '1e400', '', 'NaN', '+5k'),
  fc.string({ maxLength: 6 }),
);
const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(value, { nil: undefined });
/** Mostly valid values, so that later checks are reached too. */
const mostly = <T, U>(good: fc.Arbitrary<T>, odd: fc.Arbitrary<U>): fc.Arbitrary<T | U> =>
  fc.oneof({ weight: 9, arbitrary: good }, { weight: 1, arbitrary: odd });
/** Leaves out undefined fields, as JSON does. */
const bare = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;

const RESERVED = [
  'fstype',
  'secret-name',
  'secret-namespace',
  'provisioner-secret-name',
  'provisioner-secret-namespace',
  'node-stage-secret-name',
  'pvc/name',
  '',
];
const parameterKey = fc.oneof(
  fc.constantFrom(
    'fstype',
    'FSType',
    'csiProvisionerSecretName',
    'csiProvisionerSecretNamespace',
    ...RESERVED.map((key) => `csi.storage.k8s.io/${key}`),
  ),
  word,
);
const sourceKind = fc.constantFrom('VolumeSnapshot', 'PersistentVolumeClaim', 'Backup', '');
const source = fc.record({
  apiGroup: maybe(fc.constantFrom('snapshot.storage.k8s.io', '', 'example.com')),
  kind: sourceKind,
  name: word,
});

const SNAPSHOT = { apiGroup: 'snapshot.storage.k8s.io', kind: 'VolumeSnapshot', name: 'source' };
const CLONE = { kind: 'PersistentVolumeClaim', name: 'source' };

const claim: fc.Arbitrary<Claim> = fc
  .record({
    uid: mostly(fc.constant('claim-uid'), word),
    name: mostly(fc.constant('claim'), word),
    annotations: maybe(
      fc.dictionary(
        fc.oneof(
          fc.constantFrom(
            'volume.kubernetes.io/storage-provisioner',
            'volume.kubernetes.io/selected-node',
          ),
          word,
        ),
        fc.oneof(fc.constantFrom(DRIVER, 'node-0', 'node-1'), word),
      ),
    ),
    accessModes: maybe(
      fc.array(
        mostly(
          fc.constantFrom('ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod'),
          word,
        ),
        { maxLength: 4 },
      ),
    ),
    storage: maybe(mostly(fc.constantFrom('1Gi', '100'), size)),
    volumeMode: maybe(fc.constantFrom('Block', 'Filesystem')),
    selector: mostly(fc.constant(undefined), fc.constant({})),
    storageClassName: maybe(word),
    volumeName: maybe(word),
    dataSource: mostly(fc.constantFrom(undefined, SNAPSHOT, CLONE), source),
    dataSourceRef: mostly(
      fc.constant(undefined),
      fc.tuple(source, maybe(word)).map(([ref, namespace]) => ({ ...ref, namespace })),
    ),
    volumeAttributesClassName: mostly(fc.constant(undefined), word),
  })
  .map(({ uid, name, annotations, storage, ...spec }) =>
    // The API server guarantees the types only.
    bare({
      ...aClaim(),
      metadata: { ...aClaim().metadata, uid, name, annotations },
      spec: { ...spec, ...(storage === undefined ? {} : { resources: { requests: { storage } } }) },
    } as unknown as Claim),
  );

const topologyKey = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom('zone', 'rack') },
  fc.constantFrom('constructor', '__proto__', 'a b', '', 'x'.repeat(300)),
);

const cls: fc.Arbitrary<Class> = fc
  .record({
    provisioner: fc.constantFrom(DRIVER, 'kubernetes.io/aws-ebs', 'other'),
    parameters: maybe(
      mostly(
        fc.constantFrom({}, { fstype: 'xfs' }),
        fc.dictionary(parameterKey, word, { maxKeys: 5 }),
      ),
    ),
    mountOptions: maybe(fc.array(word, { maxLength: 3 })),
    reclaimPolicy: maybe(fc.constantFrom('Delete', 'Retain')),
    volumeBindingMode: maybe(fc.constantFrom('Immediate', 'WaitForFirstConsumer')),
    allowedTopologies: maybe(
      fc.array(
        fc.record({
          matchLabelExpressions: maybe(
            fc.array(fc.record({ key: fc.oneof(topologyKey, word), values: fc.array(word) }), {
              maxLength: 2,
            }),
          ),
        }),
        {
          maxLength: 2,
        },
      ),
    ),
  })
  .map((change) => bare({ ...aClass(), ...change } as Class));

const driverFacts = fc.record({
  name: fc.constantFrom(DRIVER, 'ebs.csi.aws.com'),
  inTreeName: fc.constantFrom(undefined, 'kubernetes.io/aws-ebs'),
  pluginCapabilities: mostly(fc.constant(PLUGIN), fc.subarray(PLUGIN)).map(
    (names) => new Set(names),
  ),
  controllerCapabilities: mostly(fc.constant(CAPABILITIES), fc.subarray(CAPABILITIES)).map(
    (names) => new Set(names),
  ),
});
const planOptions = fc
  .record({
    volumeNamePrefix: mostly(fc.constant('pvc'), fc.constant('')),
    volumeNameUuidLength: fc.constantFrom(-1, 1, 32),
    extraCreateMetadata: fc.boolean(),
    preventVolumeModeConversion: fc.boolean(),
    strictTopology: fc.boolean(),
    immediateTopology: fc.boolean(),
    gates: fc.record({
      VolumeAttributesClass: fc.boolean(),
      CrossNamespaceVolumeDataSource: fc.boolean(),
    }),
  })
  .map(({ gates, ...rest }) => ({ ...options, ...rest, gates: { ...DEFAULT_GATES, ...gates } }));

const labels = fc.dictionary(
  topologyKey,
  fc.oneof(fc.constantFrom('a', 'b', '1'), fc.constant('z'.repeat(300)), word),
  { maxKeys: 3 },
);
const testNode = fc.record({
  labels: mostly(labels, fc.constant(undefined)),
  keys: mostly(
    fc.array(topologyKey, { maxLength: 3 }),
    fc.constantFrom(undefined, 'not registered' as const),
  ),
});
/** Nodes without labels or keys, with keys that the labels contradict, and without one of their two
 * objects. */
const cluster = mostly(
  fc.array(testNode, { minLength: 1, maxLength: 4 }).map((nodes) => aCluster(nodes)),
  fc.constantFrom(undefined, aCluster([])),
);

/** Any object that a server may have under a name that a rule reads. */
const stored = fc
  .record({
    deletionTimestamp: maybe(fc.constant('2026-01-01T00:00:00Z')),
    finalizers: maybe(fc.array(word, { maxLength: 2 })),
    annotations: maybe(
      fc.dictionary(
        fc.oneof(fc.constant('snapshot.storage.kubernetes.io/allow-volume-mode-change'), word),
        fc.oneof(fc.constantFrom('true', 'no'), word),
      ),
    ),
    spec: fc.record({
      driver: fc.constantFrom(DRIVER, 'other'),
      csi: maybe(fc.record({ driver: fc.constantFrom(DRIVER, 'other'), volumeHandle: word })),
      claimRef: maybe(
        fc.record({
          uid: fc.constantFrom('source-uid', 'other'),
          namespace: fc.constantFrom('space', 'other'),
          name: word,
        }),
      ),
      volumeSnapshotRef: fc.record({
        uid: fc.constantFrom('source-uid', 'other'),
        namespace: fc.constantFrom('space', 'other'),
        name: word,
      }),
      storageClassName: maybe(word),
      volumeName: maybe(word),
      volumeMode: maybe(fc.constantFrom('Block', 'Filesystem')),
      sourceVolumeMode: maybe(fc.constantFrom('Block', 'Filesystem')),
      resources: maybe(fc.record({ requests: fc.record({ storage: size }) })),
      from: mostly(
        fc.constant([{ group: '', kind: 'PersistentVolumeClaim', namespace: 'space' }]),
        fc.constant(undefined),
      ),
      to: mostly(
        fc.constant([{ group: '', kind: 'PersistentVolumeClaim' }]),
        fc.constant(undefined),
      ),
    }),
    status: maybe(
      fc.record({
        phase: maybe(fc.constantFrom('Bound', 'Pending', 'Released', 'Lost')),
        boundVolumeSnapshotContentName: maybe(word),
        readyToUse: maybe(fc.boolean()),
        restoreSize: maybe(size),
        snapshotHandle: maybe(word),
      }),
    ),
    driverName: fc.constantFrom(DRIVER, 'other'),
    parameters: maybe(fc.dictionary(word, word, { maxKeys: 2 })),
  })
  .map(({ deletionTimestamp, finalizers, annotations, ...rest }) =>
    bare({
      ...rest,
      metadata: {
        name: 'source',
        namespace: 'space',
        uid: 'source-uid',
        resourceVersion: '5',
        deletionTimestamp,
        finalizers,
        annotations,
      },
    }),
  );
const answer: fc.Arbitrary<Answer> = fc.oneof(
  // The kind is that of the resource; only the fields vary.
  {
    weight: 6,
    arbitrary: stored.map((object): Answer => ({ kind: 'found', object: object as KubeObject })),
  },
  fc.constant({ kind: 'absent' } as const),
  fc
    .constantFrom(403, 409, 422)
    .map((code) => ({ kind: 'refused', code, message: 'the server said no' }) as const),
);

const anAttachment: VolumeAttachment = {
  metadata: { name: 'attachment', uid: 'a', resourceVersion: '1' },
  spec: { attacher: 'a', nodeName: 'node', source: { persistentVolumeName: 'test-testi' } },
};
function run(rule: ReturnType<typeof planVolume>, answers: readonly Answer[]): VolumePlan {
  const left = [...answers];
  const reply = (step: Step): Answer => {
    const next = left.shift() ?? { kind: 'absent' };
    if (step.kind === 'read') return next;
    if (step.kind === 'add-finalizer')
      return next.kind === 'found' ? { kind: 'finalizer-added' } : next;
    return { kind: 'listed', items: next.kind === 'found' ? [next.object] : [] };
  };
  let turn = rule.next();
  for (let steps = 0; turn.done !== true; steps += 1) {
    assert.ok(steps < 20, 'a plan ends after few steps');
    turn = rule.next(reply(turn.value));
  }
  return turn.value;
}

describe(`the rules, on ${RUNS} generated inputs each`, () => {
  it('end in a plan, a populator or a refusal, and throw nothing', () => {
    const seen = { create: 0, populator: 0, refuse: 0, reschedule: 0 };
    fc.assert(
      fc.property(
        claim,
        cls,
        driverFacts,
        planOptions,
        cluster,
        fc.array(answer, { maxLength: 5 }),
        (...[claim, cls, driver, options, topology, answers]) => {
          const plan = run(
            planVolume({ claim, cls, className: 'class', driver, options, topology }),
            answers,
          );
          seen[plan.kind] += 1;
          if (plan.kind === 'refuse') assert.notEqual(plan.message, '');
        },
      ),
      { numRuns: RUNS, seed: SEED },
    );
    for (const [kind, count] of Object.entries(seen))
      assert.ok(count > 60, `only ${count} of ${kind}: the inputs reach too little`);
  });

  it('delete only Released volumes with policy Delete, or say why not', () => {
    const volume = fc
      .record({
        annotations: fc.dictionary(
          fc.oneof(
            fc.constantFrom('pv.kubernetes.io/provisioned-by', 'pv.kubernetes.io/migrated-to'),
            word,
          ),
          fc.oneof(fc.constant(DRIVER), word),
        ),
        policy: maybe(fc.constantFrom('Delete', 'Retain', 'Recycle')),
        phase: maybe(fc.constantFrom('Pending', 'Available', 'Bound', 'Released', 'Failed')),
        finalizers: maybe(
          fc.array(
            fc.oneof(fc.constant('external-provisioner.volume.kubernetes.io/finalizer'), word),
            { maxLength: 2 },
          ),
        ),
        deletionTimestamp: maybe(fc.constant('2026-01-01T00:00:00Z')),
        claimRef: maybe(fc.record({ uid: word, namespace: word, name: word })),
        csi: maybe(fc.record({ driver: fc.constantFrom(DRIVER, 'other'), volumeHandle: word })),
      })
      .map(({ annotations, policy, phase, finalizers, deletionTimestamp, claimRef, csi }) =>
        bare({
          metadata: { ...aVolume().metadata, annotations, finalizers, deletionTimestamp },
          spec: { persistentVolumeReclaimPolicy: policy, claimRef, csi },
          ...(phase === undefined ? {} : { status: { phase } }),
        } as unknown as Volume),
      );
    fc.assert(
      fc.property(
        volume,
        driverFacts,
        maybe(cls),
        fc.boolean(),
        (judged, facts, found, isAttached) => {
          const verdict = shouldDelete(judged, facts);
          const plan = planDeletion(judged, {
            driver: facts,
            classOf: () => found,
            attachedTo: () => (isAttached ? [anAttachment] : []),
          });
          if (plan.kind === 'refuse') assert.notEqual(plan.message, '');
          else assert.ok(plan.handle === (judged.spec.csi?.volumeHandle ?? ''));
          if (verdict.kind !== 'delete') return;
          assert.equal(judged.status?.phase, 'Released');
          assert.equal(judged.spec.persistentVolumeReclaimPolicy, 'Delete');
        },
      ),
      { numRuns: RUNS, seed: SEED },
    );
  });
});
