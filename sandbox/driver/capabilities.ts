import type { ControllerServiceCapability_RPC_Type } from '#src/csi/generated/csi_pb.ts';

/** The controller capabilities that the sample driver supports, by their names in csi.proto. */
export const SAMPLE_CAPABILITIES = [
  'CREATE_DELETE_VOLUME',
  'LIST_VOLUMES',
  'GET_CAPACITY',
  'GET_VOLUME',
  'CREATE_DELETE_SNAPSHOT',
  'LIST_SNAPSHOTS',
  'CLONE_VOLUME',
  'MODIFY_VOLUME',
  'SINGLE_NODE_MULTI_WRITER',
] as const satisfies readonly (keyof typeof ControllerServiceCapability_RPC_Type)[];

export type SampleCapability = (typeof SAMPLE_CAPABILITIES)[number];

/** The capabilities that it has by default. */
export const DEFAULT_CAPABILITIES: readonly SampleCapability[] = SAMPLE_CAPABILITIES.filter(
  (name) => name !== 'SINGLE_NODE_MULTI_WRITER',
);
