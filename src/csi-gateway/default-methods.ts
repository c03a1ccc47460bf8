/** What passes without --allow-all: what sutler itself calls. Publishing, snapshots and expansion
 * have sidecars of their own beside the driver, which dial its socket directly. */
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
