import { ageColumn, nameColumn, textColumn } from '../columns.ts';
import type { Cause } from '../api-error.ts';
import { invalidValue } from '../field-error.ts';
import { memberAt, textAt } from '../json-value.ts';
import type { Resource } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';

/** Leases. */
export const leases: Resource = {
  group: 'coordination.k8s.io',
  version: 'v1',
  plural: 'leases',
  singular: 'lease',
  kind: 'Lease',
  namespaced: true,
  struct: schemaOf('Lease'),
  createsOnUpdate: true,
  needsResourceVersion: true,
  validate(object) {
    const causes: Cause[] = [];
    const duration = memberAt(object, 'spec', 'leaseDurationSeconds');
    if (typeof duration === 'number' && duration <= 0)
      causes.push(invalidValue('spec.leaseDurationSeconds', duration, 'must be greater than 0'));
    const transitions = memberAt(object, 'spec', 'leaseTransitions');
    if (typeof transitions === 'number' && transitions < 0) {
      causes.push(
        invalidValue('spec.leaseTransitions', transitions, 'must be greater than or equal to 0'),
      );
    }
    return causes;
  },
  columns: [
    nameColumn,
    textColumn('Holder', (o) => textAt(o, 'spec', 'holderIdentity')),
    ageColumn,
  ],
};
