import { setMember, type Json, type JsonObject } from '../json-value.ts';
import type { Field, FieldType, Struct } from './struct.ts';

/** The first bytes of every protobuf object of Kubernetes. */
const MAGIC = Buffer.from('k8s\0');

/** An object in Kubernetes' protobuf wrapper (magic, kind and version, raw message) as JSON clients
 * would send it; undefined where the body is not such an object. Only fields with a number in their
 * table are read. */
export function readWrapped(struct: Struct, body: Buffer): JsonObject | undefined {
  if (!body.subarray(0, MAGIC.length).equals(MAGIC)) return undefined;
  try {
    const wrapper = fieldsOf(body.subarray(MAGIC.length));
    const typeMeta = fieldsOf(bytesIn(wrapper, 1));
    return {
      kind: bytesIn(typeMeta, 2).toString(),
      apiVersion: bytesIn(typeMeta, 1).toString(),
      ...readStruct(struct, bytesIn(wrapper, 2)),
    };
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

interface Part {
  readonly number: number;
  readonly value: Buffer | number;
}

function bytesIn(parts: readonly Part[], number: number): Buffer {
  const value = parts.find((part) => part.number === number)?.value;
  return Buffer.isBuffer(value) ? value : Buffer.alloc(0);
}

/** @throws RangeError where the message is cut short */
function fieldsOf(message: Buffer): Part[] {
  const parts: Part[] = [];
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = message.readUInt8(at);
      at += 1;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.length) {
    const key = varint();
    const number = Math.floor(key / 8);
    const wireType = key % 8;
    if (wireType === 0) parts.push({ number, value: varint() });
    else if (wireType === 2) {
      const length = varint();
      if (at + length > message.length) throw new RangeError('protobuf message is cut short');
      parts.push({ number, value: message.subarray(at, at + length) });
      at += length;
    } else if (wireType === 1 || wireType === 5) at += wireType === 1 ? 8 : 4;
    else throw new RangeError('protobuf wire type is not known');
  }
  return parts;
}

function readStruct(struct: Struct, message: Buffer): JsonObject {
  const byNumber = new Map<number, Field>();
  for (const field of struct.fields.values())
    if (field.number > 0) byNumber.set(field.number, field);
  const result: JsonObject = {};
  for (const { number, value } of fieldsOf(message)) {
    const field = byNumber.get(number);
    if (field === undefined) continue;
    const { type } = field;
    if (type.kind === 'list') {
      const list = result[field.name];
      result[field.name] = [...(Array.isArray(list) ? list : []), readValue(type.item, value)];
    } else if (type.kind === 'map' && Buffer.isBuffer(value)) {
      const entry = fieldsOf(value);
      const map = (result[field.name] ?? {}) as JsonObject;
      setMember(map, bytesIn(entry, 1).toString(), readValue(type.value, bytesIn(entry, 2)));
      result[field.name] = map;
    } else result[field.name] = readValue(type, value);
  }
  return result;
}

function readValue(type: FieldType, value: Buffer | number): Json {
  if (typeof value === 'number') return type.kind === 'bool' ? value !== 0 : value;
  if (type.kind === 'struct') return readStruct(type.struct, value);
  if (type.kind === 'bytes') return value.toString('base64');
  if (type.kind === 'quantity') return bytesIn(fieldsOf(value), 1).toString();
  if (type.kind === 'time' || type.kind === 'micro') return readTime(value);
  return value.toString();
}

/** Seconds since 1970; an unset time is the message without fields. */
function readTime(message: Buffer): Json {
  const seconds = fieldsOf(message).find((part) => part.number === 1)?.value;
  return typeof seconds === 'number' && seconds < 8.64e12
    ? new Date(seconds * 1000).toISOString()
    : null;
}
