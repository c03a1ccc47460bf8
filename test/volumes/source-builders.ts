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
import type { ListOptions } from '#src/kube/client.ts';
import { KubeError } from '#src/kube/kube-error.ts';
import {
  claims,
  type ObjectRef,
  referenceGrants,
  type Resource,
  snapshotContents,
  snapshots,
  volumes,
} from '#src/kube/resources.ts';
import { type ContentSource, dataSourceOf, kindOf } from '#src/volumes/data-source.ts';
import { DEFAULT_GATES } from '#src/volumes/flags.ts';
import { notFound, type ObjectApi, RefusedError } from '#src/rules/rule.ts';
import { contentOf } from '#src/volumes/plan.ts';
import { aClaim, aClass, aVolume, DRIVER } from './builders.ts';

/* Snapshots, source claims and grants as in upstream's tests, and a runner for rules. */

export const SNAPSHOT_GROUP = 'snapshot.storage.k8s.io';

/** The objects that the API server has. */
export type ApiObjects = readonly (readonly [Resource, KubeObject])[];

/** The result of a rule, and what it asked of the API server. */
export interface Run<T> {
  readonly value?: T;
  readonly error?: RefusedError;
  /** "read volumesnapshots ns1/test-snapshot". */
  readonly steps: readonly string[];
}

type Verb = 'read' | 'list' | 'add-finalizer';

/** A status with which the server answers each request of one kind. */
export interface Refused {
  readonly verb: Verb;
  readonly code: number;
  readonly message: string;
}

/** Runs a rule over objects in memory. */
export async function run<T>(
  rule: (api: ObjectApi) => Promise<T>,
  objects: ApiObjects,
  refused?: Refused,
): Promise<Run<T>> {
  const steps: string[] = [];
  try {
    return { value: await rule(anApi(objects, steps, refused)), steps };
  } catch (error) {
    if (error instanceof RefusedError) return { error, steps };
    throw error;
  }
}

/** An API server in memory.
 * @param steps gets what it is asked for */
export function anApi(objects: ApiObjects, steps: string[] = [], refused?: Refused): ObjectApi {
  const ask = (verb: Verb, { plural }: Resource, namespace = '', name = ''): KubeObject[] => {
    const where = [namespace, name].filter((part) => part !== '').join('/');
    steps.push(`${verb} ${plural} ${where}`);
    if (refused?.verb === verb) throw anError(refused.code, refused.message);
    return objects
      .filter(([resource]) => resource.plural === plural)
      .map(([, object]) => object)
      .filter(({ metadata }) => (metadata.namespace ?? '') === namespace)
      .filter(({ metadata }) => name === '' || metadata.name === name);
  };
  return {
    get: async <T>(resource: Resource, { namespace, name }: ObjectRef) =>
      Promise.resolve(ask('read', resource, namespace, name)[0] as T | undefined),
    // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- named by callers
    list: async <T>(resource: Resource, { namespace }: ListOptions = {}) =>
      Promise.resolve({
        items: ask('list', resource, namespace) as T[],
        resourceVersion: '1',
        continueToken: '',
      }),
    update: async <T>(resource: Resource, { namespace, name }: ObjectRef, object: unknown) => {
      const [found] = ask('add-finalizer', resource, namespace, name);
      if (found === undefined) throw anError(404, notFound(resource, name));
      return Promise.resolve(object as T);
    },
    patch: () => Promise.reject(new Error('rules patch nothing')),
  };
}

function anError(code: number, serverMessage: string): KubeError {
  return new KubeError({ code, reason: '', serverMessage });
}

export interface FillInput {
  readonly claim: Claim;
  readonly cls?: Class;
  readonly requestedBytes?: bigint;
  readonly crossNamespace?: boolean;
  readonly preventVolumeModeConversion?: boolean;
}

/** Runs all rules about a source, in the order of the plan. */
export async function planSource(
  api: ObjectApi,
  input: FillInput,
): Promise<ContentSource | undefined> {
  const {
    claim,
    cls = aClass(),
    crossNamespace = false,
    requestedBytes = 1000n,
    preventVolumeModeConversion = true,
  } = input;
  const source = await dataSourceOf(api, claim, {
    ...DEFAULT_GATES,
    CrossNamespaceVolumeDataSource: crossNamespace,
  });
  if (source === undefined) return undefined;
  const asked = { source, claim, cls, requestedBytes, preventVolumeModeConversion };
  kindOf(source, claim.metadata.name);
  return contentOf(api, asked);
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
