import type { JsonObject } from '../json-value.ts';
import { apiVersionOf, type Resource } from '../resource.ts';
import type { FieldType, Struct } from '../schema/struct.ts';

/** A schema's name in OpenAPI documents. */
export function definitionName(struct: Struct): string {
  return `dev.sutler.sandbox.${struct.name}`;
}

/** The definitions that these resources need, by name: kubectl validates, explains and patches by
 * them.
 * @param refPrefix  `#/definitions/` (v2) or `#/components/schemas/` (v3) */
export function definitionsOf(
  resources: readonly Resource[],
  refPrefix: string,
): Record<string, JsonObject> {
  const definitions: Record<string, JsonObject> = {};
  const visit = (type: FieldType): void => {
    if (type.kind === 'list') visit(type.item);
    if (type.kind === 'map') visit(type.value);
    if (type.kind === 'struct') add(type.struct);
  };
  const add = (struct: Struct): void => {
    const name = definitionName(struct);
    if (definitions[name] !== undefined) return;
    definitions[name] = structSchema(struct, refPrefix);
    for (const field of struct.fields.values()) visit(field.type);
  };
  for (const resource of resources) {
    add(resource.struct);
    // Custom kinds share one open struct; each has a definition of its own, so that its name is
    // found.
    const name = resource.struct.open
      ? `dev.sutler.sandbox.${resource.kind}`
      : definitionName(resource.struct);
    const known = definitions[name] ?? definitions[definitionName(resource.struct)] ?? {};
    const gvk = { group: resource.group, kind: resource.kind, version: resource.version };
    definitions[name] = { ...known, 'x-kubernetes-group-version-kind': [gvk] };
    if (!resource.struct.open) {
      const properties = known['properties'] as JsonObject;
      properties['kind'] = { type: 'string' };
      properties['apiVersion'] = { type: 'string' };
    }
  }
  return definitions;
}

function structSchema(struct: Struct, refPrefix: string): JsonObject {
  // An open struct has no properties here: clients would refuse the members that it does not name.
  if (struct.open || struct.fields.size === 0)
    return { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
  const fields = [...struct.fields.values()];
  const required = fields
    .filter((field) => field.required && field.name !== 'metadata')
    .map((field) => field.name);
  return {
    type: 'object',
    properties: Object.fromEntries(
      fields.map((field) => [field.name, typeSchema(field.type, refPrefix)]),
    ),
    ...(required.length === 0 ? {} : { required }),
    ...(struct.atomic ? { 'x-kubernetes-map-type': 'atomic' } : {}),
  };
}

function typeSchema(type: FieldType, refPrefix: string): JsonObject {
  switch (type.kind) {
    case 'struct':
      return { $ref: `${refPrefix}${definitionName(type.struct)}` };
    case 'map':
      return { type: 'object', additionalProperties: typeSchema(type.value, refPrefix) };
    case 'list': {
      const strategies = [
        ...(type.retainKeys ? ['retainKeys'] : []),
        ...(type.mergeKey === undefined ? [] : ['merge']),
      ];
      return {
        type: 'array',
        items: typeSchema(type.item, refPrefix),
        'x-kubernetes-list-type': type.isSet
          ? 'set'
          : type.applyKeys === undefined
            ? 'atomic'
            : 'map',
        ...(type.applyKeys === undefined
          ? {}
          : { 'x-kubernetes-list-map-keys': [...type.applyKeys] }),
        ...(strategies.length === 0 ? {} : { 'x-kubernetes-patch-strategy': strategies.join(',') }),
        ...(type.mergeKey === undefined || type.mergeKey === ''
          ? {}
          : { 'x-kubernetes-patch-merge-key': type.mergeKey }),
      };
    }
    case 'int':
      return { type: 'integer', format: 'int64' };
    case 'number':
      return { type: 'number', format: 'double' };
    case 'bool':
      return { type: 'boolean' };
    case 'bytes':
      return { type: 'string', format: 'byte' };
    case 'time':
    case 'micro':
      return { type: 'string', format: 'date-time' };
    case 'any':
      return { type: 'object', 'x-kubernetes-preserve-unknown-fields': true };
    case 'string':
    case 'quantity':
      return { type: 'string' };
  }
}

/** The path of one object of a resource, with placeholders. */
export function itemPath(resource: Resource): string {
  const root =
    resource.group === '' ? `/api/${resource.version}` : `/apis/${apiVersionOf(resource)}`;
  return `${root}${resource.namespaced ? '/namespaces/{namespace}' : ''}/${resource.plural}/{name}`;
}

/** The query parameters of PATCH: clients look here for what the server can do. */
export const PATCH_PARAMETERS = ['dryRun', 'fieldManager', 'fieldValidation', 'force'] as const;

export const PATCH_TYPES = [
  'application/apply-patch+yaml',
  'application/json-patch+json',
  'application/merge-patch+json',
  'application/strategic-merge-patch+json',
] as const;
