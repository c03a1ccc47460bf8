import { isObject, memberAt, objectAt, textAt, textsAt } from '../json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { kindOf, type Resource } from '../resource.ts';

/** CustomResourceDefinitions. Creating one adds its kind to this server, deleting it removes the
 * kind and its objects. */
export const definitions = kindOf(
  'apiextensions.k8s.io/v1',
  ['CustomResourceDefinition', 'customresourcedefinitions', 'crd', 'crds'],
  {
    namespaced: false,
    hasStatus: true,
    // A real server needs some time before it serves the kind; this one serves it at once.
    beforeCreate(object) {
      object['status'] = { conditions: [{ type: 'Established', status: 'True' }] };
    },
  },
);

/** The kinds that a definition adds: one for each served version, all with the same objects. */
export function customKinds(definition: KubeObject): Resource[] {
  const names = objectAt(definition, 'spec', 'names');
  const group = textAt(definition, 'spec', 'group');
  const versions = memberAt(definition, 'spec', 'versions');
  return (Array.isArray(versions) ? versions : [])
    .filter((version) => memberAt(version, 'served') === true)
    .map((version) =>
      kindOf(
        `${group}/${textAt(version, 'name')}`,
        [textAt(names, 'kind'), textAt(names, 'plural'), ...textsAt(names, 'shortNames')],
        {
          namespaced: textAt(definition, 'spec', 'scope') === 'Namespaced',
          hasStatus: isObject(memberAt(version, 'subresources', 'status')),
        },
      ),
    );
}
