import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

/* Reads the volume of a call by the field numbers of src/csi/csi.proto. Decoding the whole request
 * would take more time than everything else that the gateway does for a call. */

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

/** Methods that change a volume, and what the first field of the request is. */
const NAMED_BY: ReadonlyMap<string, 'name' | 'handle'> = new Map([
  ['/csi.v1.Controller/CreateVolume', 'name'],
  ['/csi.v1.Controller/DeleteVolume', 'handle'],
  ['/csi.v1.Controller/ControllerModifyVolume', 'handle'],
]);

/** Reads the volume that an encoded request names, as `name:NAME` or `handle:HANDLE`. undefined for
 * methods without the limit of one call per volume, and for requests that name no volume.
 * @throws Error if the bytes are not a protobuf message */
export function readVolumeKey(path: string, request: Uint8Array): string | undefined {
  const kind = NAMED_BY.get(path);
  if (kind === undefined) return undefined;
  let value: Uint8Array = new Uint8Array(0);
  // Of several occurrences the last one counts, as in every protobuf parser.
  eachField(request, 1, WireType.LengthDelimited, (reader) => (value = reader.bytes()));
  // One character per byte, so that different bytes give different texts even if they are not
  // valid UTF-8.
  return value.length === 0 ? undefined : `${kind}:${Buffer.from(value).toString('latin1')}`;
}
