import { create, toBinary } from '@bufbuild/protobuf';
import {
  CreateVolumeRequestSchema,
  VolumeCapability_AccessMode_Mode as Mode,
} from '../csi/generated/csi_pb.ts';
import type { Claim, Class, Labels, VolumeAttributesClass } from '../kube/objects.ts';
import { parseQuantityBytes, QuantityError } from '../kube/quantity.ts';
import { volumeAttributesClasses } from '../kube/resources.ts';
import { volumeCapabilities } from './access.ts';
import { cloneSource } from './clone-source.ts';
import { dataSourceOf, kindOf, protectSource } from './data-source.ts';
import type { ContentSource, SourceRef } from './data-source.ts';
import { translateClass } from './migration/classes.ts';
import { volumeName } from './names.ts';
import { driverParameters, fsTypeOf, metadataParameters } from './parameters.ts';
import { volumeSkeleton } from './persistent-volume.ts';
import type { VolumeSkeleton } from './persistent-volume.ts';
import {
  missingCapability,
  onRefusal,
  RefusedError,
  supportsTopology,
} from './provisioning-options.ts';
import type { WaitCondition, DriverFacts, ProvisioningOptions } from './provisioning-options.ts';
import { read } from './rule.ts';
import type { Rule } from './rule.ts';
import { secretRef } from './secret-ref.ts';
import type { SecretContext, SecretPurpose, SecretRef } from './secret-ref.ts';
import { snapshotSource } from './snapshot-source.ts';

export type VolumePlan =
  | {
      readonly kind: 'create';
      readonly name: string;
      /** Encoded CreateVolumeRequest without secrets. */
      readonly request: Uint8Array;
      readonly skeleton: VolumeSkeleton;
      /** Secret whose values CreateVolume gets. */
      readonly secret: SecretRef | undefined;
    }
  /** Somebody else makes this volume; said once in an event. */
  | { readonly kind: 'populator'; readonly sourceKind: string }
  /** Can't be made as things are; the text is for the user. */
  | {
      readonly kind: 'refuse';
      readonly message: string;
      readonly waitsFor: readonly WaitCondition[];
    };

export interface PlanInput {
  readonly claim: Claim;
  readonly cls: Class;
  readonly className: string;
  readonly driver: DriverFacts;
  readonly options: ProvisioningOptions;
}

const PV_SECRETS: readonly SecretPurpose[] = [
  'ControllerPublish',
  'NodeStage',
  'NodePublish',
  'ControllerExpand',
  'NodeExpand',
  'ControllerModify',
];

/** What to ask of the driver for an eligible claim, or why not; the checks come in upstream's order
 * (spec 02 §7). A plain class asks for no step. */
export function* planVolume(input: PlanInput): Rule<VolumePlan> {
  try {
    return yield* planChecked(input);
  } catch (error) {
    if (error instanceof RefusedError)
      return { kind: 'refuse', message: error.message, waitsFor: error.waitsFor };
    throw error;
  }
}

