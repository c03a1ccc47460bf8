import { WireType } from '@bufbuild/protobuf/wire';
import { eachField } from './protobuf-fields.ts';
import type { VolumeKey } from './single-flight.ts';

/** Methods that change a volume, and the number (in src/csi/csi.proto) and meaning of the request
 * field that names the volume. */
const KEY_FIELD: ReadonlyMap<string, { readonly field: number; readonly kind: VolumeKey['kind'] }> =
  new Map([
    ['/csi.v1.Controller/CreateVolume', { field: 1, kind: 'name' }],
    ['/csi.v1.Controller/DeleteVolume', { field: 1, kind: 'handle' }],
    ['/csi.v1.Controller/ControllerModifyVolume', { field: 1, kind: 'handle' }],
  ]);

/** Whether a method is limited to one call per volume at a time. */
export function isSingleFlight(path: string): boolean {
  return KEY_FIELD.has(path);
}

/** The volume that an encoded request of a single-flight method names; undefined if it names none.
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
