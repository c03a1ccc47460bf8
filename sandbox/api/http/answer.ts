import type { ServerResponse } from 'node:http';
import type { ApiError } from '../api-error.ts';
import type { JsonObject } from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import type { ListPage } from '../list-query.ts';
import { apiVersionOf, type Resource } from '../resource.ts';
import type { Stored } from '../store.ts';
import type { Form } from './content.ts';
import { partialMetadata, tableOf, type IncludeObject } from './table.ts';

/** The form in which a caller wants objects. */
export interface Presentation {
  readonly form: Form;
  readonly includeObject: IncludeObject;
  readonly nowMs: number;
}

/** Sends bytes that are JSON already. */
export function sendJson(
  response: ServerResponse,
  code: number,
  body: Buffer,
  headers: Readonly<Record<string, string | number>> = {},
): void {
  response.writeHead(code, {
    'content-type': 'application/json',
    'content-length': body.length,
    ...headers,
  });
  response.end(body);
}

export function sendObject(response: ServerResponse, code: number, body: JsonObject): void {
  sendJson(response, code, json(body));
}

/** Sends a refusal as a Status object. */
export function sendError(response: ServerResponse, error: ApiError): void {
  const { code, details } = error.failure;
  const seconds = details?.['retryAfterSeconds'];
  const headers: Record<string, number> =
    typeof seconds === 'number' && (code === 429 || code === 503) ? { 'retry-after': seconds } : {};
  sendJson(response, code, json(error.status), headers);
}

/** One object in the requested form. */
export function objectBytes(resource: Resource, stored: Stored, how: Presentation): Buffer {
  if (how.form === 'table') return json(tableOf(resource, [stored], how));
  if (how.form === 'metadata') return json(partialMetadata(stored.object));
  return stored.bytes;
}

/** A list in the requested form. Plain lists reuse the stored bytes of their items. */
export function listBytes(resource: Resource, page: ListPage, how: Presentation): Buffer {
  const { items, revision, continueToken, remainingItemCount } = page;
  const metadata: JsonObject = {
    resourceVersion: String(revision),
    continue: continueToken,
    remainingItemCount,
  };
  if (how.form === 'table')
    return json(tableOf(resource, items, { ...how, listMetadata: metadata }));
  if (how.form === 'metadata')
    return json({
      kind: 'PartialObjectMetadataList',
      apiVersion: 'meta.k8s.io/v1',
      metadata,
      items: items.map((item) => partialMetadata(item.object)),
    });
  const head = { kind: `${resource.kind}List`, apiVersion: apiVersionOf(resource), metadata };
  const parts: Buffer[] = [Buffer.from(`${JSON.stringify(head).slice(0, -1)},"items":[`)];
  for (const [i, item] of items.entries())
    parts.push(i === 0 ? OPEN : COMMA_OPEN, item.bytes.subarray(headLength(item.object)));
  parts.push(Buffer.from(']}'));
  return Buffer.concat(parts);
}

/** In lists, the real server leaves out kind and version of built-in objects. */
function headLength({ kind, apiVersion }: KubeObject): number {
  return Buffer.byteLength(JSON.stringify({ kind, apiVersion }));
}

const OPEN = Buffer.from('{');
const COMMA_OPEN = Buffer.from(',{');

/** A value as JSON bytes. */
export function json(value: JsonObject): Buffer {
  return Buffer.from(JSON.stringify(value));
}
