import type { JsonObject } from '../json-value.ts';
import type { Registry } from '../registry.ts';
import { apiVersionOf, type Resource } from '../resource.ts';

/** The parameters of PATCH. Before `create`, `apply` and `edit`, kubectl reads here whether it must
 * validate objects itself, and whether the server supports dry runs. */
const PARAMETERS = ['dryRun', 'fieldValidation'].map((name) => ({ name, in: 'query' }));

/** OpenAPI v3 as far as kubectl needs it, without schemas: the index, or the document of one group
 * and version; undefined for other paths. */
export function openApiAt(path: string, registry: Registry): JsonObject | undefined {
  const [, asked] = /^\/openapi\/v3(?:\/(.+))?$/.exec(path) ?? [];
  const resources = registry.all();
  if (path === '/openapi/v3') {
    const urls = resources.map((each) => [rootOf(each), serverRelativeUrl(each)] as const);
    return { paths: Object.fromEntries(urls) };
  }
  const kinds = resources.filter((each) => rootOf(each) === asked);
  if (kinds.length === 0) return undefined;
  return {
    openapi: '3.0.0',
    info: { title: 'Kubernetes', version: 'v1.36.0' },
    paths: Object.fromEntries(
      kinds.map((each) => [`/${rootOf(each)}/${each.plural}/{name}`, { patch: patchOf(each) }]),
    ),
  };
}

function rootOf(resource: Resource): string {
  return resource.group === '' ? `api/${resource.version}` : `apis/${apiVersionOf(resource)}`;
}

function serverRelativeUrl(resource: Resource): JsonObject {
  return { serverRelativeURL: `/openapi/v3/${rootOf(resource)}` };
}

function patchOf({ group, version, kind }: Resource): JsonObject {
  return {
    parameters: PARAMETERS,
    responses: {},
    'x-kubernetes-group-version-kind': { group, version, kind },
  };
}
