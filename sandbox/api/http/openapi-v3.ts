import { createHash } from 'node:crypto';
import type { JsonObject } from '../json-value.ts';
import type { Registry } from '../registry.ts';
import { apiVersionOf, type Resource } from '../resource.ts';
import {
  definitionName,
  definitionsOf,
  itemPath,
  PATCH_PARAMETERS,
  PATCH_TYPES,
} from './openapi-schema.ts';

/** Serves OpenAPI v3, one document per group and version. kubectl 1.27 and later reads it before
 * `apply`, `edit` and `explain`. */
export class OpenApiV3 {
  readonly #registry: Registry;
  readonly #documents = new Map<string, JsonObject>();
  #revision = -1;

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  /** `/openapi/v3`: the paths of the documents. Clients cache a document by its hash. */
  index(): JsonObject {
    this.#refresh();
    const paths = [...this.#documents].map(([path, document]) => {
      const hash = createHash('sha256').update(JSON.stringify(document)).digest('hex').slice(0, 32);
      return [path, { serverRelativeURL: `/openapi/v3/${path}?hash=${hash}` }];
    });
    return { paths: Object.fromEntries(paths) as JsonObject };
  }

  /** The document of `api/v1`, `apis/storage.k8s.io/v1` …; undefined for an unknown path. */
  document(path: string): JsonObject | undefined {
    this.#refresh();
    return this.#documents.get(path);
  }

  #refresh(): void {
    if (this.#revision === this.#registry.revision) return;
    this.#revision = this.#registry.revision;
    this.#documents.clear();
    const byPath = new Map<string, Resource[]>();
    for (const resource of this.#registry.all()) {
      const path =
        resource.group === '' ? `api/${resource.version}` : `apis/${apiVersionOf(resource)}`;
      byPath.set(path, [...(byPath.get(path) ?? []), resource]);
    }
    for (const [path, resources] of byPath) this.#documents.set(path, documentOf(resources));
  }
}

function documentOf(resources: readonly Resource[]): JsonObject {
  return {
    openapi: '3.0.0',
    info: { title: 'Kubernetes', version: 'v1.36.0' },
    paths: Object.fromEntries(
      resources.map((resource) => [itemPath(resource), { patch: patchOperation(resource) }]),
    ),
    components: { schemas: definitionsOf(resources, '#/components/schemas/') },
  };
}

function patchOperation(resource: Resource): JsonObject {
  const schema = { $ref: `#/components/schemas/${definitionName(resource.struct)}` };
  const types = PATCH_TYPES.filter(
    (type) => resource.struct.name !== 'CustomObject' || !type.includes('strategic'),
  );
  return {
    operationId: `patch${resource.kind}`,
    parameters: PATCH_PARAMETERS.map((name) => ({
      name,
      in: 'query',
      schema: { type: name === 'force' ? 'boolean' : 'string', uniqueItems: true },
    })),
    requestBody: {
      content: Object.fromEntries(types.map((type) => [type, { schema: { type: 'object' } }])),
      required: true,
    },
    responses: { '200': { description: 'OK', content: { 'application/json': { schema } } } },
    'x-kubernetes-action': 'patch',
    'x-kubernetes-group-version-kind': {
      group: resource.group,
      kind: resource.kind,
      version: resource.version,
    },
  };
}
