import { isObject, setMember, type Json, type JsonObject } from '../json-value.ts';
import { canonicalQuantity, QUANTITY_COMPLAINT } from '../quantity.ts';
import { canonicalMicroTime, canonicalTime } from '../time.ts';
import type { Field, FieldType, ScalarKind, Struct } from './struct.ts';

/** A value that does not fit its field. The message is the real server's, without the name of the
 * kind. */
export class DecodeError extends Error {
  override readonly name = 'DecodeError';
}

/** Where in an object a value is. */
interface Position {
  readonly path: string;
  /** The struct that contains the field being read: errors name it. */
  readonly holder: string;
  /** Receives the paths of members that no field describes, for `fieldValidation`. */
  readonly unknown: string[];
}

/** An object in the form the server stores: fields in the order of their struct, without unknown
 * and empty members, with canonical quantities and times and sorted map keys. Equal objects
 * therefore have equal JSON text.
 * @param unknown  receives the path of each member that was dropped
 * @throws         DecodeError where a value has the wrong type */
export function decodeStruct(struct: Struct, raw: JsonObject, unknown: string[]): JsonObject {
  return readStruct(struct, raw, { path: '', holder: struct.name, unknown });
}

function readStruct(struct: Struct, raw: JsonObject, { path, unknown }: Position): JsonObject {
  const result: JsonObject = {};
  let known = 0;
  for (const field of struct.fields.values()) {
    const value = raw[field.name];
    if (value !== undefined) known += 1;
    const position = { path: join(path, field.name), holder: struct.name, unknown };
    const read = readField(field, value, position);
    if (read !== undefined) result[field.name] = read;
  }
  const names = Object.keys(raw);
  if (names.length === known) return result;
  for (const name of names.sort()) {
    if (struct.fields.has(name) || raw[name] === undefined) continue;
    if (struct.open) setMember(result, name, raw[name]);
    else unknown.push(join(path, name));
  }
  return result;
}

/** The value to store for a field; undefined where the field is left out. */
function readField(field: Field, value: Json | undefined, position: Position): Json | undefined {
  if (value === undefined || value === null) return absentValue(field);
  const read = readValue(field.type, value, position);
  if (read === undefined || (!field.keepEmpty && isEmpty(read, field.type)))
    return absentValue(field);
  return read;
}

function absentValue(field: Field): Json | undefined {
  if (field.absent === 'null') return null;
  if (field.absent === 'empty' && field.type.kind === 'struct')
    return decodeStruct(field.type.struct, {}, []);
  return undefined;
}

function isEmpty(value: Json, type: FieldType): boolean {
  if (type.kind === 'struct' || type.kind === 'any') return false;
  if (Array.isArray(value)) return value.length === 0;
  if (isObject(value)) return Object.keys(value).length === 0;
  return value === '' || value === 0 || value === false;
}

function readValue(type: FieldType, value: Json, position: Position): Json | undefined {
  const { path } = position;
  if (type.kind === 'struct') {
    if (!isObject(value)) throw mismatch(value, position, type.struct.name);
    return readStruct(type.struct, value, position);
  }
  if (type.kind === 'list') {
    if (!Array.isArray(value)) throw mismatch(value, position, goType(type));
    return value.map((item, i) =>
      readItem(type.item, item, { ...position, path: `${path}[${i}]` }),
    );
  }
  if (type.kind === 'map') {
    if (!isObject(value)) throw mismatch(value, position, goType(type));
    const result: JsonObject = {};
    for (const key of Object.keys(value).sort()) {
      const inside = { ...position, path: `${path}.${key}` };
      setMember(result, key, readItem(type.value, value[key] ?? null, inside));
    }
    return result;
  }
  return SCALARS[type.kind].read(value, position);
}

