import type {
  Claim,
  Class,
  DataSource,
  DataSourceRef,
  KubeObject,
  ReferenceGrant,
} from '../kube/objects.ts';
import { parseQuantityBytes, QuantityError } from '../kube/quantity.ts';
import { referenceGrants, snapshots } from '../kube/resources.ts';
import type { Resource } from '../kube/resources.ts';
import type { FeatureGates } from './feature-gates.ts';
import { RefusedError } from './provisioning-options.ts';
import { isAllowed } from './reference-grant.ts';
import { list, notFound, untilChanged } from './rule.ts';
import type { Rule } from './rule.ts';

const SNAPSHOT_GROUP = 'snapshot.storage.k8s.io';

/** What a claim wants its volume filled from, wherever it says so. */
export interface SourceRef {
  /** undefined = the core group. */
  readonly apiGroup: string | undefined;
  readonly kind: string;
  readonly name: string;
  readonly namespace: string;
  /** Whether the driver must name a content source in its answer (spec 02 §8.3). */
  readonly isEchoed: boolean;
  /** Whether the snapshot's finalizer is taken off once the volume is there (spec 02 §9 step 3);
   * else the sweep does it. */
  readonly isReleased: boolean;
}

/** What the rules of both content sources look at. */
export interface ContentInput {
  readonly source: SourceRef;
  readonly claim: Claim;
  /** In the driver's own terms, but with the provisioner that it has. */
  readonly cls: Class;
  readonly requestedBytes: bigint;
  /** A restore may change the volume mode only with the content's annotation. */
  readonly preventVolumeModeConversion: boolean;
}

/** What the volume is filled from, as the driver is asked. */
export interface ContentSource {
  /** VolumeContentSource, in the shape protobuf-es builds messages from. */
  readonly request: {
    readonly type:
      | { readonly case: 'snapshot'; readonly value: { readonly snapshotId: string } }
      | { readonly case: 'volume'; readonly value: { readonly volumeId: string } };
  };
  readonly resource: Resource;
  /** The snapshot, or the source claim, as read. */
  readonly object: KubeObject;
  /** Keeps the object while it is being read from. */
  readonly finalizer: string;
}

/** The source that a claim names, and that it may use (spec 02 §7.1).
 * @throws RefusedError where it is in a namespace that the gate or the grants keep out of reach */
export function* dataSourceOf(claim: Claim, gates: FeatureGates): Rule<SourceRef | undefined> {
  const { dataSource, dataSourceRef } = claim.spec;
  const ownNamespace = claim.metadata.namespace ?? '';
  // Clients write null for nothing, and older API servers keep it.
  if (dataSource) {
    return {
      ...named(dataSource),
      namespace: ownNamespace,
      isEchoed: true,
      isReleased: dataSource.kind === 'VolumeSnapshot',
    };
  }
  if (!dataSourceRef) return undefined;
  const source = referred(dataSourceRef, ownNamespace);
  if (source.isEchoed && !gates.CrossNamespaceVolumeDataSource)
    throw new RefusedError(
      'dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource feature is disabled',
    );
  if (source.namespace !== ownNamespace)
    yield* checkGrants(source, { namespace: ownNamespace, name: claim.metadata.name });
  return source;
}

function named({
  apiGroup,
  kind,
  name,
}: DataSource): Pick<SourceRef, 'apiGroup' | 'kind' | 'name'> {
  // The API server writes null, not nothing, for the core group.
  return { apiGroup: apiGroup ?? undefined, kind, name };
}

function referred(ref: DataSourceRef, ownNamespace: string): SourceRef {
  return {
    ...named(ref),
    namespace: ref.namespace ?? ownNamespace,
    isEchoed: (ref.namespace ?? '') !== '',
    isReleased: false,
  };
}

function* checkGrants(
  source: SourceRef,
  claim: { readonly namespace: string; readonly name: string },
): Rule<void> {
  const { kind, name, namespace } = source;
  const words = `error getting ReferenceGrants in ${namespace} namespace from api server`;
  // To the API server no namespace means all of them, and no grant is in it.
  const grants =
    namespace === '' ? [] : yield* list<ReferenceGrant>(referenceGrants, namespace, words);
  if (isAllowed(grants, { ...source, claimNamespace: claim.namespace })) return;
  throw new RefusedError(
    `accessing ${namespace}/${name} of ${kind} dataSource from ${claim.namespace}/${claim.name} isn't allowed`,
  );
}

/** Who fills the volume: the driver from a snapshot or another volume, or a populator. The kind
 * decides; the group only matters for snapshots (spec 02 §7, rows 4 to 6).
 * @throws RefusedError */
export function kindOf(source: SourceRef, claimName: string): 'snapshot' | 'clone' | 'populator' {
  if (source.name === '') throw new RefusedError(`the PVC source not found for PVC ${claimName}`);
  if (source.kind === 'PersistentVolumeClaim') return 'clone';
  if (source.kind !== 'VolumeSnapshot') return 'populator';
  const group = source.apiGroup ?? '';
  if (group === SNAPSHOT_GROUP) return 'snapshot';
  throw new RefusedError(
    `the PVC source does not belong to the right APIGroup. Expected ${SNAPSHOT_GROUP}, Got ${group}`,
  );
}

/** Keeps the source from going away while the driver reads from it (spec 02 §7, rows 15 and 16). A
 * snapshot that we may not touch is used all the same.
 * @throws RefusedError with the server's words */
export function* protectSource({ resource, object, finalizer }: ContentSource): Rule<void> {
  if (object.metadata.finalizers?.includes(finalizer) === true) return;
  const answer = yield { kind: 'protect', resource, object, finalizer };
  if (answer.kind === 'absent') throw untilThere(resource, object);
  if (answer.kind !== 'refused') return;
  if (resource === snapshots && answer.code === 403) return;
  throw new RefusedError(answer.message);
}

function untilThere(resource: Resource, { metadata }: KubeObject): RefusedError {
  return untilChanged(
    resource,
    { metadata: { ...metadata, resourceVersion: '' } },
    notFound(resource, metadata.name),
  );
}

/** Runs a rule and puts other words around its refusals; what they wait for stays. */
export function* reworded<T>(rule: Rule<T>, words: (message: string) => string): Rule<T> {
  try {
    return yield* rule;
  } catch (cause) {
    if (!(cause instanceof RefusedError)) throw cause;
    throw new RefusedError(words(cause.message), { cause, waitsFor: cause.waitsFor });
  }
}

/** The refusals of a content source, as spec 02 §7 row 14 words them. */
export function ofSource<T>({ kind, name }: SourceRef, rule: Rule<T>): Rule<T> {
  return reworded(
    rule,
    (message) => `error getting handle for DataSource Type ${kind} by Name ${name}: ${message}`,
  );
}

/** Bytes of a size that an object of somebody else states.
 * @throws RefusedError where it is no quantity */
export function statedBytes(
  resource: Resource,
  object: KubeObject,
  size: { readonly field: string; readonly text: string },
): bigint {
  try {
    return parseQuantityBytes(size.text);
  } catch (error) {
    if (!(error instanceof QuantityError)) throw error;
    throw untilChanged(
      resource,
      object,
      `${resource.kind} ${object.metadata.name}: ${size.field}: ${error.message}`,
    );
  }
}
