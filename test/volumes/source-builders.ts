import type {
  Claim,
  Class,
  DataSourceRef,
  KubeObject,
  ReferenceGrant,
  ReferenceGrantSpec,
  Snapshot,
  SnapshotContent,
  Volume,
} from '#src/kube/objects.ts';
import {
  claims,
  referenceGrants,
  type Resource,
  snapshotContents,
  snapshots,
  volumes,
} from '#src/kube/resources.ts';
import { cloneSource } from '#src/volumes/clone-source.ts';
import {
  addSourceFinalizer,
  type ContentSource,
  dataSourceOf,
  kindOf,
} from '#src/volumes/data-source.ts';
import { DEFAULT_GATES } from '#src/volumes/flags.ts';
import { type Answer, RefusedError, type Rule, type Step } from '#src/rules/rule.ts';
import { snapshotSource } from '#src/volumes/snapshot-source.ts';
import { aClaim, aClass, aVolume, DRIVER } from './builders.ts';

/* Snapshots, source claims and grants as in upstream's tests, and a runner for rules. */

export const SNAPSHOT_GROUP = 'snapshot.storage.k8s.io';

/** The objects that the API server has. */
export type ApiObjects = readonly (readonly [Resource, KubeObject])[];

/** The result of a rule, and its steps. */
export interface Run<T> {
  readonly value?: T;
  readonly error?: RefusedError;
  /** "read volumesnapshots ns1/test-snapshot". */
  readonly steps: readonly string[];
}

/** Runs a rule over objects in memory.
 * @param refuses if it returns an answer, that replaces the server's */
export function run<T>(
  rule: Rule<T>,
  objects: ApiObjects,
  refuses: (step: Step) => Answer | undefined = () => undefined,
): Run<T> {
  const steps: string[] = [];
  try {
    let next = rule.next();
    while (next.done !== true) {
      steps.push(describeStep(next.value));
      next = rule.next(refuses(next.value) ?? answerStep(next.value, objects));
    }
    return { value: next.value, steps };
  } catch (error) {
    if (error instanceof RefusedError) return { error, steps };
    throw error;
  }
}

function describeStep(step: Step): string {
  const of = `${step.kind} ${step.resource.plural}`;
  if (step.kind === 'list') return `${of} ${step.namespace}`;
  const { namespace, name } = step.kind === 'read' ? step.ref : step.object.metadata;
  return `${of} ${namespace === undefined ? '' : `${namespace}/`}${name}`;
}

function answerStep(step: Step, objects: ApiObjects): Answer {
  const all = objects
    .filter(([resource]) => resource === step.resource)
    .map(([, object]) => object);
  if (step.kind === 'list')
    return {
      kind: 'listed',
      items: all.filter(({ metadata }) => metadata.namespace === step.namespace),
    };
  const { namespace, name } = step.kind === 'read' ? step.ref : step.object.metadata;
  const object = all.find(
    ({ metadata }) => metadata.namespace === namespace && metadata.name === name,
  );
  if (object === undefined) return { kind: 'absent' };
  return step.kind === 'read' ? { kind: 'found', object } : { kind: 'finalizer-added' };
}

/** Refuses steps of one kind with a status of the server. */
export function refuseSteps(
  kind: Step['kind'],
  code: number,
  message: string,
): (step: Step) => Answer | undefined {
  return (step) => (step.kind === kind ? { kind: 'refused', code, message } : undefined);
}

export interface FillInput {
  readonly claim: Claim;
  readonly cls?: Class;
  readonly requestedBytes?: bigint;
  readonly crossNamespace?: boolean;
  readonly preventVolumeModeConversion?: boolean;
}

/** Runs all rules about a source, in the order of the plan. */
export function* planSource(input: FillInput): Rule<ContentSource | undefined> {
  const {
    claim,
    cls = aClass(),
    crossNamespace = false,
    requestedBytes = 1000n,
    preventVolumeModeConversion = true,
  } = input;
  const source = yield* dataSourceOf(claim, {
    ...DEFAULT_GATES,
    CrossNamespaceVolumeDataSource: crossNamespace,
  });
  if (source === undefined) return undefined;
  const asked = { source, claim, cls, requestedBytes, preventVolumeModeConversion };
  const content =
    kindOf(source, claim.metadata.name) === 'snapshot'
      ? yield* snapshotSource(asked)
      : yield* cloneSource(asked);
  yield* addSourceFinalizer(content);
  return content;
}

type Meta = Partial<KubeObject['metadata']>;

/** Status of the snapshot of `aSnapshot`. */
export const READY = {
  boundVolumeSnapshotContentName: 'snapcontent-snapuid',
  readyToUse: true,
  restoreSize: '1000',
};

/** @param change a status replaces the default one, null removes it */
export function aSnapshot(
  change: { metadata?: Meta; status?: Snapshot['status'] | null } = {},
): Snapshot {
  return {
    metadata: {
      name: 'test-snapshot',
      namespace: 'ns1',
      uid: 'snapuid',
      resourceVersion: '31',
      ...change.metadata,
    },
    spec: { volumeSnapshotClassName: 'snapclass' },
    ...(change.status === null ? {} : { status: change.status ?? READY }),
  };
}

