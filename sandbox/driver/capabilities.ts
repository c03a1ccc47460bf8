import type { ControllerServiceCapability_RPC_Type } from '#src/csi/generated/csi_pb.ts';

/** Controller capabilities that the sample driver can have, by their names in csi.proto. */
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

/** What it has unless it is told otherwise. */
export const DEFAULT_CAPABILITIES: readonly SampleCapability[] = SAMPLE_CAPABILITIES.filter(
  (name) => name !== 'SINGLE_NODE_MULTI_WRITER',
);
