import { isTrue } from '../list-query.ts';

/** What a request asks for, parsed from method, path and query. The names are those of Kubernetes'
 * RBAC. */
export interface RequestInfo {
  readonly verb: Verb;
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly namespace: string | undefined;
  /** undefined for collections. */
  readonly name: string | undefined;
  readonly subresource: string | undefined;
  readonly query: URLSearchParams;
}

type Verb = 'get' | 'list' | 'watch' | 'create' | 'update' | 'patch' | 'delete';

const BY_METHOD: Readonly<Record<string, Verb>> = {
  GET: 'get',
  POST: 'create',
  PUT: 'update',
  PATCH: 'patch',
  DELETE: 'delete',
};

/** Parses a request for resources; undefined for other paths and methods. */
export function parseRequest(
  method: string,
  path: string,
  query: URLSearchParams,
): RequestInfo | undefined {
  const place = parsePath(path);
  const verb = BY_METHOD[method];
  if (place === undefined || verb === undefined) return undefined;
  const reading = isTrue(query.get('watch')) ? 'watch' : place.name === undefined ? 'list' : 'get';
  return { ...place, verb: verb === 'get' ? reading : verb, query };
}

function parsePath(path: string): Omit<RequestInfo, 'verb' | 'query'> | undefined {
  const parts = path
    .split('/')
    .filter((part) => part !== '')
    .map((part) => decodeURIComponent(part));
  const [root, group, version, ...rest] =
    parts[0] === 'api' ? ['api', '', ...parts.slice(1)] : parts;
  if ((root !== 'api' && root !== 'apis') || group === undefined || version === undefined)
    return undefined;
  const isNamespaced = isInNamespace(rest);
  const namespace = isNamespaced ? rest[1] : undefined;
  const [plural, name, subresource, ...more] = isNamespaced ? rest.slice(2) : rest;
  if (plural === undefined || more.length > 0) return undefined;
  return { group, version, plural, namespace, name, subresource };
}

/** `namespaces/x` and `namespaces/x/status` are the namespace itself; `namespaces/x/pods` are
 * objects in it. */
function isInNamespace([first, , third]: readonly string[]): boolean {
  return first === 'namespaces' && third !== undefined && third !== 'status';
}
