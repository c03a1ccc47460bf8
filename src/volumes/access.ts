import { VolumeCapability_AccessMode_Mode as Mode } from '../csi/generated/csi_pb.ts';
import type { Claim, Class } from '../kube/objects.ts';
import { RefusedError } from './refused-error.ts';

/** One capability of a CreateVolumeRequest, in the shape from which protobuf-es builds messages. */
interface CapabilityInit {
  readonly accessType:
    | { readonly case: 'block'; readonly value: Record<string, never> }
    | {
        readonly case: 'mount';
        readonly value: { readonly fsType: string; readonly mountFlags: string[] };
      };
  readonly accessMode: { readonly mode: Mode };
}

/** One capability for each access mode of the claim, in its order, never merged. Upstream:
 * external-provisioner pkg/controller/controller.go getVolumeCapabilities.
 * @throws RefusedError for an access mode that CSI can't express */
export function volumeCapabilities(
  claim: Claim,
  cls: Class,
  driver: { readonly fsType: string; readonly hasMultiWriter: boolean },
): CapabilityInit[] {
  return (claim.spec.accessModes ?? []).map((accessMode) => ({
    accessType:
      claim.spec.volumeMode === 'Block'
        ? { case: 'block', value: {} }
        : {
            case: 'mount',
            value: { fsType: driver.fsType, mountFlags: [...(cls.mountOptions ?? [])] },
          },
    accessMode: { mode: toCsiMode(accessMode, driver.hasMultiWriter) },
  }));
}

/** Whether the volume is asked for as one that many nodes read and none writes. */
export function isReadOnlyMany(capabilities: readonly CapabilityInit[]): boolean {
  const [only, ...others] = capabilities;
  return others.length === 0 && only?.accessMode.mode === Mode.MULTI_NODE_READER_ONLY;
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
