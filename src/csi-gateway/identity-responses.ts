import { WireType } from '@bufbuild/protobuf/wire';
import { controllerRpcNames, pluginServiceNames } from '../csi/method-paths.ts';
import { eachField } from './protobuf-fields.ts';

/* Decoders for the driver's responses to the gateway's own calls. They read protobuf by the field
 * numbers of src/csi/csi.proto, because loading descriptors would take several MB of memory. All
 * throw an Error if the bytes are not a protobuf message. */

/** Field `ready` of ProbeResponse; undefined if it is not set, which counts as ready. */
export function decodeProbeReady(response: Uint8Array): boolean | undefined {
  let ready: boolean | undefined;
  eachField(response, 1, WireType.LengthDelimited, (reader) => {
    ready = false;
    eachField(reader.bytes(), 1, WireType.Varint, (wrapper) => (ready = wrapper.bool()));
  });
  return ready;
}

/** Name and version in GetPluginInfoResponse. */
export function decodePluginInfo(response: Uint8Array): {
  readonly name: string;
  readonly vendorVersion: string;
} {
  let name = '';
  let vendorVersion = '';
  eachField(response, 1, WireType.LengthDelimited, (reader) => (name = reader.string()));
  eachField(response, 2, WireType.LengthDelimited, (reader) => (vendorVersion = reader.string()));
  return { name, vendorVersion };
}

/** Names of the services in GetPluginCapabilitiesResponse; other kinds of entry are skipped, as in
 * csi-lib-utils rpc/common.go GetPluginCapabilities. */
export function decodePluginServices(response: Uint8Array): ReadonlySet<string> {
  return decodeTypes(response, pluginServiceNames);
}

/** Names of the RPCs in ControllerGetCapabilitiesResponse; entries without a type are skipped, as
 * in csi-lib-utils rpc/common.go GetControllerCapabilities. */
export function decodeControllerRpcs(response: Uint8Array): ReadonlySet<string> {
  return decodeTypes(response, controllerRpcNames);
}

/** Both responses have the same shape: field 1 is a repeated message, whose field 1 is a message,
 * whose field 1 is the number of the capability; an absent number is 0. */
function decodeTypes(response: Uint8Array, names: readonly string[]): ReadonlySet<string> {
  const types = new Set<string>();
  eachField(response, 1, WireType.LengthDelimited, (reader) => {
    let type: number | undefined;
    eachField(reader.bytes(), 1, WireType.LengthDelimited, (entry) => {
      type = 0;
      eachField(entry.bytes(), 1, WireType.Varint, (kind) => (type = kind.int32()));
    });
    if (type !== undefined) types.add(names[type] ?? String(type));
  });
  return types;
}
