import { VolumeCapability_AccessMode_Mode as Mode } from '../csi/generated/csi_pb.ts';
import type { Claim, Class } from '../kube/objects.ts';
import { RefusedError } from './provisioning-options.ts';

/** One capability of a CreateVolumeRequest, in the shape protobuf-es builds messages from. */
export interface CapabilityInit {
  readonly accessType:
    | { readonly case: 'block'; readonly value: Record<string, never> }
    | {
        readonly case: 'mount';
        readonly value: { readonly fsType: string; readonly mountFlags: string[] };
      };
  readonly accessMode: { readonly mode: Mode };
}

/** One capability per access mode of the claim, in its order, never merged (spec 02 §7.5).
 * @throws RefusedError for an access mode that CSI can't express */
export function volumeCapabilities(
  claim: Claim,
  cls: Class,
  driver: { fsType: string; hasMultiWriter: boolean },
): CapabilityInit[] {
  return (claim.spec.accessModes ?? []).map((accessMode) => ({
    accessType:
      claim.spec.volumeMode === 'Block'
        ? { case: 'block', value: {} }
        : {
            case: 'mount',
            value: { fsType: driver.fsType, mountFlags: [...(cls.mountOptions ?? [])] },
          },
    accessMode: { mode: csiMode(accessMode, driver.hasMultiWriter) },
  }));
}

function csiMode(accessMode: string, hasMultiWriter: boolean): Mode {
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