export interface ContentChange {
  readonly metadata?: Meta;
  readonly spec?: Partial<SnapshotContent['spec']>;
  readonly status?: SnapshotContent['status'] | null;
}

export function aContent({ metadata, spec, status }: ContentChange = {}): SnapshotContent {
  return {
    metadata: {
      name: 'snapcontent-snapuid',
      uid: 'contentuid',
      resourceVersion: '32',
      ...metadata,
    },
    spec: {
      driver: DRIVER,
      volumeSnapshotRef: { name: 'test-snapshot', namespace: 'ns1', uid: 'snapuid' },
      sourceVolumeMode: 'Filesystem',
      ...spec,
    },
    ...(status === null ? {} : { status: status ?? { snapshotHandle: 'sid', readyToUse: true } }),
  };
}

/** A snapshot with its content. */
export function snapshotObjects(snapshot = aSnapshot(), content = aContent()): ApiObjects {
  return [
    [snapshots, snapshot],
    [snapshotContents, content],
  ];
}

export function aSourceClaim(
  change: { metadata?: Meta; spec?: Partial<Claim['spec']>; phase?: string } = {},
): Claim {
  const base = aClaim();
  return {
    metadata: {
      name: 'fake-pvc',
      namespace: 'fake-pvc-namespace',
      uid: 'fake-claim-uid',
      resourceVersion: '41',
      ...change.metadata,
    },
    spec: {
      ...base.spec,
      resources: { requests: { storage: '1000' } },
      storageClassName: 'fake-sc-1',
      volumeName: 'test-testi',
      ...change.spec,
    },
    status: { phase: (change.phase ?? 'Bound') as 'Bound' },
  };
}

export function aSourceVolume(
  change: { spec?: Partial<Volume['spec']>; phase?: string } = {},
): Volume {
  return aVolume({
    metadata: { resourceVersion: '42' },
    spec: {
      claimRef: { uid: 'fake-claim-uid', namespace: 'fake-pvc-namespace', name: 'fake-pvc' },
      ...change.spec,
    },
    phase: change.phase ?? 'Bound',
  });
}

/** A bound claim with its volume. */
export function cloneObjects(source = aSourceClaim(), volume = aSourceVolume()): ApiObjects {
  return [
    [claims, source],
    [volumes, volume],
  ];
}

/** A claim that names its source in `dataSourceRef`, from namespace ns2. */
export function aReferringClaim(
  ref: Partial<DataSourceRef>,
  change: { namespace?: string; spec?: Partial<Claim['spec']> } = {},
): Claim {
  return aClaim({
    metadata: { name: 'my-pvc', namespace: change.namespace ?? 'ns2' },
    spec: {
      ...asked,
      dataSourceRef: { kind: 'PersistentVolumeClaim', name: 'fake-pvc', ...ref },
      ...change.spec,
    },
  });
}

const asked = { resources: { requests: { storage: '1000' } } };

/** A claim in the namespace of `aSnapshot`. */
export function aRestoringClaim(spec: Partial<Claim['spec']> = {}, namespace = 'ns1'): Claim {
  const dataSource = { apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot', name: 'test-snapshot' };
  return aClaim({
    metadata: { name: 'my-pvc', namespace },
    spec: { ...asked, dataSource, ...spec },
  });
}

/** A claim in the namespace of `aSourceClaim`. */
export function aCloningClaim(spec: Partial<Claim['spec']> = {}): Claim {
  const dataSource = { kind: 'PersistentVolumeClaim', name: 'fake-pvc' };
  return aClaim({
    metadata: { name: 'my-pvc', namespace: 'fake-pvc-namespace' },
    spec: { ...asked, dataSource, ...spec },
  });
}

export interface GrantChange {
  readonly namespace?: string;
  readonly from?: Partial<ReferenceGrantSpec['from'][number]> | null;
  readonly to?: Partial<ReferenceGrantSpec['to'][number]> | null;
}

/** A grant that lets claims of ns2 use claims of ns1; a null change empties a list. */
export function aGrant({ namespace = 'ns1', from, to }: GrantChange = {}): ReferenceGrant & {
  readonly spec: ReferenceGrantSpec;
} {
  return {
    metadata: { name: 'grant', namespace, uid: 'grantuid', resourceVersion: '51' },
    spec: {
      from:
        from === null
          ? []
          : [{ group: '', kind: 'PersistentVolumeClaim', namespace: 'ns2', ...from }],
      to: to === null ? [] : [{ group: '', kind: 'PersistentVolumeClaim', ...to }],
    },
  };
}

/** Objects with a grant. */
export function withGrant(objects: ApiObjects, change?: GrantChange): ApiObjects {
  return [...objects, [referenceGrants, aGrant(change)]];
}
