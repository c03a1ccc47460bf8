import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { controllerRpcNames, pluginServiceNames } from '../csi/method-paths.ts';

/* The few answers that the gateway itself asks the driver for, read by field number (facts:
 * src/csi/csi.proto). Descriptors would read them too, at the price of several MB of memory. All
 * functions throw an Error if the bytes are no protobuf message. */

/** ProbeResponse.ready; undefined = not said, which counts as ready. */
export function decodeProbeReady(response: Uint8Array): boolean | undefined {
  let ready: boolean | undefined;
  eachField(response, 1, WireType.LengthDelimited, (reader) => {
    ready = false;
    eachField(reader.bytes(), 1, WireType.Varint, (wrapper) => (ready = wrapper.bool()));
  });
  return ready;
}

/** Name and version of GetPluginInfoResponse. */
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

/** Services of GetPluginCapabilitiesResponse; other kinds of entry are passed over (spec 06 Q-22 to
 * */
export function decodePluginServices(response: Uint8Array): ReadonlySet<string> {
  return readTypes(response, pluginServiceNames);
}

/** RPCs of ControllerGetCapabilitiesResponse; entries without a type are passed over (spec 06 Q-27
 * to Q-31). */
export function decodeControllerRpcs(response: Uint8Array): ReadonlySet<string> {
  return readTypes(response, controllerRpcNames);
}

/** Both answers: repeated entries (1), in them the message that counts (1), in it a number (1); an
 * absent number is 0. */
function readTypes(response: Uint8Array, names: readonly string[]): ReadonlySet<string> {
  const found = new Set<string>();
  eachField(response, 1, WireType.LengthDelimited, (reader) => {
    let type: number | undefined;
    eachField(reader.bytes(), 1, WireType.LengthDelimited, (entry) => {
      type = 0;
      eachField(entry.bytes(), 1, WireType.Varint, (kind) => (type = kind.int32()));
    });
    if (type !== undefined) found.add(names[type] ?? String(type));
  });
  return found;
}

function eachField(
  message: Uint8Array,
  wanted: number,
  type: WireType,
  take: (reader: BinaryReader) => unknown,
): void {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === wanted && wireType === type) take(reader);
    else reader.skip(wireType, field);
  }
}
