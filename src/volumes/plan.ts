import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  CreateVolumeRequestSchema,
  VolumeCapability_AccessMode_Mode as Mode,
  type VolumeCapabilitySchema,
} from '../csi/generated/csi_pb.ts';
import { RESERVED_PARAMETER_PREFIX } from '../kube/keys.ts';
import type { Claim, Class, Labels, VolumeAttributesClass } from '../kube/objects.ts';
import { parseQuantityBytes, QuantityError } from '../kube/quantity.ts';
import { snapshots, volumeAttributesClasses } from '../kube/resources.ts';
import { translateClass } from '../migration/plugins.ts';
import {
  type ObjectApi,
  prefixRefusal,
  read,
  type Refusal,
  RefusedError,
  rewordRefusal,
} from '../rules/rule.ts';
import { omitUnset } from '../runtime/json.ts';
import type { ClusterTopology } from '../topology/cluster-topology.ts';
import {
  MissingCsiNodeError,
  topologyRequirement,
  type TopologyRequirement,
} from '../topology/requirement.ts';
import { cloneSource } from './clone-source.ts';
import {
  addSourceFinalizer,
  type ContentInput,
  type ContentSource,
  dataSourceOf,
  kindOf,
  type SourceRef,
} from './data-source.ts';
import { type DriverFacts, missingCapability, supportsTopology } from './driver-facts.ts';
import { selectedNodeOf } from './eligibility.ts';
import type { ProvisioningOptions } from './flags.ts';
import { newVolume, type PlannedRequest, volumeName } from './persistent-volume.ts';
import { SECRET_KEYS, secretRefs } from './secret-ref.ts';
import { snapshotSource } from './snapshot-source.ts';

/** What to do for an eligible claim. */
export type VolumePlan =
  | (PlannedRequest & { readonly kind: 'create' })
  /** Left to a populator, which creates the volume. */
  | { readonly kind: 'populator' }
  /** The claim needs another node; `waitsFor` is for a claim that can't get one. */
  | (Omit<Refusal, 'kind'> & { readonly kind: 'reschedule' })
  | Refusal;

export interface PlanInput {
  readonly claim: Claim;
  readonly cls: Class;
  readonly driver: DriverFacts;
  readonly options: ProvisioningOptions;
  /** Undefined while the nodes are not listed, and for a driver without topology. */
  readonly topology?: ClusterTopology | undefined;
  /** The topology of an earlier call, which the next call repeats. */
  readonly place?: TopologyRequirement | undefined;
}

/** Plans the request for an eligible claim, or refuses it. The checks are in upstream's order.
 * Upstream: external-provisioner pkg/controller/controller.go prepareProvision.
 * @throws KubeError if the API server is down */
export async function planVolume(api: ObjectApi, input: PlanInput): Promise<VolumePlan> {
  try {
    return await checkClaim(api, input);
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error;
    const kind = error instanceof MissingCsiNodeError ? 'reschedule' : 'refuse';
    return { kind, message: error.message, waitsFor: error.waitsFor };
  }
}

async function checkClaim(api: ObjectApi, input: PlanInput): Promise<VolumePlan> {
  const { claim, driver, options } = input;
  const source = await dataSourceOf(api, claim, options.gates);
  const { provisioner } = input.cls;
  const isMigrated = provisioner === driver.inTreeName;
  const cls = isMigrated
    ? prefixRefusal('failed to translate storage class', () => translateClass(input.cls))
    : input.cls;
  const sourceKind = source && kindOf(source, claim.metadata.name);
  if (sourceKind === 'populator') return { kind: 'populator' };
  const attributesClass = attributesClassOf(claim, options);
  const modifies = attributesClass !== undefined;
  const missing = missingCapability(driver, { sourceKind, modifies });
  if (missing !== undefined) throw new RefusedError(missing);
  if (claim.spec.selector !== undefined) throw new RefusedError('claim Selector is not supported');
  return planCreation(api, { ...input, source, cls, provisioner, isMigrated, attributesClass });
}

/** A claim whose features the driver supports; the class is translated. */
interface CheckedInput extends PlanInput {
  readonly source: SourceRef | undefined;
  /** The provisioner of the stored class. */
  readonly provisioner: string;
  readonly isMigrated: boolean;
  readonly attributesClass: string | undefined;
}

