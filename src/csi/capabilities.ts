import {
  type ControllerGetCapabilitiesResponse,
  ControllerServiceCapability_RPC_TypeSchema,
  type GetPluginCapabilitiesResponse,
  PluginCapability_Service_TypeSchema,
} from './generated/csi_pb.ts';

/** Reads the names of the services that a plug-in reports, such as "CONTROLLER_SERVICE". A number
 * that csi.proto does not define stays a number in text. Skips entries of another kind or without a
 * type, as csi-lib-utils rpc/common.go GetPluginCapabilities does. */
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

/** Reads the names of the RPCs that a controller reports, such as "CREATE_DELETE_VOLUME". A number
 * that csi.proto does not define stays a number in text. Skips entries without a type, as
 * csi-lib-utils rpc/common.go GetControllerCapabilities does. */
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
