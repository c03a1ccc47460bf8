import { isObject, setMember, type Json, type JsonObject } from '../json-value.ts';
import { canonicalQuantity, QUANTITY_COMPLAINT } from '../quantity.ts';
import { canonicalMicroTime, canonicalTime } from '../time.ts';
import type { Field, FieldType, Struct } from './struct.ts';

/** A value that does not fit its field; the message is the server's, without the name of the kind.
 */
export class DecodeError extends Error {
  override readonly name = 'DecodeError';
}

interface Where {
  /** Paths of members that no field describes, for `fieldValidation`. */
  readonly unknown: string[];
  /** The struct that holds the field being read: errors name it. */
  readonly holder: string;
}

/** An object in the form the server stores: fields in the order of their struct, unknown members
 * gone, empty ones gone, quantities and times canonical, map keys sorted. Equal objects therefore
 * have equal JSON text.
 * @param unknown  receives the path of each member that was dropped
 * @throws         DecodeError where a value has the wrong type */
export function decodeStruct(struct: Struct, raw: JsonObject, unknown: string[]): JsonObject {
  return readStruct(struct, raw, '', { unknown, holder: struct.name });
}

function readStruct(struct: Struct, raw: JsonObject, path: string, where: Where): JsonObject {
  const result: JsonObject = {};
  let known = 0;
  for (const field of struct.fields.values()) {
    const value = raw[field.name];
    if (value !== undefined) known += 1;
    if (value === undefined || value === null) {
      writeAbsent(result, field);
      continue;
    }
    const read = readValue(field.type, value, join(path, field.name), {
      unknown: where.unknown,
      holder: struct.name,
    });
    if (read === undefined || (!field.keepEmpty && isEmpty(read, field.type))) {
      writeAbsent(result, field);
      continue;
    }
    result[field.name] = read;
  }
  const names = Object.keys(raw);
  if (names.length > known) {
    for (const name of names.sort()) {
      if (struct.fields.has(name) || raw[name] === undefined) continue;
      if (struct.open) setMember(result, name, raw[name]);
      else where.unknown.push(join(path, name));
    }
  }
  return result;
}

function writeAbsent(result: JsonObject, field: Field): void {
  if (field.absent === 'null') result[field.name] = null;
  else if (field.absent === 'empty' && field.type.kind === 'struct') {
    result[field.name] = readStruct(field.type.struct, {}, '', { unknown: [], holder: '' });
  }
}

function isEmpty(value: Json, type: FieldType): boolean {
  if (type.kind === 'struct' || type.kind === 'any') return false;
  if (Array.isArray(value)) return value.length === 0;
  if (isObject(value)) return Object.keys(value).length === 0;
  return value === '' || value === 0 || value === false;
}

function readValue(type: FieldType, value: Json, path: string, where: Where): Json | undefined {
  switch (type.kind) {
    case 'any':
      return value;
    case 'struct':
      if (!isObject(value)) throw mismatch(value, path, where, type.struct.name);
      return readStruct(type.struct, value, path, where);
    case 'list':
      if (!Array.isArray(value)) throw mismatch(value, path, where, `[]${goType(type.item)}`);
      return value.map((item, i) => readItem(type.item, item, `${path}[${i}]`, where));
    case 'map': {
      if (!isObject(value)) throw mismatch(value, path, where, `map[string]${goType(type.value)}`);
      const result: JsonObject = {};
      for (const key of Object.keys(value).sort())
        setMember(result, key, readItem(type.value, value[key] ?? null, `${path}.${key}`, where));
      return result;
    }
    case 'string':
      if (typeof value !== 'string') throw mismatch(value, path, where, 'string');
      return value;
    case 'bool':
      if (typeof value !== 'boolean') throw mismatch(value, path, where, 'bool');
      return value;
    case 'int':
      if (typeof value !== 'number' || !Number.isInteger(value))
        throw mismatch(value, path, where, 'int32');
      return value;
    case 'number':
      if (typeof value !== 'number') throw mismatch(value, path, where, 'float64');
      return value;
    case 'bytes':
      return readBytes(value, path, where);
    case 'quantity':
      return readQuantity(value);
    case 'time':
    case 'micro':
      return readTime(type.kind, value, path, where);
  }
}

/** Items of lists and maps: a null there is the item's zero value. */
function readItem(type: FieldType, value: Json, path: string, where: Where): Json {
  if (value !== null) return readValue(type, value, path, where) ?? null;
  switch (type.kind) {
    case 'string':
    case 'bytes':
      return '';
    case 'quantity':
      return '0';
    case 'struct':
      return readStruct(type.struct, {}, path, where);
    case 'int':
    case 'number':
      return 0;
    case 'bool':
      return false;
    case 'any':
    case 'time':
    case 'micro':
    case 'list':
    case 'map':
      return null;
  }
}

function readBytes(value: Json, path: string, where: Where): string {
  if (typeof value !== 'string') throw mismatch(value, path, where, '[]uint8');
  const at = /^[A-Za-z0-9+/\r\n]*={0,2}[\r\n]*$/.test(value)
    ? -1
    : value.search(/[^A-Za-z0-9+/\r\n]/);
  const text = value.replace(/[\r\n]/g, '');
  if (at >= 0 || text.length % 4 !== 0)
    throw new DecodeError(
      `illegal base64 data at input byte ${at >= 0 ? at : text.length - (text.length % 4)}`,
    );
  return text;
}

function readQuantity(value: Json): string {
  const canonical =
    typeof value === 'string'
      ? canonicalQuantity(value)
      : typeof value === 'number'
        ? canonicalQuantity(String(value))
        : undefined;
  if (canonical === undefined) throw new DecodeError(QUANTITY_COMPLAINT);
  return canonical;
}

function readTime(
  kind: 'time' | 'micro',
  value: Json,
  path: string,
  where: Where,
): string | undefined {
  if (typeof value !== 'string')
    throw mismatch(value, path, where, kind === 'micro' ? 'v1.MicroTime' : 'v1.Time');
  if (value === '') return undefined;
  const canonical = kind === 'micro' ? canonicalMicroTime(value) : canonicalTime(value);
  if (canonical !== undefined) return canonical;
  const layout =
    kind === 'micro' ? '2006-01-02T15:04:05.000000Z07:00' : '2006-01-02T15:04:05Z07:00';
  const wholeSeconds = kind === 'micro' && canonicalTime(value) !== undefined;
  const rest = JSON.stringify(wholeSeconds ? value.slice(19) : value);
  throw new DecodeError(
    `parsing time ${JSON.stringify(value)} as ${JSON.stringify(layout)}: cannot parse ${rest} as ${wholeSeconds ? '".000000"' : '"2006"'}`,
  );
}

function mismatch(value: Json, path: string, where: Where, wanted: string): DecodeError {
  const found =
    value === null
      ? 'null'
      : Array.isArray(value)
        ? 'array'
        : typeof value === 'boolean'
          ? 'bool'
          : typeof value;
  return new DecodeError(
    `json: cannot unmarshal ${found} into Go struct field ${where.holder}.${path} of type ${wanted}`,
  );
}

function goType(type: FieldType): string {
  switch (type.kind) {
    case 'struct':
      return type.struct.name;
    case 'list':
      return `[]${goType(type.item)}`;
    case 'map':
      return `map[string]${goType(type.value)}`;
    case 'int':
      return 'int32';
    case 'number':
      return 'float64';
    case 'bytes':
      return '[]uint8';
    case 'any':
      return 'interface {}';
    case 'string':
    case 'bool':
    case 'quantity':
    case 'time':
    case 'micro':
      return type.kind;
  }
}

function join(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}
