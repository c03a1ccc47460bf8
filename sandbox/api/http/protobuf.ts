import type { JsonObject } from '../json-value.ts';

/** The first bytes of every protobuf object of Kubernetes. */
const MAGIC = 'k8s\0';

/** The JSON encoding of the values of `data`, by kind. This server reads protobuf only for these
 * kinds, which `kubectl create` sends in protobuf. */
const DATA: Readonly<Record<string, BufferEncoding>> = {
  Namespace: 'utf8',
  ServiceAccount: 'utf8',
  ConfigMap: 'utf8',
  Secret: 'base64',
};

/** An object in protobuf as JSON clients would send it; undefined for other kinds. Field numbers as
 * in Kubernetes' generated.proto files. */
export function readProtobuf(body: Buffer): JsonObject | undefined {
  if (body.toString('latin1', 0, MAGIC.length) !== MAGIC) return undefined;
  const wrapper = fieldsOf(body.subarray(MAGIC.length));
  const kind = textIn(fieldsOf(wrapper(1)[0]), 2);
  const encoding = DATA[kind];
  if (encoding === undefined) return undefined;
  const object = fieldsOf(wrapper(2)[0]);
  const metadata = fieldsOf(object(1)[0]);
  const [labels, annotations] = [11, 12].map((number) => mapOf(metadata(number), 'utf8'));
  return {
    metadata: { name: textIn(metadata, 1), labels, annotations },
    ...(kind === 'Secret' ? { type: textIn(object, 3) || undefined } : {}),
    ...(/Map|Secret/.test(kind) ? { data: mapOf(object(2), encoding) } : {}),
  };
}

/** The values of a field, as often as it occurs. */
type Fields = (number: number) => readonly Buffer[];

function textIn(fields: Fields, number: number): string {
  return fields(number)[0]?.toString() ?? '';
}

function mapOf(entries: readonly Buffer[], encoding: BufferEncoding): JsonObject {
  const pairs = entries
    .map(fieldsOf)
    .map((entry) => [textIn(entry, 1), entry(2)[0]?.toString(encoding) ?? ''] as const);
  return Object.fromEntries(pairs);
}

/** Reads the texts, bytes and messages of a message; numbers are skipped. */
function fieldsOf(message: Buffer = Buffer.alloc(0)): Fields {
  const found = new Map<number, Buffer[]>();
  let at = 0;
  const varint = (): number => {
    for (let value = 0, scale = 1; ; scale *= 128) {
      const byte = message[at++] ?? 0;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.length) {
    const key = varint();
    const length = varint();
    if (key % 8 !== 2) continue;
    const number = Math.floor(key / 8);
    found.set(number, [...(found.get(number) ?? []), message.subarray(at, at + length)]);
    at += length;
  }
  return (number) => found.get(number) ?? [];
}
