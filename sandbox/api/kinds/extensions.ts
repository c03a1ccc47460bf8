import type { Cause } from '../api-error.ts';
import { ageColumn, nameColumn } from '../columns.ts';
import { invalidValue } from '../field-error.ts';
import { cellAt } from '../json-path.ts';
import { isObject, memberAt, objectAt, textAt, textsAt, type Json } from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import type { Column, Resource } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';
import { timestamp } from '../time.ts';

const versionsOf = (definition: KubeObject): readonly Json[] => {
  const versions = memberAt(definition, 'spec', 'versions');
  return Array.isArray(versions) ? versions : [];
};

/** CustomResourceDefinitions. Creating one adds its kind to this server, deleting it removes the
 * kind and its objects. */
export const definitions: Resource = {
  group: 'apiextensions.k8s.io',
  version: 'v1',
  plural: 'customresourcedefinitions',
  singular: 'customresourcedefinition',
  kind: 'CustomResourceDefinition',
  shortNames: ['crd', 'crds'],
  categories: ['api-extensions'],
  namespaced: false,
  struct: schemaOf('CustomResourceDefinition'),
  hasStatus: true,
  hasGeneration: true,
  returnsDeleted: true,
  applyDefaults(object) {
    const names = objectAt(object, 'spec', 'names');
    names['singular'] ??= textAt(names, 'kind').toLowerCase();
    names['listKind'] ??= `${textAt(names, 'kind')}List`;
    const spec = objectAt(object, 'spec');
    spec['conversion'] ??= { strategy: 'None' };
  },
  // A real server needs a moment until it serves the kind; this one serves it at once.
  beforeCreate(object, { nowMs }) {
    const condition = (type: string, reason: string, message: string) => ({
      type,
      status: 'True',
      lastTransitionTime: timestamp(nowMs),
      reason,
      message,
    });
    object['status'] = {
      conditions: [
        condition('NamesAccepted', 'NoConflicts', 'no conflicts found'),
        condition('Established', 'InitialNamesAccepted', 'the initial names have been accepted'),
      ],
      acceptedNames: objectAt(object, 'spec', 'names'),
      storedVersions: versionsOf(object)
        .filter((version) => memberAt(version, 'storage') === true)
        .map((version) => textAt(version, 'name')),
    };
  },
  validate(object) {
    const causes: Cause[] = [];
    const plural = textAt(object, 'spec', 'names', 'plural');
    if (object.metadata.name !== `${plural}.${textAt(object, 'spec', 'group')}`) {
      causes.push(
        invalidValue(
          'metadata.name',
          object.metadata.name,
          'must be spec.names.plural+"."+spec.group',
        ),
      );
    }
    if (
      versionsOf(object).filter((version) => memberAt(version, 'storage') === true).length !== 1
    ) {
      causes.push(
        invalidValue(
          'spec.versions',
          memberAt(object, 'spec', 'versions'),
          'must have exactly one version marked as storage version',
        ),
      );
    }
    return causes;
  },
  columns: [
    nameColumn,
    { name: 'Created At', type: 'date', cell: (o) => o.metadata.creationTimestamp },
  ],
};

/** The resources that a definition adds, one for each served version: the stored one first, the
 * others as views of it. */
export function customResources(definition: KubeObject): Resource[] {
  const names = objectAt(definition, 'spec', 'names');
  const served = versionsOf(definition).filter((version) => memberAt(version, 'served') === true);
  const stored = versionsOf(definition).find((version) => memberAt(version, 'storage') === true);
  const rowOf = (version: Json): Resource => ({
    group: textAt(definition, 'spec', 'group'),
    version: textAt(version, 'name'),
    plural: textAt(names, 'plural'),
    singular: textAt(names, 'singular'),
    kind: textAt(names, 'kind'),
    shortNames: textsAt(names, 'shortNames'),
    categories: textsAt(names, 'categories'),
    namespaced: textAt(definition, 'spec', 'scope') === 'Namespaced',
    struct: schemaOf('CustomObject'),
    hasStatus: isObject(memberAt(version, 'subresources', 'status')),
    statusLeavesMetadata: true,
    hasGeneration: true,
    needsResourceVersion: true,
    ...(isObject(memberAt(version, 'subresources', 'status')) ? { beforeCreate: dropStatus } : {}),
    columns: [nameColumn, ...printerColumns(version), ageColumn],
  });
  if (stored === undefined) return [];
  const storedRow = rowOf(stored);
  const views = served
    .filter((version) => version !== stored)
    .map(rowOf)
    .map((row) => ({ ...row, view: sameShape(storedRow, row) }));
  return memberAt(stored, 'served') === true ? [storedRow, ...views] : views;
}

/** A creation can't set the status if it is a subresource. */
function dropStatus(object: KubeObject): void {
  delete object['status'];
}

function sameShape(stored: Resource, row: Resource): NonNullable<Resource['view']> {
  return {
    storedAs: stored,
    toStored: (object) => ({ ...object, apiVersion: `${stored.group}/${stored.version}` }),
    fromStored: (object) => ({ ...object, apiVersion: `${row.group}/${row.version}` }),
  };
}

function printerColumns(version: Json): Column[] {
  const columns = memberAt(version, 'additionalPrinterColumns');
  if (!Array.isArray(columns)) return [];
  return columns
    .filter((column) => textAt(column, 'jsonPath') !== '.metadata.creationTimestamp')
    .map((column) => ({
      name: textAt(column, 'name'),
      type: 'string' as const,
      priority: Number(memberAt(column, 'priority') ?? 0),
      cell: (object: KubeObject) => cellAt(object, textAt(column, 'jsonPath')),
    }));
}
