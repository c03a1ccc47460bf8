import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import type { VolumeKey } from './single-flight.ts';

/** Methods that change a volume, and the field (number, meaning) of the request that names it.
 * Facts: src/csi/csi.proto. */
const KEY_FIELD: ReadonlyMap<string, { readonly field: number; readonly kind: VolumeKey['kind'] }> =
  new Map([
    ['/csi.v1.Controller/CreateVolume', { field: 1, kind: 'name' }],
    ['/csi.v1.Controller/DeleteVolume', { field: 1, kind: 'handle' }],
    ['/csi.v1.Controller/ControllerModifyVolume', { field: 1, kind: 'handle' }],
  ]);

/** Whether a method may have only one call at a time per volume. */
export function isSingleFlight(path: string): boolean {
  return KEY_FIELD.has(path);
}

/** The volume that an encoded request of a fenced method names; undefined if it names none. Reads
 * one field and skips the rest: a whole decode would cost more than all else the gateway does.
 * @throws Error if the bytes are no protobuf message */
export function readVolumeKey(path: string, request: Uint8Array): VolumeKey | undefined {
  const key = KEY_FIELD.get(path);
  const value = key === undefined ? undefined : lastField(request, key.field);
  return key === undefined || value === undefined || value.length === 0
    ? undefined
    : { kind: key.kind, value: asText(value) };
}

/** The handle in an encoded CreateVolumeResponse (volume = 1, volume_id = 2); undefined if there is
 * none.
 * @throws Error if the bytes are no protobuf message */
export function readCreatedHandle(response: Uint8Array): string | undefined {
  const volume = lastField(response, 1);
  const handle = volume === undefined ? undefined : lastField(volume, 2);
  return handle === undefined || handle.length === 0 ? undefined : asText(handle);
}

/** The last one counts, as for any protobuf parser. */
function lastField(message: Uint8Array, wanted: number): Uint8Array | undefined {
  const reader = new BinaryReader(message);
  let found: Uint8Array | undefined;
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === wanted && wireType === WireType.LengthDelimited) found = reader.bytes();
    else reader.skip(wireType, field);
  }
  return found;
}

// One character per byte: two different byte strings never become the same key, well-formed UTF-8
// or not.
function asText(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
}
