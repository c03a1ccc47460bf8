import type { Labels, NodeSelectorRequirement, VolumeSpec } from '../kube/objects.ts';

/** Whether a node with these labels can reach a volume with this affinity, as the scheduler
 * decides. `matchFields` count as met, since the node's name is not given. Upstream:
 * external-provisioner pkg/controller/topology.go VolumeIsAccessible. */
export function matchesNodeAffinity(affinity: VolumeSpec['nodeAffinity'], labels: Labels): boolean {
  const required = affinity?.required;
  if (required === undefined) return true;
  return required.nodeSelectorTerms.some(
    ({ matchExpressions = [], matchFields = [] }) =>
      // A term without any condition matches nothing.
      matchExpressions.length + matchFields.length > 0 &&
      matchExpressions.every((each) => isMet(each, labels)),
  );
}

function isMet({ key, operator, values = [] }: NodeSelectorRequirement, labels: Labels): boolean {
  const value = Object.hasOwn(labels, key) ? labels[key] : undefined;
  switch (operator) {
    case 'In':
      return value !== undefined && values.includes(value);
    case 'NotIn':
      return value === undefined || !values.includes(value);
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    case 'Gt':
      return isGreater(toInteger(value), toInteger(values[0]));
    case 'Lt':
      return isGreater(toInteger(values[0]), toInteger(value));
    default:
      return false;
  }
}

function isGreater(a: bigint | undefined, b: bigint | undefined): boolean {
  return a !== undefined && b !== undefined && a > b;
}

function toInteger(text: string | undefined): bigint | undefined {
  if (text === undefined || !/^[+-]?\d{1,1000}$/.test(text)) return undefined;
  const value = BigInt(text.replace(/^\+/, ''));
  return BigInt.asIntN(64, value) === value ? value : undefined;
}
