import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { controllerRpcNames, pluginServiceNames } from '../csi/method-paths.ts';
import type { VolumeKey } from './single-flight.ts';

/* What the gateway reads of messages: the volume of a call, and the driver's responses to its own
 * calls. It reads protobuf by the field numbers of src/csi/csi.proto, because loading descriptors
 * would take several MB of memory, and decoding a whole request more time than all else that the
 * gateway does for a call. All functions throw an Error if the bytes are not a protobuf message. */

/** Reads each occurrence of one field in an encoded message and skips all other fields.
 * @param number  the field's number in its .proto file
 * @throws Error if the bytes are not a protobuf message */
export function eachField(
  message: Uint8Array,
  number: number,
  type: WireType,
  read: (reader: BinaryReader) => unknown,
): void {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === number && wireType === type) read(reader);
    else reader.skip(wireType, field);
  }
}

/** Methods that change a volume, and the number (in src/csi/csi.proto) and meaning of the request
 * field that names the volume. */
const KEY_FIELD: ReadonlyMap<string, { readonly field: number; readonly kind: VolumeKey['kind'] }> =
  new Map([
    ['/csi.v1.Controller/CreateVolume', { field: 1, kind: 'name' }],
    ['/csi.v1.Controller/DeleteVolume', { field: 1, kind: 'handle' }],
    ['/csi.v1.Controller/ControllerModifyVolume', { field: 1, kind: 'handle' }],
  ]);

/** The volume that an encoded request names; undefined for a method that is not limited to one call
 * per volume at a time, and for a request that names none.
 * Reads one field and skips the rest: decoding the whole request would cost more than everything
 * else that the gateway does for a call.
 * @throws Error if the bytes are not a protobuf message */
export function readVolumeKey(path: string, request: Uint8Array): VolumeKey | undefined {
  const key = KEY_FIELD.get(path);
  const value = key === undefined ? undefined : readLastField(request, key.field);
  return key === undefined || value === undefined || value.length === 0
    ? undefined
    : { kind: key.kind, value: toText(value) };
}

/** The handle in an encoded CreateVolumeResponse (volume = 1, volume_id = 2); undefined if there is
 * none.
 * @throws Error if the bytes are not a protobuf message */
export function readCreatedHandle(response: Uint8Array): string | undefined {
  const volume = readLastField(response, 1);
  const handle = volume === undefined ? undefined : readLastField(volume, 2);
  return handle === undefined || handle.length === 0 ? undefined : toText(handle);
}

/** The value of a field. If it occurs several times, the last one counts, as in every protobuf
 * parser. */
function readLastField(message: Uint8Array, number: number): Uint8Array | undefined {
  let value: Uint8Array | undefined;
  eachField(message, number, WireType.LengthDelimited, (reader) => (value = reader.bytes()));
  return value;
}

/** One character per byte, so that different bytes give different texts even if they are not valid
 * UTF-8. */
function toText(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
}

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
