import type { JsonObject } from '../json-value.ts';
import { apiVersionOf, type Resource } from '../resource.ts';
import type { FieldType, ListType, ScalarKind, Struct } from '../schema/struct.ts';

/** A schema's name in OpenAPI documents. */
export function definitionName(struct: Struct): string {
  return `dev.sutler.sandbox.${struct.name}`;
}

/** The definitions that these resources need, by name. kubectl uses them to validate, explain and
 * patch.
 * @param refPrefix  `#/definitions/` (v2) or `#/components/schemas/` (v3) */
export function definitionsOf(
  resources: readonly Resource[],
  refPrefix: string,
): Record<string, JsonObject> {
  const definitions: Record<string, JsonObject> = {};
  const addStructs = (type: FieldType): void => {
    if (type.kind === 'list') addStructs(type.item);
    if (type.kind === 'map') addStructs(type.value);
    if (type.kind === 'struct') add(type.struct);
  };
  const add = (struct: Struct): void => {
    const name = definitionName(struct);
    if (definitions[name] !== undefined) return;
    definitions[name] = structSchema(struct, refPrefix);
    for (const field of struct.fields.values()) addStructs(field.type);
  };
  for (const resource of resources) {
    add(resource.struct);
    // Custom kinds share one open struct, but clients look for a definition of each kind's name.
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
  // Clients would refuse the unnamed members of an open struct if it had properties here.
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
  if (type.kind === 'struct') return { $ref: `${refPrefix}${definitionName(type.struct)}` };
  if (type.kind === 'map')
    return { type: 'object', additionalProperties: typeSchema(type.value, refPrefix) };
  if (type.kind === 'list')
    return { type: 'array', items: typeSchema(type.item, refPrefix), ...listExtensions(type) };
  return SCALAR_SCHEMAS[type.kind];
}

const SCALAR_SCHEMAS: Readonly<Record<ScalarKind, JsonObject>> = {
  string: { type: 'string' },
  int: { type: 'integer', format: 'int64' },
  number: { type: 'number', format: 'double' },
  bool: { type: 'boolean' },
  bytes: { type: 'string', format: 'byte' },
  quantity: { type: 'string' },
  time: { type: 'string', format: 'date-time' },
  micro: { type: 'string', format: 'date-time' },
  any: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
};

/** How clients merge a list: by server-side apply and by a strategic merge patch. */
function listExtensions({ applyKeys, isSet, mergeKey, retainKeys }: ListType): JsonObject {
  const listType = applyKeys === undefined ? 'atomic' : 'map';
  const strategies = [
    ...(retainKeys ? ['retainKeys'] : []),
    ...(mergeKey === undefined ? [] : ['merge']),
  ];
  return {
    'x-kubernetes-list-type': isSet ? 'set' : listType,
    ...(applyKeys === undefined ? {} : { 'x-kubernetes-list-map-keys': [...applyKeys] }),
    ...(strategies.length === 0 ? {} : { 'x-kubernetes-patch-strategy': strategies.join(',') }),
    ...(mergeKey === undefined || mergeKey === ''
      ? {}
      : { 'x-kubernetes-patch-merge-key': mergeKey }),
  };
}

/** The path of one object of a resource, with placeholders. */
export function itemPath(resource: Resource): string {
  const root =
    resource.group === '' ? `/api/${resource.version}` : `/apis/${apiVersionOf(resource)}`;
  return `${root}${resource.namespaced ? '/namespaces/{namespace}' : ''}/${resource.plural}/{name}`;
}

/** The query parameters of PATCH. Clients look here to learn what the server supports. */
export const PATCH_PARAMETERS = ['dryRun', 'fieldManager', 'fieldValidation', 'force'] as const;

export const PATCH_TYPES = [
  'application/apply-patch+yaml',
  'application/json-patch+json',
  'application/merge-patch+json',
  'application/strategic-merge-patch+json',
] as const;
