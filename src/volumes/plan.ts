import { create, toBinary } from '@bufbuild/protobuf';
import { CreateVolumeRequestSchema } from '../csi/generated/csi_pb.ts';
import type { Claim, Class, Labels, VolumeAttributesClass } from '../kube/objects.ts';
import { parseQuantityBytes, QuantityError } from '../kube/quantity.ts';
import { snapshots, volumeAttributesClasses } from '../kube/resources.ts';
import { isReadOnlyMany, volumeCapabilities } from './access.ts';
import { cloneSource } from './clone-source.ts';
import {
  addSourceFinalizer,
  type ContentSource,
  dataSourceOf,
  kindOf,
  type SourceRef,
} from './data-source.ts';
import { type DriverFacts, missingCapability, supportsTopology } from './driver-facts.ts';
import { translateClass } from './migration/classes.ts';
import { volumeName } from './names.ts';
import { omitUnset } from './omit-unset.ts';
import { driverParameters, fsTypeOf, metadataParameters } from './parameters.ts';
import { type VolumeSkeleton, volumeSkeleton } from './persistent-volume.ts';
import type { ProvisioningOptions } from './provisioning-options.ts';
import { catchRefusal, RefusedError, type WaitCondition } from './refused-error.ts';
import { read, type Rule } from './rule.ts';
import { type SecretContext, type SecretPurpose, secretRef, type SecretRef } from './secret-ref.ts';
import { snapshotSource } from './snapshot-source.ts';

/** What has to be done for an eligible claim. */
export type VolumePlan =
  | {
      readonly kind: 'create';
      readonly name: string;
      /** Encoded CreateVolumeRequest without secrets. */
      readonly request: Uint8Array;
      readonly skeleton: VolumeSkeleton;
      /** The secret whose values CreateVolume gets. */
      readonly secret: SecretRef | undefined;
    }
  /** A populator creates this volume; one event says so. */
  | { readonly kind: 'populator'; readonly sourceKind: string }
  /** The volume can't be created as things are. */
  | {
      readonly kind: 'refuse';
      /** For the user. */
      readonly message: string;
      /** The objects whose change ends the refusal. */
      readonly waitsFor: readonly WaitCondition[];
    };

export interface PlanInput {
  readonly claim: Claim;
  readonly cls: Class;
  readonly className: string;
  readonly driver: DriverFacts;
  readonly options: ProvisioningOptions;
}

/** Provisioner first, since its refusal comes first. */
const SECRET_PURPOSES: readonly SecretPurpose[] = [
  'Provisioner',
  'ControllerPublish',
  'NodeStage',
  'NodePublish',
  'ControllerExpand',
  'NodeExpand',
  'ControllerModify',
];

/** Plans the volume of an eligible claim: what to ask of the driver, or why not. The checks are in
 * upstream's order. A claim without source and VolumeAttributesClass needs no step. Upstream:
 * external-provisioner pkg/controller/controller.go prepareProvision. */
export function* planVolume(input: PlanInput): Rule<VolumePlan> {
  try {
    return yield* checkClaim(input);
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error;
    return { kind: 'refuse', message: error.message, waitsFor: error.waitsFor };
  }
}

function* checkClaim(input: PlanInput): Rule<VolumePlan> {
  const { claim, driver, options } = input;
  const source = yield* dataSourceOf(claim, options.gates);
  const { cls, isMigrated } = toDriverClass(input.cls, driver);
  const sourceKind = source && kindOf(source, claim.metadata.name);
  if (source !== undefined && sourceKind === 'populator')
    return { kind: 'populator', sourceKind: source.kind };
  const attributesClass = attributesClassOf(claim, options);
  const modifies = attributesClass !== undefined;
  const missing = missingCapability(driver, { sourceKind, modifies });
  if (missing !== undefined) throw new RefusedError(missing);
  if (claim.spec.selector !== undefined) throw new RefusedError('claim Selector is not supported');
  return yield* planCreation({
    ...input,
    source,
    cls,
    provisioner: input.cls.provisioner,
    isMigrated,
    attributesClass,
  });
}

/** A claim that asks for nothing that the driver does not support. */
interface CheckedInput extends PlanInput {
  readonly source: SourceRef | undefined;
  /** Translated for the driver if it is an in-tree class. */
  readonly cls: Class;
  /** Of the stored class, which names the in-tree plug-in if the class is migrated. */
  readonly provisioner: string;
  readonly isMigrated: boolean;
  readonly attributesClass: string | undefined;
}

