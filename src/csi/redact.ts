import {
  type DescEnum,
  type DescField,
  type DescMessage,
  getOption,
  type MessageShape,
} from '@bufbuild/protobuf';
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect';
import { STRIPPED } from '../runtime/loggable.ts';
import { csi_secret } from './generated/csi_pb.ts';

/** Converts a message to a JSON-like object for a log line. Keys are csi.proto's field names,
 * sorted, without unset fields. Replaces fields marked csi_secret, and omits fields that csi.proto
 * does not have. Does not change the message. */
export function redact<D extends DescMessage>(
  schema: D,
  message: MessageShape<D>,
): Readonly<Record<string, unknown>> {
  return toObject(reflect(schema, message));
}

function toObject(message: ReflectMessage): Record<string, unknown> {
  const entries = message.fields
    .filter((field) => message.isSet(field))
    .map((field) => [field.name, fieldToValue(message, field)] as const);
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}

function fieldToValue(message: ReflectMessage, field: DescField): unknown {
  if (getOption(field, csi_secret)) return STRIPPED;
  switch (field.fieldKind) {
    case 'message':
      return toObject(message.get(field));
    case 'enum':
      return enumToValue(field.enum, message.get(field));
    case 'scalar':
      return scalarToValue(message.get(field));
    case 'list':
      return [...message.get(field)].map((item) => itemToValue(field, item));
    case 'map':
      return Object.fromEntries(
        [...message.get(field)]
          .map(([key, item]) => [String(key), itemToValue(field, item)] as const)
          .sort(([a], [b]) => (a < b ? -1 : 1)),
      );
  }
}

function itemToValue(field: DescField & { fieldKind: 'list' | 'map' }, item: unknown): unknown {
  const kind = field.fieldKind === 'list' ? field.listKind : field.mapKind;
  if (kind === 'message') return toObject(item as ReflectMessage);
  if (kind === 'enum' && field.enum !== undefined) return enumToValue(field.enum, item as number);
  return scalarToValue(item);
}

function enumToValue(desc: DescEnum, value: number): string | number {
  return desc.value[value]?.name ?? value;
}

function scalarToValue(value: unknown): unknown {
  if (typeof value === 'bigint')
    return Number.isSafeInteger(Number(value)) ? Number(value) : value.toString();
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64');
  return value;
}

/** Collects the values of all fields marked csi_secret in a request. In csi.proto such a field is a
 * map at the top of the request. */
export function collectSecretValues<D extends DescMessage>(
  schema: D,
  message: MessageShape<D>,
): readonly string[] {
  const request = reflect(schema, message);
  return request.fields
    .filter((field) => field.fieldKind === 'map')
    .filter((field) => getOption(field, csi_secret))
    .flatMap((field) => [...request.get(field)].map(([, value]) => String(value)));
}
