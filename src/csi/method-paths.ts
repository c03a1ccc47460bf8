/* Names from csi.proto as plain text. The gateway forwards bytes and loads no protobuf descriptors:
 * they and their library would take a tenth of its memory at rest. test/csi/method-paths.test.ts
 * compares these lists with the descriptors. */

const METHODS: Readonly<Record<string, readonly string[]>> = {
  Identity: ['GetPluginInfo', 'GetPluginCapabilities', 'Probe'],
  Controller: [
    'CreateVolume',
    'DeleteVolume',
    'ControllerPublishVolume',
    'ControllerUnpublishVolume',
    'ValidateVolumeCapabilities',
    'ListVolumes',
    'GetCapacity',
    'ControllerGetCapabilities',
    'CreateSnapshot',
    'DeleteSnapshot',
    'ListSnapshots',
    'GetSnapshot',
    'ControllerExpandVolume',
    'ControllerGetVolume',
    'ControllerModifyVolume',
  ],
  GroupController: [
    'GroupControllerGetCapabilities',
    'CreateVolumeGroupSnapshot',
    'DeleteVolumeGroupSnapshot',
    'GetVolumeGroupSnapshot',
  ],
  Node: [
    'NodeStageVolume',
    'NodeUnstageVolume',
    'NodePublishVolume',
    'NodeUnpublishVolume',
    'NodeGetVolumeStats',
    'NodeExpandVolume',
    'NodeGetCapabilities',
    'NodeGetInfo',
  ],
};

/** Path of every method in csi.proto, such as "/csi.v1.Controller/CreateVolume". */
export const csiMethodPaths: ReadonlySet<string> = new Set(
  Object.entries(METHODS).flatMap(([service, methods]) =>
    methods.map((method) => `/csi.v1.${service}/${method}`),
  ),
);

/** Names of PluginCapability.Service.Type, indexed by number. */
export const pluginServiceNames: readonly string[] = [
  'UNKNOWN',
  'CONTROLLER_SERVICE',
  'VOLUME_ACCESSIBILITY_CONSTRAINTS',
  'GROUP_CONTROLLER_SERVICE',
  'SNAPSHOT_METADATA_SERVICE',
];

/** Names of ControllerServiceCapability.RPC.Type, indexed by number. */
export const controllerRpcNames: readonly string[] = [
  'UNKNOWN',
  'CREATE_DELETE_VOLUME',
  'PUBLISH_UNPUBLISH_VOLUME',
  'LIST_VOLUMES',
  'GET_CAPACITY',
  'CREATE_DELETE_SNAPSHOT',
  'LIST_SNAPSHOTS',
  'CLONE_VOLUME',
  'PUBLISH_READONLY',
  'EXPAND_VOLUME',
  'LIST_VOLUMES_PUBLISHED_NODES',
  'VOLUME_CONDITION',
  'GET_VOLUME',
  'SINGLE_NODE_MULTI_WRITER',
  'MODIFY_VOLUME',
  'GET_SNAPSHOT',
];