function* planCreation(input: CheckedInput): Rule<VolumePlan> {
  const { claim, cls, driver, options, source, attributesClass } = input;
  const name = volumeName(claim.metadata.uid, options);
  const fsType = fsTypeOf(cls, options.defaultFsType);
  const requestedBytes = requestedBytesOf(claim);
  const hasMultiWriter = driver.controllerCapabilities.has('SINGLE_NODE_MULTI_WRITER');
  const capabilities = volumeCapabilities(claim, cls, { fsType, hasMultiWriter });
  const content = source && (yield* contentOf(source, { ...input, requestedBytes }));
  const identity = { name: claim.metadata.name, namespace: claim.metadata.namespace ?? '' };
  const annotations = claim.metadata.annotations ?? {};
  const secrets = secretsOf(cls, { volumeName: name, claim: { ...identity, annotations } });
  const parameters = {
    ...driverParameters(cls),
    ...(options.extraCreateMetadata ? metadataParameters(identity, name) : {}),
  };
  const mutableParameters =
    attributesClass === undefined
      ? undefined
      : yield* mutableParametersOf(attributesClass, driver.name);
  const request = create(
    CreateVolumeRequestSchema,
    omitUnset({
      name,
      capacityRange: { requiredBytes: requestedBytes },
      volumeCapabilities: capabilities,
      parameters,
      volumeContentSource: content?.request,
      mutableParameters,
    }),
  );
  return {
    kind: 'create',
    name,
    request: toBinary(CreateVolumeRequestSchema, request),
    secret: secrets.Provisioner,
    skeleton: volumeSkeleton({
      ...input,
      name,
      driver: driver.name,
      fsType,
      requestedBytes,
      readOnly: isReadOnlyMany(capabilities) && options.controllerPublishReadonly,
      identity: options.identity,
      secrets,
      hasTopology: supportsTopology(driver, options.gates),
      source: source && content && { ...source, uid: content.object.metadata.uid },
    }),
  };
}

/** Translates a class of the in-tree plug-in for the driver that replaced it. */
function toDriverClass(
  cls: Class,
  { inTreeName }: DriverFacts,
): { readonly cls: Class; readonly isMigrated: boolean } {
  if (inTreeName === undefined || cls.provisioner !== inTreeName) return { cls, isMigrated: false };
  const translated = catchRefusal(
    () => translateClass(cls, inTreeName),
    (cause) => {
      throw new RefusedError(`failed to translate storage class: ${cause.message}`, { cause });
    },
  );
  return { cls: translated, isMigrated: true };
}

/** The VolumeAttributesClass that the claim names, if any. It is refused without the feature gate:
 * the volume controller would never bind the PV. */
function attributesClassOf(claim: Claim, options: ProvisioningOptions): string | undefined {
  const name = claim.spec.volumeAttributesClassName ?? '';
  if (name === '') return undefined;
  if (options.gates.VolumeAttributesClass) return name;
  throw new RefusedError(
    `the claim names VolumeAttributesClass ${name}, and the feature gate VolumeAttributesClass ` +
      'is off; switch it on, or make the claim without',
  );
}

/** The content source, once our finalizer keeps it. */
function* contentOf(
  source: SourceRef,
  input: PlanInput & { readonly requestedBytes: bigint },
): Rule<ContentSource> {
  const { preventVolumeModeConversion } = input.options;
  const rule = source.kind === snapshots.kind ? snapshotSource : cloneSource;
  const content = yield* rule({ ...input, source, preventVolumeModeConversion });
  yield* addSourceFinalizer(content);
  return content;
}

function secretsOf(
  cls: Class,
  context: SecretContext,
): Readonly<Partial<Record<SecretPurpose, SecretRef>>> {
  const refs = SECRET_PURPOSES.map(
    (purpose) => [purpose, secretRef(purpose, cls.parameters ?? {}, context)] as const,
  );
  return omitUnset(Object.fromEntries(refs));
}

function* mutableParametersOf(name: string, driver: string): Rule<Labels> {
  const { driverName, parameters = {} } = yield* read<VolumeAttributesClass>(
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
