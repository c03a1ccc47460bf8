import {
  ControllerServiceCapability_RPC_TypeSchema,
  PluginCapability_Service_TypeSchema,
  type ControllerGetCapabilitiesResponse,
  type ControllerServiceCapability_RPC_Type,
  type GetPluginCapabilitiesResponse,
  type PluginCapability_Service_Type,
} from './generated/csi_pb.ts';

/** Names of plug-in services, "CONTROLLER_SERVICE"; a number that csi.proto doesn't know stays a
 * number in text. */
export type PluginCapabilityName = keyof typeof PluginCapability_Service_Type;
/** Names of controller RPC capabilities, "CREATE_DELETE_VOLUME". */
export type ControllerCapabilityName = keyof typeof ControllerServiceCapability_RPC_Type;

/** What a driver says that it can do; asked once per life of its socket. */
export interface DriverCapabilities {
  readonly plugin: ReadonlySet<string>;
  readonly controller: ReadonlySet<string>;
}

/** Services of the plug-in; other kinds of entry and entries without a type are passed over (spec
 * 06 ). */
export function readPluginCapabilities(
  response: GetPluginCapabilitiesResponse,
): ReadonlySet<string> {
  return new Set(
    response.capabilities.flatMap(({ type }) =>
      type.case === 'service'
        ? [
            PluginCapability_Service_TypeSchema.value[type.value.type]?.name ??
              String(type.value.type),
          ]
        : [],
    ),
  );
}

/** RPCs of the controller; entries without a type are passed over (spec 06 ). */
export function readControllerCapabilities(
  response: ControllerGetCapabilitiesResponse,
): ReadonlySet<string> {
  return new Set(
    response.capabilities.flatMap(({ type }) =>
      type.case === 'rpc'
        ? [
            ControllerServiceCapability_RPC_TypeSchema.value[type.value.type]?.name ??
              String(type.value.type),
          ]
        : [],
    ),
  );
}

/** Whether the driver names that plug-in service. */
export function hasPlugin(capabilities: DriverCapabilities, name: PluginCapabilityName): boolean {
  return capabilities.plugin.has(name);
}

/** Whether the driver names that controller capability. */
export function hasController(
  capabilities: DriverCapabilities,
  name: ControllerCapabilityName,
): boolean {
  return capabilities.controller.has(name);
}
