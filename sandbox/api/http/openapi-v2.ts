import { objectAt, plainText, type JsonObject } from '../json-value.ts';
import type { Registry } from '../registry.ts';
import type { Resource } from '../resource.ts';
import { definitionsOf, itemPath, PATCH_PARAMETERS, PATCH_TYPES } from './openapi-schema.ts';
import { field, message } from './protobuf-writer.ts';

/** The protobuf form of OpenAPI v2, the only one that kubectl up to 1.26 takes. The name of the
 * media type changed once. */
const PROTOBUF = /application\/com\.github\.proto-openapi\.spec\.v2[@.]v1\.0\+protobuf/;

/** Serves OpenAPI v2 for older clients: kubectl 1.20 needs it for validation and dry runs. */
export class OpenApiV2 {
  readonly #registry: Registry;
  #revision = -1;
  #json: Buffer = Buffer.alloc(0);
  #protobuf: Buffer = Buffer.alloc(0);

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  /** The document in the form that the client accepts, with its media type. */
  document(accept: string): { readonly type: string; readonly body: Buffer } {
    if (this.#revision !== this.#registry.revision) {
      this.#revision = this.#registry.revision;
      const resources = [...this.#registry.all()];
      const document = documentOf(resources);
      this.#json = Buffer.from(JSON.stringify(document));
      this.#protobuf = encodeDocument(document);
    }
    if (!PROTOBUF.test(accept)) return { type: 'application/json', body: this.#json };
    // Always the newer name: the @ of the older one is not allowed in a media type, and even the
    // client that asks for it refuses it.
    return {
      type: 'application/com.github.proto-openapi.spec.v2.v1.0+protobuf',
      body: this.#protobuf,
    };
  }
}

interface Document extends JsonObject {
  readonly paths: JsonObject;
  readonly definitions: JsonObject;
}

function documentOf(resources: readonly Resource[]): Document {
  return {
    swagger: '2.0',
    info: { title: 'Kubernetes', version: 'v1.36.0' },
    paths: Object.fromEntries(
      resources.map((resource) => [itemPath(resource), { patch: patchOperation(resource) }]),
    ),
    definitions: definitionsOf(resources, '#/definitions/'),
  };
}

function patchOperation(resource: Resource): JsonObject {
  return {
    operationId: `patch${resource.kind}`,
    consumes: [...PATCH_TYPES],
    parameters: PATCH_PARAMETERS.map((name) => ({
      name,
      in: 'query',
      type: name === 'force' ? 'boolean' : 'string',
      uniqueItems: true,
    })),
    responses: { '200': { description: 'OK' } },
    'x-kubernetes-group-version-kind': {
      group: resource.group,
      kind: resource.kind,
      version: resource.version,
    },
  };
}

/** The protobuf form; field numbers as in the openapi.v2 messages that a real server sends. */
function encodeDocument(document: Document): Buffer {
  return message(
    field(1, '2.0'),
    field(2, message(field(1, 'Kubernetes'), field(2, 'v1.36.0'))),
    field(
      8,
      message(
        ...Object.entries(document.paths).map(([path, item]) =>
          field(2, named(path, encodePathItem(item))),
        ),
      ),
    ),
    field(
      9,
      message(
        ...Object.entries(document.definitions).map(([name, schema]) =>
          field(1, named(name, encodeSchema(schema))),
        ),
      ),
    ),
  );
}

function named(name: string, value: Uint8Array): Buffer {
  return message(field(1, name), field(2, value));
}

function encodePathItem(item: JsonObject[string]): Buffer {
  const patch = objectAt(item, 'patch');
  const parameters = PATCH_PARAMETERS.map((name) =>
    field(8, field(1, field(2, field(3, message(field(2, 'query'), field(4, name)))))),
  );
  return field(
    8,
    message(
      field(5, plainText(patch['operationId'])),
      ...PATCH_TYPES.map((type) => field(7, type)),
      ...parameters,
      extension(13, 'x-kubernetes-group-version-kind', patch['x-kubernetes-group-version-kind']),
    ),
  );
}

/** A vendor extension. Its value is YAML; JSON is valid YAML. */
function extension(number: number, name: string, value: JsonObject[string]): Buffer {
  return field(number, named(name, field(2, JSON.stringify(value))));
}

function encodeSchema(schema: JsonObject[string]): Buffer {
  const parts = Object.entries(objectAt(schema)).map(([name, value]) =>
    name.startsWith('x-') ? extension(31, name, value) : SCHEMA_ENCODERS[name]?.(value),
  );
  return message(...parts.filter((part) => part !== undefined));
}

/** The members of a schema that have a field in the protobuf form. */
const SCHEMA_ENCODERS: Readonly<Record<string, (value: JsonObject[string]) => Buffer>> = {
  $ref: (value) => field(1, plainText(value)),
  format: (value) => field(2, plainText(value)),
  required: (names) =>
    message(...(Array.isArray(names) ? names : []).map((name) => field(19, plainText(name)))),
  additionalProperties: (value) => field(21, field(1, encodeSchema(value))),
  type: (value) => field(22, field(1, plainText(value))),
  items: (value) => field(23, field(1, encodeSchema(value))),
  properties: (value) => {
    const properties = Object.entries(objectAt(value)).map(([name, each]) =>
      field(1, named(name, encodeSchema(each))),
    );
    return field(25, message(...properties));
  },
};
