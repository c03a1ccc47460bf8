import type { MessageInitShape } from '@bufbuild/protobuf';
import type { VolumeContentSourceSchema } from '../csi/generated/csi_pb.ts';
import { hasFinalizer } from '../kube/finalizers.ts';
import { addFinalizer } from '../kube/finalizers.ts';
import { CLONE_PROTECTION } from '../kube/keys.ts';
import { isForbidden } from '../kube/kube-error.ts';
import type { Claim, Class, DataSource, KubeObject, ReferenceGrant } from '../kube/objects.ts';
import { parseQuantityBytes, QuantityError } from '../kube/quantity.ts';
import { keyOf, referenceGrants, type Resource, snapshots } from '../kube/resources.ts';
import {
  isAboutUnknownKind,
  type ObjectApi,
  RefusedError,
  refuseUntilChanged,
  toRefusal,
} from '../rules/rule.ts';
import type { SourceKind } from './driver-facts.ts';
import type { FeatureGates } from './flags.ts';

/* The source that a claim names for the content of its volume, and what restores
 * (snapshot-source.ts) and clones (clone-source.ts) have in common. */

/** The source that a claim names, in `dataSource` or in `dataSourceRef`. */
export interface SourceRef {
  /** undefined for the core group. */
  readonly apiGroup: string | undefined;
  readonly kind: string;
  readonly name: string;
  readonly namespace: string;
  /** Whether the driver's answer must name a content source. */
  readonly isEchoed: boolean;
  /** Whether the claim's run removes our finalizer from the snapshot after it has written the PV;
   * otherwise the leader's sweep removes it. */
  readonly isReleased: boolean;
}

/** The input of the rules for both content sources. */
export interface ContentInput {
  readonly source: SourceRef;
  readonly claim: Claim;
  /** Translated for the driver if it is an in-tree class. */
  readonly cls: Class;
  readonly requestedBytes: bigint;
  /** A restore may change the volume mode only if the snapshot content's annotation allows it. */
  readonly preventVolumeModeConversion: boolean;
}

/** The content source of a CreateVolume request, and the object that it was made from. */
export interface ContentSource {
  readonly request: MessageInitShape<typeof VolumeContentSourceSchema>;
  readonly resource: Resource;
  /** The snapshot or the source claim, as read. */
  readonly object: KubeObject;
  /** Our finalizer, which keeps the object while the driver reads its volume. */
  readonly finalizer: string;
}

/** The source that a claim names, if the claim may use it. Upstream: external-provisioner
 * pkg/controller/controller.go dataSource.
 * @throws RefusedError for a source in a namespace that the feature gate or the grants forbid */
export async function dataSourceOf(
  api: ObjectApi,
  claim: Claim,
  gates: FeatureGates,
): Promise<SourceRef | undefined> {
  const { dataSource, dataSourceRef } = claim.spec;
  const ownNamespace = claim.metadata.namespace ?? '';
  // Clients write null for an unset field, and older API servers keep it.
  if (dataSource)
    return {
      ...pickObject(dataSource),
      namespace: ownNamespace,
      isEchoed: true,
      isReleased: dataSource.kind === snapshots.kind,
    };
  if (!dataSourceRef) return undefined;
  const source: SourceRef = {
    ...pickObject(dataSourceRef),
    namespace: dataSourceRef.namespace ?? ownNamespace,
    isEchoed: (dataSourceRef.namespace ?? '') !== '',
    isReleased: false,
  };
  if (source.isEchoed && !gates.CrossNamespaceVolumeDataSource)
    throw new RefusedError(
      'dataSourceRef namespace specified but the CrossNamespaceVolumeDataSource ' +
        'feature is disabled',
    );
  if (source.namespace !== ownNamespace)
    await checkGrants(api, source, ownNamespace, claim.metadata.name);
  return source;
}

function pickObject({ apiGroup, kind, name }: DataSource) {
  // The API server writes null for the core group.
  return { apiGroup: apiGroup ?? undefined, kind, name };
}

async function checkGrants(
  api: ObjectApi,
  source: SourceRef,
  claimNamespace: string,
  claimName: string,
): Promise<void> {
  const { kind, name, namespace } = source;
  // An empty namespace means all namespaces to the API server; no grant is in an empty one.
  const grants = namespace === '' ? [] : await listGrants(api, namespace);
  if (isGranted(grants, source, claimNamespace)) return;
  throw new RefusedError(
    `accessing ${namespace}/${name} of ${kind} dataSource ` +
      `from ${claimNamespace}/${claimName} isn't allowed`,
  );
}

/** The versions of ReferenceGrant that a server may have; the fields that we read are equal. */
const GRANT_VERSIONS = ['v1', 'v1beta1'];

