import type { Resource } from '../resource.ts';
import { schemaOf } from '../schema/schemas.ts';

const ROW = { namespaced: false, columns: [] } as const;

/** Always allowed: the token permits everything. */
export const selfSubjectAccessReviews: Resource = {
  ...ROW,
  group: 'authorization.k8s.io',
  version: 'v1',
  plural: 'selfsubjectaccessreviews',
  singular: 'selfsubjectaccessreview',
  kind: 'SelfSubjectAccessReview',
  struct: schemaOf('SelfSubjectAccessReview'),
  review: (object) => ({ ...object, status: { allowed: true } }),
};

/** Names the caller: the sandbox has one user. */
export const selfSubjectReviews: Resource = {
  ...ROW,
  group: 'authentication.k8s.io',
  version: 'v1',
  plural: 'selfsubjectreviews',
  singular: 'selfsubjectreview',
  kind: 'SelfSubjectReview',
  struct: schemaOf('SelfSubjectReview'),
  review: (object) => ({
    ...object,
    status: {
      userInfo: { username: 'sandbox-admin', groups: ['system:masters', 'system:authenticated'] },
    },
  }),
};
