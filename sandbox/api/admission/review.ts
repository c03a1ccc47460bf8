import { randomUUID } from 'node:crypto';
import type { JsonObject } from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { apiVersionOf, type Resource } from '../resource.ts';

/** A write that webhooks may be asked about before it is done. */
export interface Review {
  readonly resource: Resource;
  readonly subresource: 'status' | undefined;
  readonly operation: 'CREATE' | 'UPDATE' | 'DELETE';
  /** As it would be stored; undefined for a deletion. */
  readonly object: KubeObject | undefined;
  /** As it is stored; undefined for a creation. */
  readonly old: KubeObject | undefined;
  readonly dryRun: boolean;
}

/** An operation that may need reviews: it yields each one, and goes on when the review has allowed
 * the write. Whoever carries it out throws the refusal into it. */
export type Steps<Result> = Generator<Review, Result, undefined>;

const OPTIONS = { CREATE: 'CreateOptions', UPDATE: 'UpdateOptions', DELETE: 'DeleteOptions' };

/** Who writes, in every review: the sandbox has one user. */
const USER: JsonObject = {
  username: 'sandbox-admin',
  groups: ['system:masters', 'system:authenticated'],
};

/** The body of the request to a webhook, with an id of its own. */
export function admissionReview(review: Review): JsonObject & { readonly request: JsonObject } {
  const { resource, subresource, operation, object, old, dryRun } = review;
  const { group, version, kind, plural } = resource;
  const { name, namespace } = (object ?? old)?.metadata ?? {};
  const kindName = { group, version, kind };
  const resourceName = { group, version, resource: plural };
  const sub = subresource === undefined ? {} : { subResource: subresource };
  const requestSub = subresource === undefined ? {} : { requestSubResource: subresource };
  return {
    kind: 'AdmissionReview',
    apiVersion: 'admission.k8s.io/v1',
    request: {
      uid: randomUUID(),
      kind: kindName,
      resource: resourceName,
      ...sub,
      requestKind: kindName,
      requestResource: resourceName,
      ...requestSub,
      name,
      ...(namespace === undefined ? {} : { namespace }),
      operation,
      userInfo: USER,
      object: object === undefined ? null : shown(review, object),
      oldObject: old === undefined ? null : { ...old, apiVersion: apiVersionOf(resource) },
      dryRun,
      options: { kind: OPTIONS[operation], apiVersion: 'meta.k8s.io/v1' },
    },
  };
}

/** The object as a webhook sees it: one that is not stored has no resourceVersion, and the phase of
 * a new claim is only set as it is stored. */
function shown({ operation, resource }: Review, object: KubeObject): JsonObject {
  const { resourceVersion, ...metadata } = object.metadata;
  return {
    ...object,
    apiVersion: apiVersionOf(resource),
    metadata: resourceVersion === '' ? metadata : object.metadata,
    ...(operation === 'CREATE' && resource.plural === 'persistentvolumeclaims'
      ? { status: {} }
      : {}),
  };
}
