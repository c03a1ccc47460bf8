import {
  type ControllerGetCapabilitiesResponse,
  ControllerServiceCapability_RPC_TypeSchema,
  type GetPluginCapabilitiesResponse,
  PluginCapability_Service_TypeSchema,
} from './generated/csi_pb.ts';

/** Names of the services that a plug-in reports, such as "CONTROLLER_SERVICE". A number that
 * csi.proto does not define stays a number in text. Entries of another kind or without a type are
 * skipped, as in csi-lib-utils rpc/common.go GetPluginCapabilities. */
export function readPluginCapabilities(
  response: GetPluginCapabilitiesResponse,
): ReadonlySet<string> {
  const { value } = PluginCapability_Service_TypeSchema;
  return new Set(
    response.capabilities.flatMap(({ type: { case: kind, value: service } }) =>
      kind === 'service' ? [value[service.type]?.name ?? String(service.type)] : [],
    ),
  );
}

/** Names of the RPCs that a controller reports, such as "CREATE_DELETE_VOLUME". A number that
 * csi.proto does not define stays a number in text. Entries without a type are skipped, as in
 * csi-lib-utils rpc/common.go GetControllerCapabilities. */
export function readControllerCapabilities(
  response: ControllerGetCapabilitiesResponse,
): ReadonlySet<string> {
  const { value } = ControllerServiceCapability_RPC_TypeSchema;
  return new Set(
    response.capabilities.flatMap(({ type: { case: kind, value: rpc } }) =>
      kind === 'rpc' ? [value[rpc.type]?.name ?? String(rpc.type)] : [],
    ),
  );
}
