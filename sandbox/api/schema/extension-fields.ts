import type { FieldTable } from './struct.ts';

/** Kinds that describe other kinds, and the shape of custom objects, whose own schema we do not
 * read. */
export const extensionFields: FieldTable = {
  CustomResourceDefinition: {
    metadata: 'ObjectMeta +',
    spec: 'CustomResourceDefinitionSpec ! +',
    status: 'CustomResourceDefinitionStatus +',
  },
  CustomResourceDefinitionSpec: {
    $: 'open',
    group: 'string !',
    names: 'CustomResourceNames ! +',
    scope: 'string !',
    versions: 'CustomResourceVersion[] !',
  },
  CustomResourceNames: {
    plural: 'string !',
    singular: 'string',
    shortNames: 'string[]',
    kind: 'string !',
    listKind: 'string',
    categories: 'string[]',
  },
  CustomResourceVersion: {
    $: 'open',
    name: 'string !',
    served: 'bool !',
    storage: 'bool !',
    schema: 'any',
    subresources: 'any',
    additionalPrinterColumns: 'Open[]',
  },
  CustomResourceDefinitionStatus: {
    $: 'open',
    conditions: 'Condition[] map=type',
    acceptedNames: 'CustomResourceNames',
    storedVersions: 'string[]',
  },
  /** Endpoints and ports are stored as they are written. */
  EndpointSlice: { $: 'open', metadata: 'ObjectMeta +' },
  CustomObject: { $: 'open', metadata: 'ObjectMeta +' },

  SelfSubjectAccessReview: {
    metadata: 'ObjectMeta + #1',
    spec: 'AccessReviewSpec + #2',
    status: 'Open +',
  },
  AccessReviewSpec: {
    resourceAttributes: 'ResourceAttributes #1',
    nonResourceAttributes: 'NonResourceAttributes #2',
  },
  ResourceAttributes: {
    namespace: 'string #1',
    verb: 'string #2',
    group: 'string #3',
    version: 'string #4',
    resource: 'string #5',
    subresource: 'string #6',
    name: 'string #7',
  },
  NonResourceAttributes: { path: 'string #1', verb: 'string #2' },
  SelfSubjectReview: { metadata: 'ObjectMeta + #1', status: 'Open +' },
};
