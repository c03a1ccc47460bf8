import type { KubeClient } from '../kube/client.ts';
import type { KubeObject, OwnerReference } from '../kube/objects.ts';
import type { CallOptions } from '../kube/request-sender.ts';
import { apiVersionOf, pods, type Resource } from '../kube/resources.ts';

/** The pod has no owner at the requested level. */
class OwnerError extends Error {
  override readonly name = 'OwnerError';
}

/** Finds the owner for the objects that this pod writes, so that they are deleted with the owner.
 * Upstream: external-provisioner pkg/owner/owner.go Lookup.
 * @param at.level  how many owners to go up from the pod: 0 is the pod itself
 * @throws OwnerError, KubeError */
export async function lookUpOwner(
  kube: Pick<KubeClient, 'get'>,
  at: { readonly namespace: string; readonly podName: string; readonly level: number },
  options: CallOptions = {},
): Promise<OwnerReference> {
  const { namespace } = at;
  let resource: Resource = pods;
  let name = at.podName;
  for (let left = at.level; ; left -= 1) {
    const object = await kube.get<KubeObject>(resource, { namespace, name }, options);
    const identity = { apiVersion: apiVersionOf(resource), kind: resource.kind, name };
    const title = `${identity.apiVersion}/${identity.kind} "${name}" in namespace "${namespace}"`;
    if (object === undefined) throw new OwnerError(`${title} does not exist`);
    if (left <= 0) return { ...identity, uid: object.metadata.uid, controller: true };
    const owner = object.metadata.ownerReferences?.find(({ controller }) => controller === true);
    if (owner === undefined)
      throw new OwnerError(
        `${title} has no controlling owner; lower --capacity-ownerref-level (-1: no owner)`,
      );
    const { apiVersion, kind, uid } = owner;
    // The reference names the last owner; it need not be read.
    if (left === 1) return { apiVersion, kind, name: owner.name, uid, controller: true };
    resource = resourceOf(apiVersion, kind);
    ({ name } = owner);
  }
}

/** The resource of a kind, by the rule that all kinds of Kubernetes follow. */
function resourceOf(apiVersion: string, kind: string): Resource {
  const [version = '', group = ''] = apiVersion.split('/').toReversed();
  const singular = kind.toLowerCase();
  const plural = singular.endsWith('s')
    ? `${singular}es`
    : singular.endsWith('y')
      ? `${singular.slice(0, -1)}ies`
      : `${singular}s`;
  return { group, version, plural, kind, namespaced: true };
}
