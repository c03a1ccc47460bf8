import { BinaryReader, type WireType } from '@bufbuild/protobuf/wire';

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
