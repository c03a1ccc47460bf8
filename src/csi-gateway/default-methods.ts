/** The methods that pass without --allow-all: those that sutler calls. Publishing, snapshots and
 * expansion have their own sidecars beside the driver, which connect to its socket directly. */
export const defaultMethods: ReadonlySet<string> = new Set([
  '/csi.v1.Identity/GetPluginInfo',
  '/csi.v1.Identity/GetPluginCapabilities',
  '/csi.v1.Identity/Probe',
  '/csi.v1.Controller/CreateVolume',
  '/csi.v1.Controller/DeleteVolume',
  '/csi.v1.Controller/GetCapacity',
  '/csi.v1.Controller/ListVolumes',
  '/csi.v1.Controller/ControllerGetCapabilities',
  '/csi.v1.Controller/ControllerGetVolume',
  '/csi.v1.Controller/ControllerModifyVolume',
  '/csi.v1.Node/NodeGetInfo',
]);
