import { ageColumn, nameColumn, textColumn } from '../columns.ts';
import { textAt } from '../json-value.ts';
import type { Resource } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';

/** EndpointSlices: where the pods of a Service listen. Nothing here makes them from Services. */
export const endpointSlices: Resource = {
  group: 'discovery.k8s.io',
  version: 'v1',
  plural: 'endpointslices',
  singular: 'endpointslice',
  kind: 'EndpointSlice',
  namespaced: true,
  struct: schemaOf('EndpointSlice'),
  columns: [nameColumn, textColumn('AddressType', (o) => textAt(o, 'addressType')), ageColumn],
};
