import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

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

/** Methods that change a volume, each with what the first field of its request names the volume
 * by. */
const NAMED_BY: ReadonlyMap<string, 'name' | 'handle'> = new Map([
  ['/csi.v1.Controller/CreateVolume', 'name'],
  ['/csi.v1.Controller/DeleteVolume', 'handle'],
  ['/csi.v1.Controller/ControllerModifyVolume', 'handle'],
]);

/** The volume that an encoded request names, as `name:NAME` or `handle:HANDLE`; undefined for a
 * method that is not limited to one call per volume at a time, and for a request that names none.
 * @throws Error if the bytes are not a protobuf message */
export function readVolumeKey(path: string, request: Uint8Array): string | undefined {
  const kind = NAMED_BY.get(path);
  if (kind === undefined) return undefined;
  let value: Uint8Array = new Uint8Array(0);
  // If it occurs several times, the last one counts, as in every protobuf parser.
  eachField(request, 1, WireType.LengthDelimited, (reader) => (value = reader.bytes()));
  // One character per byte, so that different bytes give different texts even if they are not
  // valid UTF-8.
  return value.length === 0 ? undefined : `${kind}:${Buffer.from(value).toString('latin1')}`;
}