async function planCreation(api: ObjectApi, input: CheckedInput): Promise<VolumePlan> {
  const { claim, cls, driver, options, source, attributesClass } = input;
  const name = volumeName(claim.metadata.uid, options);
  const fsType = fsTypeOf(cls, options.defaultFstype);
  const requestedBytes = requestedBytesOf(claim);
  const hasMultiWriter = driver.controllerCapabilities.has('SINGLE_NODE_MULTI_WRITER');
  const capabilities = volumeCapabilities(claim, cls, { fsType, hasMultiWriter });
  const { preventVolumeModeConversion } = options;
  const asked = { claim, cls, requestedBytes, preventVolumeModeConversion };
  const content = source && (await contentOf(api, { ...asked, source }));
  const accessibilityRequirements = requirementOf(input);
  const { name: claimName, namespace = '', annotations = {} } = claim.metadata;
  const secretContext = { volumeName: name, claim: { name: claimName, namespace, annotations } };
  const secrets = secretRefs(cls.parameters ?? {}, secretContext);
  const parameters = {
    ...driverParameters(cls),
    ...(options.extraCreateMetadata ? metadataParameters(secretContext.claim, name) : {}),
  };
  const mutableParameters = await mutableParametersOf(api, attributesClass, driver.name);
  const request = create(
    CreateVolumeRequestSchema,
    omitUnset({
      name,
      capacityRange: { requiredBytes: requestedBytes },
      volumeCapabilities: capabilities,
      parameters,
      volumeContentSource: content?.request,
      accessibilityRequirements,
      mutableParameters,
    }),
  );
  return {
    kind: 'create',
    request,
    secret: secrets.Provisioner,
    requirement: accessibilityRequirements,
    volume: newVolume({
      ...input,
      name,
      driver: driver.name,
      fsType,
      readOnly: isReadOnlyMany(claim) && options.controllerPublishReadonly,
      secrets,
      identity: options.identity,
    }),
    requestedBytes,
    source: source && content && { ...source, uid: content.object.metadata.uid },
    isMigrated: input.isMigrated,
    hasTopology: supportsTopology(driver, options.gates),
  };
}

/** The VolumeAttributesClass that the claim names, if any. Without the feature gate it is refused,
 * because the volume controller would never bind the PV. */
function attributesClassOf(claim: Claim, options: ProvisioningOptions): string | undefined {
  const name = claim.spec.volumeAttributesClassName ?? '';
  if (name === '') return undefined;
  if (options.gates.VolumeAttributesClass) return name;
  throw new RefusedError(
    `the claim names VolumeAttributesClass ${name}, and the feature gate VolumeAttributesClass ` +
      'is off; switch it on, or create the claim without a VolumeAttributesClass',
  );
}

/** The content source, after our finalizer was added to its object. Refusals begin as upstream's do
 * (prepareProvision).
 * @throws RefusedError that waits for the objects of the source */
export async function contentOf(api: ObjectApi, input: ContentInput): Promise<ContentSource> {
  const { kind, name } = input.source;
  const prefix = `error getting handle for DataSource Type ${kind} by Name ${name}`;
  const rule = kind === snapshots.kind ? snapshotSource : cloneSource;
  const content = await rewordRefusal(rule(api, input), (message) => `${prefix}: ${message}`);
  await addSourceFinalizer(api, content);
  return content;
}

/** Where the volume may be created, for a driver with topology. */
function requirementOf(input: CheckedInput): TopologyRequirement | undefined {
  const { claim, cls, driver, options, topology, place } = input;
  if (!supportsTopology(driver, options.gates)) return undefined;
  if (place !== undefined) return place;
  if (topology === undefined) throw new RefusedError('the nodes of the cluster are not listed yet');
  const { strictTopology, immediateTopology } = options;
  try {
    return topologyRequirement({
      claimName: claim.metadata.name,
      cls,
      selectedNode: selectedNodeOf(claim),
      topology,
      strictTopology,
      immediateTopology,
    });
  } catch (cause) {
    if (!(cause instanceof RefusedError) || cause instanceof MissingCsiNodeError) throw cause;
    const message = `error generating accessibility requirements: ${cause.message}`;
    throw new RefusedError(message, { cause, waitsFor: cause.waitsFor });
  }
}

async function mutableParametersOf(
  api: ObjectApi,
  name: string | undefined,
  driver: string,
): Promise<Labels | undefined> {
  if (name === undefined) return undefined;
  const { driverName, parameters = {} } = await read<VolumeAttributesClass>(
    api,
    volumeAttributesClasses,
    { name },
  );
  if (driverName === driver) return parameters;
  throw new RefusedError(
    `VAC ${name} referenced in PVC is for driver ${driverName} ` +
      `which does not match driver name ${driver}`,
  );
}

