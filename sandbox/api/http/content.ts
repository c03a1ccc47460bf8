import type { IncomingMessage } from 'node:http';
import { parse } from 'yaml';
import { messageOf } from '#src/runtime/error-message.ts';
import { badRequest, refused } from '../api-error.ts';
import type { Json } from '../json-value.ts';
import type { PatchType } from '../patch/patch.ts';
import { readProtobuf } from './protobuf.ts';

const BODY_MAX_BYTES = 3 * 1024 * 1024;

/** The form of an answer, by the Accept header. */
export type Form = 'object' | 'table' | 'metadata';

const FORMS: Readonly<Record<string, Form>> = {
  Table: 'table',
  PartialObjectMetadata: 'metadata',
  PartialObjectMetadataList: 'metadata',
};

/** The first form in the Accept header that this server supports. */
export function acceptedForm(request: IncomingMessage): Form {
  for (const clause of (request.headers.accept ?? '').split(',')) {
    const [type, ...parameters] = clause.split(';').map((part) => part.trim());
    if (type !== 'application/json') continue;
    const as = parameters.find((parameter) => parameter.startsWith('as='))?.slice(3);
    if (as === undefined) return 'object';
    if (Object.hasOwn(FORMS, as)) return FORMS[as] ?? 'object';
  }
  return 'object';
}

/** The body of a request, sent as JSON or YAML; undefined if it is empty.
 * @throws ApiError 400 if it can't be parsed, 413 if it is too large, 415 for protobuf of most
 *   kinds */
export async function readBody(request: IncomingMessage): Promise<Json | undefined> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    if (sizeBytes > BODY_MAX_BYTES) {
      const why = `Request entity too large: limit is ${BODY_MAX_BYTES}`;
      throw refused(413, 'RequestEntityTooLarge', why);
    }
    chunks.push(chunk);
  }
  if (sizeBytes === 0) return undefined;
  const type = contentType(request);
  const bytes = Buffer.concat(chunks);
  if (type === 'application/vnd.kubernetes.protobuf') {
    const object = readProtobuf(bytes);
    if (object === undefined) throw unsupported();
    return object;
  }
  const text = bytes.toString();
  try {
    return type.endsWith('yaml') ? (parse(text) as Json) : (JSON.parse(text) as Json);
  } catch (error) {
    throw badRequest(`couldn't get version/kind; json parse error: ${messageOf(error)}`);
  }
}

function contentType(request: IncomingMessage): string {
  return (request.headers['content-type'] ?? '').split(';')[0]?.trim().toLowerCase() ?? '';
}

const PATCH_TYPES: Readonly<Record<string, PatchType>> = {
  'application/json-patch+json': 'json',
  'application/merge-patch+json': 'merge',
  'application/strategic-merge-patch+json': 'strategic',
};

/** @throws ApiError 415 for another kind of patch */
export function patchType(request: IncomingMessage): PatchType {
  const type = PATCH_TYPES[contentType(request)];
  if (type === undefined) throw unsupported();
  return type;
}

function unsupported() {
  return refused(415, 'UnsupportedMediaType', 'the body of the request was in an unknown format');
}