function* planChecked(input: PlanInput): Rule<VolumePlan> {
  const { claim, driver, options } = input;
  const source = yield* dataSourceOf(claim, options.gates);
  const { cls, isMigrated } = csiClass(input.cls, driver);
  const sourceKind = source === undefined ? undefined : kindOf(source, claim.metadata.name);
  if (source !== undefined && sourceKind === 'populator')
    return { kind: 'populator', sourceKind: source.kind };
  const attributesClass = attributesClassOf(claim, options);
  const missing = missingCapability(driver, {
    sourceKind,
    modifies: attributesClass !== undefined,
  });
  if (missing !== undefined) throw new RefusedError(missing);
  if (claim.spec.selector !== undefined) throw new RefusedError('claim Selector is not supported');

  const name = volumeName(claim.metadata.uid, options);
  const fsType = fsTypeOf(cls, options.defaultFsType);
  const requestedBytes = requestedBytesOf(claim);
  const capabilities = volumeCapabilities(claim, cls, {
    fsType,
    hasMultiWriter: driver.controllerCapabilities.has('SINGLE_NODE_MULTI_WRITER'),
  });
  const content =
    source === undefined ? undefined : yield* contentOf(source, { ...input, cls, requestedBytes });
  const identity = { name: claim.metadata.name, namespace: claim.metadata.namespace ?? '' };
  const secrets = secretsOf(cls, {
    volumeName: name,
    claim: { ...identity, annotations: claim.metadata.annotations ?? {} },
  });
  const parameters = {
    ...driverParameters(cls),
    ...(options.extraCreateMetadata ? metadataParameters(identity, name) : {}),
  };
  const mutableParameters =
    attributesClass === undefined
      ? undefined
      : yield* mutableParametersOf(attributesClass, driver.name);
  const request = create(CreateVolumeRequestSchema, {
    name,
    capacityRange: { requiredBytes: requestedBytes },
    volumeCapabilities: capabilities,
    parameters,
    ...(content === undefined ? {} : { volumeContentSource: content.request }),
    ...(mutableParameters === undefined ? {} : { mutableParameters }),
  });
  const isReadOnly =
    capabilities.length === 1 && capabilities[0]?.accessMode.mode === Mode.MULTI_NODE_READER_ONLY;
  return {
    kind: 'create',
    name,
    request: toBinary(CreateVolumeRequestSchema, request),
    secret: secrets.Provisioner,
    skeleton: volumeSkeleton({
      name,
      claim,
      cls,
      className: input.className,
      provisioner: input.cls.provisioner,
      driver: driver.name,
      fsType,
      requestedBytes,
      readOnly: isReadOnly && options.controllerPublishReadonly,
      identity: options.identity,
      secrets,
      attributesClass,
      isMigrated,
      hasTopology: supportsTopology(driver, options.gates),
      ...(source === undefined || content === undefined
        ? {}
        : { source: { ...source, uid: content.object.metadata.uid } }),
    }),
  };
}

/** The class in the driver's own terms; a class of the in-tree plug-in is translated (spec 07 §3).
 */
function csiClass(
  cls: Class,
  driver: DriverFacts,
): { readonly cls: Class; readonly isMigrated: boolean } {
  if (driver.inTreeName === undefined || cls.provisioner !== driver.inTreeName)
    return { cls, isMigrated: false };
  const { inTreeName } = driver;
  const translated = onRefusal(
    () => translateClass(cls, inTreeName),
    (cause) => {
      throw new RefusedError(`failed to translate storage class: ${cause.message}`, { cause });
    },
  );
  return { cls: translated, isMigrated: true };
}

/** The VolumeAttributesClass that the claim names, if any. With the gate off it is refused: the
 * volume controller would never bind the PV. */
function attributesClassOf(claim: Claim, options: ProvisioningOptions): string | undefined {
  const name = claim.spec.volumeAttributesClassName ?? '';
  if (name === '') return undefined;
  if (options.gates.VolumeAttributesClass) return name;
  throw new RefusedError(
    `the claim names VolumeAttributesClass ${name}, and the feature gate VolumeAttributesClass is off; switch it on, or make the claim without`,
  );
}

/** What the volume is filled from, and its source kept from going away meanwhile. */
function* contentOf(
  source: SourceRef,
  input: PlanInput & { readonly requestedBytes: bigint },
): Rule<ContentSource> {
  const asked = {
    ...input,
    source,
    preventVolumeModeConversion: input.options.preventVolumeModeConversion,
  };
  const content =
    source.kind === 'VolumeSnapshot' ? yield* snapshotSource(asked) : yield* cloneSource(asked);
  yield* protectSource(content);
  return content;
}

/** The references of all purposes; Provisioner first, as its errors come first. */
function secretsOf(
  cls: Class,
  context: SecretContext,
): Readonly<Partial<Record<SecretPurpose, SecretRef>>> {
  const refs = (['Provisioner', ...PV_SECRETS] as const).flatMap((purpose) => {
    const ref = secretRef(purpose, cls.parameters ?? {}, context);
    return ref === undefined ? [] : [[purpose, ref] as const];
  });
  return Object.fromEntries(refs);
}

function* mutableParametersOf(name: string, driver: string): Rule<Labels> {
  const found = yield* read<VolumeAttributesClass>(volumeAttributesClasses, { name });
  if (found.driverName !== driver) {
    const text = `VAC ${name} referenced in PVC is for driver ${found.driverName} which does not match driver name ${driver}`;
    throw new RefusedError(text);
  }
  return found.parameters ?? {};
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
