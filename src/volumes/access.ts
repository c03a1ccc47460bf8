import type { MessageInitShape } from '@bufbuild/protobuf';
import {
  VolumeCapability_AccessMode_Mode as Mode,
  type VolumeCapabilitySchema,
} from '../csi/generated/csi_pb.ts';
import type { Claim, Class } from '../kube/objects.ts';
import { RefusedError } from '../rules/refused-error.ts';

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
export function isReadOnlyMany({ spec: { accessModes = [] } }: Claim): boolean {
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
