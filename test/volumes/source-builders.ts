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
  snapshotContents,
  snapshots,
  volumes,
  type Resource,
} from '#src/kube/resources.ts';
import { cloneSource } from '#src/volumes/clone-source.ts';
import {
  addSourceFinalizer,
  dataSourceOf,
  kindOf,
  type ContentSource,
} from '#src/volumes/data-source.ts';
import { DEFAULT_GATES } from '#src/volumes/feature-gates.ts';
import { RefusedError } from '#src/volumes/refused-error.ts';
import type { Answer, Rule, Step } from '#src/volumes/rule.ts';
import { snapshotSource } from '#src/volumes/snapshot-source.ts';
import { aClaim, aClass, aVolume, DRIVER } from './builders.ts';

/* The fixtures of groups C, D and J of the acceptance catalogue, and a runner for rules. */

export const SNAPSHOT_GROUP = 'snapshot.storage.k8s.io';

/** What the API server holds. */
export type World = readonly (readonly [Resource, KubeObject])[];

/** What came of a rule. */
export interface Run<T> {
  readonly value?: T;
  readonly error?: RefusedError;
  /** "read volumesnapshots ns1/test-snapshot". */
  readonly steps: readonly string[];
}

/** Runs a rule over objects in memory.
 * @param refuses answers in the server's place where it returns something */
export function run<T>(
  rule: Rule<T>,
  world: World,
  refuses: (step: Step) => Answer | undefined = () => undefined,
): Run<T> {
  const steps: string[] = [];
  try {
    let next = rule.next();
    while (next.done !== true) {
      steps.push(told(next.value));
      next = rule.next(refuses(next.value) ?? answered(next.value, world));
    }
    return { value: next.value, steps };
  } catch (error) {
    if (error instanceof RefusedError) return { error, steps };
    throw error;
  }
}

function told(step: Step): string {
  const of = `${step.kind} ${step.resource.plural}`;
  if (step.kind === 'list') return `${of} ${step.namespace}`;
  const { namespace, name } = step.kind === 'read' ? step.ref : step.object.metadata;
  return `${of} ${namespace === undefined ? '' : `${namespace}/`}${name}`;
}

function answered(step: Step, world: World): Answer {
  const all = world.filter(([resource]) => resource === step.resource).map(([, object]) => object);
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

/** The server's no to steps of one kind. */
export function refusing(
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

/** All rules about a source, in the order of the plan. */
export function* filled(input: FillInput): Rule<ContentSource | undefined> {
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

/** Status of the common snapshot. */
export const READY = {
  boundVolumeSnapshotContentName: 'snapcontent-snapuid',
  readyToUse: true,
  restoreSize: '1000',
};

/** @param change a status replaces the common one, null takes it away */
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
export function snapshotWorld(snapshot = aSnapshot(), content = aContent()): World {
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
export function cloneWorld(source = aSourceClaim(), volume = aSourceVolume()): World {
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

/** A claim in the namespace of the common snapshot. */
export function aRestoringClaim(spec: Partial<Claim['spec']> = {}, namespace = 'ns1'): Claim {
  const dataSource = { apiGroup: SNAPSHOT_GROUP, kind: 'VolumeSnapshot', name: 'test-snapshot' };
  return aClaim({
    metadata: { name: 'my-pvc', namespace },
    spec: { ...asked, dataSource, ...spec },
  });
}

/** A claim beside the common source claim. */
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

/** Lets claims of ns2 use claims of ns1, unless changed; null makes a list empty. */
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

/** A world with a grant. */
export function granting(world: World, change?: GrantChange): World {
  return [...world, [referenceGrants, aGrant(change)]];
}
