import type { Labels, NodeSelectorRequirement, VolumeSpec } from '../kube/objects.ts';
import { RefusedError } from '../rules/rule.ts';

/** Whether a volume with this affinity can be reached from a node with these labels, as the
 * scheduler decides it. `matchFields` count as met, since no name of a node is given. Upstream:
 * external-provisioner pkg/controller/topology.go VolumeIsAccessible.
 * @throws RefusedError if no term matches and one can't be read */
export function matchesNodeAffinity(affinity: VolumeSpec['nodeAffinity'], labels: Labels): boolean {
  const required = affinity?.required;
  if (required === undefined) return true;
  let unreadable: string | undefined;
  for (const { matchExpressions = [], matchFields = [] } of required.nodeSelectorTerms) {
    // A term without any condition matches nothing.
    if (matchExpressions.length === 0 && matchFields.length === 0) continue;
    const problem = matchExpressions.map(problemOf).find((text) => text !== undefined);
    if (problem !== undefined) unreadable ??= problem;
    else if (matchExpressions.every((each) => isMet(each, labels))) return true;
  }
  if (unreadable !== undefined) throw new RefusedError(unreadable);
  return false;
}

/** Why an expression can't be read; undefined if it can. */
function problemOf({ key, operator, values = [] }: NodeSelectorRequirement): string | undefined {
  const begin = `nodeAffinity of the volume: operator ${operator} of key ${JSON.stringify(key)}`;
  switch (operator) {
    case 'In':
    case 'NotIn':
      return values.length > 0 ? undefined : `${begin} needs a value`;
    case 'Exists':
    case 'DoesNotExist':
      return values.length === 0 ? undefined : `${begin} takes no value`;
    case 'Gt':
    case 'Lt':
      return values.length === 1 && toInteger(values[0]) !== undefined
        ? undefined
        : `${begin} needs one integer`;
    default:
      return `${begin} is not known`;
  }
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
    default:
      return isBeyond(operator === 'Gt', toInteger(value), toInteger(values[0]));
  }
}

function isBeyond(
  isGreater: boolean,
  value: bigint | undefined,
  limit: bigint | undefined,
): boolean {
  if (value === undefined || limit === undefined) return false;
  return isGreater ? value > limit : value < limit;
}

function toInteger(text: string | undefined): bigint | undefined {
  if (text === undefined || !/^[+-]?\d{1,1000}$/.test(text)) return undefined;
  const value = BigInt(text.replace(/^\+/, ''));
  return BigInt.asIntN(64, value) === value ? value : undefined;
}