async function listGrants(api: ObjectApi, namespace: string): Promise<readonly ReferenceGrant[]> {
  for (const version of GRANT_VERSIONS)
    try {
      const resource = { ...referenceGrants, version };
      return (await api.list<ReferenceGrant>(resource, { namespace })).items;
    } catch (error) {
      const begin = `error getting ReferenceGrants in ${namespace} namespace from api server: `;
      // A kind that the server does not serve has no objects.
      if (!isAboutUnknownKind(error)) throw toRefusal(error, begin);
    }
  return [];
}

/** What fills the volume. The group matters only for snapshots. Upstream: prepareProvision.
 * @throws RefusedError for a source without a name and for a snapshot of another group */
export function kindOf(source: SourceRef, claimName: string): SourceKind {
  if (source.name === '') throw new RefusedError(`the PVC source not found for PVC ${claimName}`);
  if (source.kind === 'PersistentVolumeClaim') return 'clone';
  if (source.kind !== snapshots.kind) return 'populator';
  const group = source.apiGroup ?? '';
  if (group === snapshots.group) return 'snapshot';
  throw new RefusedError(
    'the PVC source does not belong to the right APIGroup. ' +
      `Expected ${snapshots.group}, Got ${group}`,
  );
}

/** Adds our finalizer to the source, which keeps it while the driver reads its volume. Without the
 * right to change a snapshot, sutler uses it without the finalizer. Upstream: setCloneFinalizer,
 * setSnapshotFinalizer.
 * @throws RefusedError with the server's message */
export async function addSourceFinalizer(
  api: ObjectApi,
  { resource, object, finalizer }: ContentSource,
): Promise<void> {
  try {
    await addFinalizer(api, { resource, object, finalizer });
  } catch (error) {
    if (isForbidden(error) && resource === snapshots) return;
    throw toRefusal(error);
  }
}

/** Parses a size in a source object.
 * @param field  the field of the size, for the message
 * @throws RefusedError for a text that is no quantity */
export function parseSourceBytes(
  resource: Resource,
  object: KubeObject,
  field: string,
  text: string,
): bigint {
  try {
    return parseQuantityBytes(text);
  } catch (error) {
    if (!(error instanceof QuantityError)) throw error;
    const message = `${resource.kind} ${object.metadata.name}: ${field}: ${error.message}`;
    throw refuseUntilChanged(resource, object, message);
  }
}

/** Whether one of the grants lets claims of a namespace use the source. The grant has to be in the
 * source's namespace and to name both sides. Upstream: external-provisioner pkg/controller/util.go
 * IsGranted. */
function isGranted(
  grants: readonly ReferenceGrant[],
  source: Pick<SourceRef, 'apiGroup' | 'kind' | 'namespace' | 'name'>,
  claimNamespace: string,
): boolean {
  const { apiGroup = '', kind, namespace, name } = source;
  return grants.some(
    ({ metadata, spec }) =>
      metadata.namespace === namespace &&
      (spec?.from ?? []).some(
        (from) =>
          from.group === '' &&
          from.kind === 'PersistentVolumeClaim' &&
          from.namespace === claimNamespace,
      ) &&
      (spec?.to ?? []).some(
        (to) => to.group === apiGroup && to.kind === kind && ['', name].includes(to.name ?? ''),
      ),
  );
}

/* Which claims still need a snapshot or another claim. This decides when our finalizers on sources
 * are removed. Upstream: external-provisioner pkg/controller/clone_controller.go and
 * pkg/controller/snapshot_finalizer_controller.go. */

/** Whether a claim still waits for its volume. A claim without a phase is new. */
export function isPending({ status }: Claim): boolean {
  return status?.phase === undefined || status.phase === 'Pending';
}

/** The snapshot from which a claim is restored, as "namespace/name"; undefined for a claim with
 * another source or none. */
export function restoredSnapshot({ metadata, spec }: Claim): string | undefined {
  const { dataSource, dataSourceRef } = spec;
  if (isSnapshot(dataSource))
    return keyOf({ namespace: metadata.namespace, name: dataSource.name });
  if (!isSnapshot(dataSourceRef)) return undefined;
  const { namespace, name } = dataSourceRef;
  return keyOf({ namespace: (namespace ?? '') === '' ? metadata.namespace : namespace, name });
}

/** Whether a claim waits to be cloned from the claim of that name in its own namespace. As in
 * upstream, only `dataSource` counts, whatever its group; a clone across namespaces does not
 * keep its source. */
export function isCloning({ spec, status }: Claim, source: string): boolean {
  const { dataSource } = spec;
  return (
    status?.phase === 'Pending' &&
    dataSource?.kind === 'PersistentVolumeClaim' &&
    dataSource.name === source
  );
}

/** Whether a claim is being deleted and still has our finalizer for sources of clones. */
export function isTerminatingCloneSource(claim: Pick<Claim, 'metadata'>): boolean {
  return claim.metadata.deletionTimestamp !== undefined && hasFinalizer(claim, CLONE_PROTECTION);
}

function isSnapshot(source: DataSource | undefined): source is DataSource {
  // The API server may send null for an unset field.
  return (
    source?.kind === snapshots.kind && (source.apiGroup ?? snapshots.group) === snapshots.group
  );
}