/** Reads an item of a list or map, where null stands for the item's zero value. */
function readItem(type: FieldType, value: Json, position: Position): Json {
  if (value !== null) return readValue(type, value, position) ?? null;
  if (type.kind === 'struct') return readStruct(type.struct, {}, position);
  if (type.kind === 'list' || type.kind === 'map') return null;
  return SCALARS[type.kind].zero;
}

interface Scalar {
  /** The type's name in error messages. */
  readonly goType: string;
  readonly zero: Json;
  /** The value in its stored form; undefined where the field is left out.
   * @throws DecodeError */
  readonly read: (value: Json, position: Position) => Json | undefined;
}

const SCALARS: Readonly<Record<ScalarKind, Scalar>> = {
  string: plainScalar('string', '', (value) => typeof value === 'string'),
  bool: plainScalar('bool', false, (value) => typeof value === 'boolean'),
  int: plainScalar('int32', 0, (value) => Number.isInteger(value)),
  number: plainScalar('float64', 0, (value) => typeof value === 'number'),
  any: plainScalar('interface {}', null, () => true),
  bytes: { goType: '[]uint8', zero: '', read: readBytes },
  quantity: { goType: 'quantity', zero: '0', read: readQuantity },
  time: { goType: 'time', zero: null, read: readTime },
  micro: { goType: 'micro', zero: null, read: readMicroTime },
};

/** A scalar that is stored as it comes. */
function plainScalar(name: string, zero: Json, fits: (value: Json) => boolean): Scalar {
  return {
    goType: name,
    zero,
    read(value, position) {
      if (!fits(value)) throw mismatch(value, position, name);
      return value;
    },
  };
}

function readBytes(value: Json, position: Position): string {
  if (typeof value !== 'string') throw mismatch(value, position, '[]uint8');
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
  const isText = typeof value === 'string' || typeof value === 'number';
  const canonical = isText ? canonicalQuantity(String(value)) : undefined;
  if (canonical === undefined) throw new DecodeError(QUANTITY_COMPLAINT);
  return canonical;
}

function readTime(value: Json, position: Position): string | undefined {
  if (typeof value !== 'string') throw mismatch(value, position, 'v1.Time');
  if (value === '') return undefined;
  const canonical = canonicalTime(value);
  if (canonical !== undefined) return canonical;
  throw cannotParse(value, { layout: '2006-01-02T15:04:05Z07:00', rest: value, as: '2006' });
}

function readMicroTime(value: Json, position: Position): string | undefined {
  if (typeof value !== 'string') throw mismatch(value, position, 'v1.MicroTime');
  if (value === '') return undefined;
  const canonical = canonicalMicroTime(value);
  if (canonical !== undefined) return canonical;
  const layout = '2006-01-02T15:04:05.000000Z07:00';
  const isWholeSeconds = canonicalTime(value) !== undefined;
  throw cannotParse(
    value,
    isWholeSeconds
      ? { layout, rest: value.slice(19), as: '.000000' }
      : { layout, rest: value, as: '2006' },
  );
}

/** The message of Go's time.ParseError. */
function cannotParse(
  value: string,
  o: { readonly layout: string; readonly rest: string; readonly as: string },
): DecodeError {
  const [text, layout, rest, as] = [value, o.layout, o.rest, o.as].map((each) =>
    JSON.stringify(each),
  );
  return new DecodeError(`parsing time ${text} as ${layout}: cannot parse ${rest} as ${as}`);
}

function mismatch(value: Json, { holder, path }: Position, wanted: string): DecodeError {
  return new DecodeError(
    `json: cannot unmarshal ${jsonType(value)} into Go struct field ${holder}.${path} ` +
      `of type ${wanted}`,
  );
}

function jsonType(value: Json): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  return typeof value === 'boolean' ? 'bool' : typeof value;
}

function goType(type: FieldType): string {
  if (type.kind === 'struct') return type.struct.name;
  if (type.kind === 'list') return `[]${goType(type.item)}`;
  if (type.kind === 'map') return `map[string]${goType(type.value)}`;
  return SCALARS[type.kind].goType;
}

function join(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`;
}