function requestedBytesOf(claim: Claim): bigint {
  const text = claim.spec.resources?.requests?.storage;
  if (text === undefined) return 0n;
  try {
    const bytes = parseQuantityBytes(text);
    if (bytes < 0n) throw new RefusedError(`spec.resources.requests.storage: ${text} is negative`);
    return bytes;
  } catch (cause) {
    if (cause instanceof QuantityError)
      throw new RefusedError(`spec.resources.requests.storage: ${cause.message}`, { cause });
    throw cause;
  }
}

const FS_TYPE = `${RESERVED_PARAMETER_PREFIX}fstype`;

/** The file system that the class names, else the default. Upstream: external-provisioner
 * pkg/controller/controller.go prepareProvision.
 * @throws RefusedError for a class that names it twice */
export function fsTypeOf(cls: Class, defaultFstype: string): string {
  const named = Object.entries(cls.parameters ?? {}).filter(
    ([key]) => key.toLowerCase() === 'fstype' || key === FS_TYPE,
  );
  if (named.length > 1)
    throw new RefusedError(
      `fstype specified in parameters with both "fstype" and "${FS_TYPE}" keys`,
    );
  const fsType = named[0]?.[1] ?? '';
  return fsType === '' ? defaultFstype : fsType;
}

/** The class parameters for the driver: without the reserved ones, which are for the provisioner.
 * Upstream: external-provisioner pkg/controller/controller.go removePrefixedParameters.
 * @throws RefusedError for an unknown reserved key */
export function driverParameters(cls: Class): Record<string, string> {
  const kept: [string, string][] = [];
  for (const [key, value] of Object.entries(cls.parameters ?? {})) {
    if (!key.startsWith(RESERVED_PARAMETER_PREFIX)) kept.push([key, value]);
    else if (key !== FS_TYPE && !SECRET_KEYS.has(key)) {
      throw new RefusedError(
        'failed to strip CSI Parameters of prefixed keys: found unknown parameter key ' +
          `"${key}" with reserved namespace ${RESERVED_PARAMETER_PREFIX}`,
      );
    }
  }
  return Object.fromEntries(kept);
}

/** The parameters that --extra-create-metadata adds. */
function metadataParameters(
  claim: { readonly name: string; readonly namespace: string },
  volumeName: string,
): Record<string, string> {
  return {
    [`${RESERVED_PARAMETER_PREFIX}pvc/name`]: claim.name,
    [`${RESERVED_PARAMETER_PREFIX}pvc/namespace`]: claim.namespace,
    [`${RESERVED_PARAMETER_PREFIX}pv/name`]: volumeName,
  };
}

type Capability = MessageInitShape<typeof VolumeCapabilitySchema>;

/** One capability for each access mode of the claim, in its order, never merged. Upstream:
 * external-provisioner pkg/controller/controller.go getVolumeCapabilities.
 * @throws RefusedError for an access mode that CSI can't express */
export function volumeCapabilities(
  claim: Claim,
  cls: Class,
  options: { readonly fsType: string; readonly hasMultiWriter: boolean },
): Capability[] {
  const { accessModes = [], volumeMode } = claim.spec;
  const mount = { fsType: options.fsType, mountFlags: [...(cls.mountOptions ?? [])] };
  const accessType: Capability['accessType'] =
    volumeMode === 'Block' ? { case: 'block', value: {} } : { case: 'mount', value: mount };
  return accessModes.map((accessMode) => ({
    accessType,
    accessMode: { mode: toCsiMode(accessMode, options.hasMultiWriter) },
  }));
}

/** Whether the claim asks for a volume that many nodes read and none writes. */
function isReadOnlyMany({ spec: { accessModes = [] } }: Claim): boolean {
  return accessModes.length === 1 && accessModes[0] === 'ReadOnlyMany';
}

function toCsiMode(accessMode: string, hasMultiWriter: boolean): Mode {
  switch (accessMode) {
    case 'ReadWriteMany':
      return Mode.MULTI_NODE_MULTI_WRITER;
    case 'ReadOnlyMany':
      return Mode.MULTI_NODE_READER_ONLY;
    case 'ReadWriteOnce':
      return hasMultiWriter ? Mode.SINGLE_NODE_MULTI_WRITER : Mode.SINGLE_NODE_WRITER;
    case 'ReadWriteOncePod':
      return hasMultiWriter ? Mode.SINGLE_NODE_SINGLE_WRITER : Mode.SINGLE_NODE_WRITER;
    default:
      throw new RefusedError(`unsupported AccessMode combination: [${accessMode}]`);
  }
}
