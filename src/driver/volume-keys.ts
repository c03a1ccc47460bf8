import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import type { VolumeKey } from './single-flight.ts';

/* The volume of a call, read by the field numbers of src/csi/csi.proto: decoding a whole request
 * would take more time than all else that the gateway does for a call. */

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
