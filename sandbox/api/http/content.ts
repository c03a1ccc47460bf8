import type { IncomingMessage } from 'node:http';
import { parse } from 'yaml';
import { messageOf } from '#src/runtime/error-message.ts';
import { badRequest, refused, type ApiError } from '../api-error.ts';
import type { Json } from '../json-value.ts';
import type { PatchType } from '../patching.ts';
import { readWrapped } from '../schema/protobuf-reader.ts';
import type { Struct } from '../schema/struct.ts';

const BODY_MAX_BYTES = 3 * 1024 * 1024;

/** The form of an answer, by the Accept header. */
export type Form = 'object' | 'table' | 'metadata' | 'metadata-list';

/** The first form in the Accept header that this server supports.
 * @throws ApiError 406 where there is none (a client that takes only protobuf) */
export function acceptedForm(request: IncomingMessage): Form {
  const accept = request.headers.accept;
  if (accept === undefined || accept === '') return 'object';
  for (const clause of accept.split(',')) {
    const [type = '', ...parameters] = clause.split(';').map((part) => part.trim());
    if (!/^(application\/json|application\/\*|\*\/\*|application\/yaml)$/.test(type)) continue;
    const as = parameters.find((parameter) => parameter.startsWith('as='))?.slice(3);
    if (as === undefined) return 'object';
    if (as === 'Table') return 'table';
    if (as === 'PartialObjectMetadata') return 'metadata';
    if (as === 'PartialObjectMetadataList') return 'metadata-list';
  }
  throw refused(
    406,
    'NotAcceptable',
    'only the following media types are accepted: application/json',
  );
}

/** The body of a request, sent as JSON, YAML or protobuf; undefined where it is empty.
 * @param struct  the expected type, needed for protobuf
 * @throws ApiError 400 where it cannot be parsed, 413 where it is too large, 415 for protobuf of a
 *   struct without field numbers */
export async function readBody(
  request: IncomingMessage,
  struct: Struct,
): Promise<{ readonly value: Json | undefined; readonly empty: boolean }> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    if (sizeBytes > BODY_MAX_BYTES) {
      throw refused(
        413,
        'RequestEntityTooLarge',
        `Request entity too large: limit is ${BODY_MAX_BYTES}`,
      );
    }
    chunks.push(chunk);
  }
  if (sizeBytes === 0) return { value: undefined, empty: true };
  if (contentType(request) === PROTOBUF)
    return { value: parseProtobuf(struct, Buffer.concat(chunks)), empty: false };
  const text = (
    chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks)
  ).toString();
  return {
    value:
      /yaml/.test(contentType(request)) && !/^\s*\{/.test(text) ? parseYaml(text) : parseJson(text),
    empty: false,
  };
}

function parseJson(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch (error) {
    throw badRequest(`couldn't get version/kind; json parse error: ${messageOf(error)}`);
  }
}

/** Typed clients (`kubectl create namespace`) send protobuf even if they accept JSON. */
function parseProtobuf(struct: Struct, body: Buffer): Json {
  if (![...struct.fields.values()].some((field) => field.number > 0)) throw unknownFormat();
  const read = readWrapped(struct, body);
  if (read === undefined) throw badRequest('the body is no protobuf object of Kubernetes');
  return read;
}

function parseYaml(text: string): Json {
  try {
    return parse(text) as Json;
  } catch (error) {
    throw badRequest(`error converting YAML to JSON: ${messageOf(error)}`);
  }
}

function contentType(request: IncomingMessage): string {
  return (request.headers['content-type'] ?? '').split(';')[0]?.trim().toLowerCase() ?? '';
}

const PROTOBUF = 'application/vnd.kubernetes.protobuf';
const READABLE = new Set(['', 'application/json', 'application/yaml', 'text/yaml', PROTOBUF]);

/** @throws ApiError 415 for a body that is neither JSON, YAML nor protobuf */
export function checkContentType(request: IncomingMessage): void {
  const type = contentType(request);
  if (!READABLE.has(type)) throw unknownFormat();
}

function unknownFormat(): ApiError {
  return refused(
    415,
    'UnsupportedMediaType',
    'the body of the request was in an unknown format - ' +
      'accepted media types include: application/json, application/yaml',
  );
}

const PATCH_TYPES: Readonly<Record<string, PatchType>> = {
  'application/json-patch+json': 'json',
  'application/merge-patch+json': 'merge',
  'application/strategic-merge-patch+json': 'strategic',
  'application/apply-patch+yaml': 'apply',
};

/** @throws ApiError 415 for another kind of patch */
export function patchType(request: IncomingMessage): PatchType {
  const type = PATCH_TYPES[contentType(request)];
  if (type === undefined) throw refused(415, 'UnsupportedMediaType', '415: Unsupported Media Type');
  return type;
}
