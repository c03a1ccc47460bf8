import {
  getOption,
  type DescEnum,
  type DescField,
  type DescMessage,
  type MessageShape,
} from '@bufbuild/protobuf';
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect';
import { csi_secret } from './generated/csi_pb.ts';

/** What stands in for a secret, as in upstream's logs. */
export const STRIPPED = '***stripped***';

/** JSON-like picture of a message for a log line. Keys are the proto's own names, sorted; only
 * fields that are set; fields that the descriptor marks csi_secret are stripped; fields of the wire
 * that the descriptor does not know are never shown. The message itself is left as it is.
 * @see spec 06 Q-59 */
export function redact<D extends DescMessage>(
  schema: D,
  message: MessageShape<D>,
): Readonly<Record<string, unknown>> {
  return picture(reflect(schema, message));
}

function picture(message: ReflectMessage): Record<string, unknown> {
  const entries = message.fields
    .filter((field) => message.isSet(field))
    .map((field) => [field.name, fieldPicture(message, field)] as const);
  return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}

function fieldPicture(message: ReflectMessage, field: DescField): unknown {
  if (getOption(field, csi_secret)) return STRIPPED;
  switch (field.fieldKind) {
    case 'message':
      return picture(message.get(field));
    case 'enum':
      return enumPicture(field.enum, message.get(field));
    case 'scalar':
      return scalarPicture(message.get(field));
    case 'list':
      return [...message.get(field)].map((item) => itemPicture(field, item));
    case 'map':
      return Object.fromEntries(
        [...message.get(field)]
          .map(([key, item]) => [String(key), itemPicture(field, item)] as const)
          .sort(([a], [b]) => (a < b ? -1 : 1)),
      );
  }
}

function itemPicture(field: DescField & { fieldKind: 'list' | 'map' }, item: unknown): unknown {
  const kind = field.fieldKind === 'list' ? field.listKind : field.mapKind;
  if (kind === 'message') return picture(item as ReflectMessage);
  if (kind === 'enum' && field.enum !== undefined) return enumPicture(field.enum, item as number);
  return scalarPicture(item);
}

function enumPicture(desc: DescEnum, value: number): string | number {
  return desc.value[value]?.name ?? value;
}

function scalarPicture(value: unknown): unknown {
  if (typeof value === 'bigint')
    return Number.isSafeInteger(Number(value)) ? Number(value) : value.toString();
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64');
  return value;
}

/** Values of the fields of a message that the descriptor marks csi_secret, nested ones included. */
export function secretValues<D extends DescMessage>(
  schema: D,
  message: MessageShape<D>,
): readonly string[] {
  return valuesIn(reflect(schema, message));
}

function valuesIn(message: ReflectMessage): readonly string[] {
  return message.fields
    .filter((field) => message.isSet(field))
    .flatMap((field) => {
      if (getOption(field, csi_secret)) return leaves(message, field);
      if (field.fieldKind === 'message') return valuesIn(message.get(field));
      if (field.fieldKind === 'list' && field.listKind === 'message')
        return [...message.get(field)].flatMap((item) => valuesIn(item as ReflectMessage));
      if (field.fieldKind === 'map' && field.mapKind === 'message')
        return [...message.get(field)].flatMap(([, item]) => valuesIn(item as ReflectMessage));
      return [];
    });
}

function leaves(message: ReflectMessage, field: DescField): readonly string[] {
  if (field.fieldKind === 'map') return [...message.get(field)].map(([, value]) => String(value));
  if (field.fieldKind === 'list') return [...message.get(field)].map(String);
  return field.fieldKind === 'scalar' ? [String(scalarPicture(message.get(field)))] : [];
}

/** A driver's words without the secrets of the request that they answer; some drivers quote what
 * they were given. Values shorter than four characters stay: striking them out would mangle the
 * text and tell where they were. */
export function redactText(text: string, secrets: Iterable<string>): string {
  return [...secrets]
    .filter((secret) => secret.length >= 4)
    .sort((a, b) => b.length - a.length)
    .reduce((rest, secret) => rest.replaceAll(secret, STRIPPED), text);
}
