import { create, toBinary } from '@bufbuild/protobuf';
import { CreateVolumeRequestSchema, VolumeCapability_AccessMode_Mode as Mode } from '../csi/generated/csi_pb.ts';
import type { Claim, Class } from '../kube/objects.ts';
import { parseQuantityBytes, QuantityError } from '../kube/quantity.ts';
import { volumeCapabilities } from './access.ts';
import { volumeName } from './names.ts';
import { driverParameters, fsTypeOf, metadataParameters } from './parameters.ts';
import { volumeSkeleton } from './persistent-volume.ts';
import type { VolumeSkeleton } from './persistent-volume.ts';
import { missingCapability, RefusedError } from './provisioning-options.ts';
import type { DriverFacts, ProvisioningOptions } from './provisioning-options.ts';
import { secretRef } from './secret-ref.ts';
import type { SecretPurpose, SecretRef } from './secret-ref.ts';

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
  /** Can't be made as it is; the text is for the user. */
  | { readonly kind: 'refuse'; readonly message: string };

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

/** What to ask of the driver for an eligible claim, or why not; the checks come in upstream's order (spec 02 §7). Writes nothing. */
export function planVolume(input: PlanInput): VolumePlan {
  try {
    return planChecked(input);
  } catch (error) {
    if (error instanceof RefusedError) return { kind: 'refuse', message: error.message };
    throw error;
  }
}

function planChecked(input: PlanInput): VolumePlan {
  const { claim, cls, driver, options } = input;
  const source = claim.spec.dataSource ?? claim.spec.dataSourceRef;
  if (source !== undefined && source.kind !== 'VolumeSnapshot' && source.kind !== 'PersistentVolumeClaim') {
    return { kind: 'populator', sourceKind: source.kind };
  }
  // An empty volume in place of the asked-for content would be a silent loss of data, so a source is refused until it can be honoured.
  if (source !== undefined)
    throw new RefusedError(`data source ${source.kind} ${source.name}: this version of sutler makes empty volumes only`);
  const missing = missingCapability(driver);
  if (missing !== undefined) throw new RefusedError(missing);
  if (claim.spec.selector !== undefined) throw new RefusedError('claim Selector is not supported');

  const name = volumeName(claim.metadata.uid, options);
  const fsType = fsTypeOf(cls, options.defaultFsType);
  const requestedBytes = requestedBytesOf(claim);
  const capabilities = volumeCapabilities(claim, cls, {
    fsType,
    hasMultiWriter: driver.controllerCapabilities.has('SINGLE_NODE_MULTI_WRITER'),
  });
  const identity = { name: claim.metadata.name, namespace: claim.metadata.namespace ?? '' };
  const context = { volumeName: name, claim: { ...identity, annotations: claim.metadata.annotations ?? {} } };
  const secret = secretRef('Provisioner', cls.parameters ?? {}, context);
  const pvSecrets = Object.fromEntries(
    PV_SECRETS.flatMap((purpose) => {
      const ref = secretRef(purpose, cls.parameters ?? {}, context);
      return ref === undefined ? [] : [[purpose, ref] as const];
    }),
  );
  const parameters = { ...driverParameters(cls), ...(options.extraCreateMetadata ? metadataParameters(identity, name) : {}) };
  const request = create(CreateVolumeRequestSchema, {
    name,
    capacityRange: { requiredBytes: requestedBytes },
    volumeCapabilities: capabilities,
    parameters,
  });
  const isReadOnly = capabilities.length === 1 && capabilities[0]?.accessMode.mode === Mode.MULTI_NODE_READER_ONLY;
  return {
    kind: 'create',
    name,
    request: toBinary(CreateVolumeRequestSchema, request),
    secret,
    skeleton: volumeSkeleton({
      name,
      claim,
      cls,
      className: input.className,
      driver: driver.name,
      fsType,
      requestedBytes,
      readOnly: isReadOnly && options.controllerPublishReadonly,
      identity: options.identity,
      secrets: { ...pvSecrets, ...(secret ? { Provisioner: secret } : {}) },
    }),
  };
}

function requestedBytesOf(claim: Claim): bigint {
  const text = claim.spec.resources?.requests?.storage;
  if (text === undefined) return 0n;
  try {
    const bytes = parseQuantityBytes(text);
    if (bytes < 0n) throw new RefusedError(`spec.resources.requests.storage: ${text} is negative`);
    return bytes;
  } catch (cause) {
    if (cause instanceof QuantityError) throw new RefusedError(`spec.resources.requests.storage: ${cause.message}`, { cause });
    throw cause;
  }
}
