import { isTrue } from '../list-query.ts';

/** What a request asks for, read from method, path and query; the names are the ones that
 * Kubernetes' RBAC uses. */
export interface RequestInfo {
  readonly verb: Verb;
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly namespace: string | undefined;
  /** undefined for collections. */
  readonly name: string | undefined;
  readonly subresource: string | undefined;
}

export type Verb =
  'get' | 'list' | 'watch' | 'create' | 'update' | 'patch' | 'delete' | 'deletecollection';

const BY_METHOD: Readonly<Record<string, Verb>> = {
  GET: 'get',
  HEAD: 'get',
  POST: 'create',
  PUT: 'update',
  PATCH: 'patch',
  DELETE: 'delete',
};

/** A request for resources, or undefined for other paths (discovery, health, OpenAPI) and methods.
 */
export function parseRequest(
  method: string,
  path: string,
  query: URLSearchParams,
): RequestInfo | undefined {
  const parts = path
    .split('/')
    .filter((part) => part !== '')
    .map(decode);
  const isCore = parts[0] === 'api';
  if (!isCore && parts[0] !== 'apis') return undefined;
  const [group, version, rest] = isCore
    ? ['', parts[1], parts.slice(2)]
    : [parts[1], parts[2], parts.slice(3)];
  let verb = BY_METHOD[method];
  if (group === undefined || version === undefined || verb === undefined) return undefined;
  // `namespaces/x` and `namespaces/x/status` are the namespace itself, `namespaces/x/pods` what is
  // in it.
  const inNamespace =
    rest[0] === 'namespaces' && rest.length > 2 && !NAMESPACE_PARTS.has(rest[2] ?? '');
  const namespace = inNamespace ? rest[1] : undefined;
  const [plural, name, subresource, ...more] = inNamespace ? rest.slice(2) : rest;
  if (plural === undefined || more.length > 0) return undefined;
  if (name === undefined) {
    if (verb === 'get') verb = isTrue(query.get('watch')) ? 'watch' : 'list';
    else if (verb === 'delete') verb = 'deletecollection';
  } else if (verb === 'get' && subresource === undefined && isTrue(query.get('watch'))) {
    verb = 'watch';
  }
  return { verb, group, version, plural, namespace, name, subresource };
}

const NAMESPACE_PARTS = new Set(['status', 'finalize']);

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
