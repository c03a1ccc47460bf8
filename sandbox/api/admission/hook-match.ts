import { selectsLabels, type Labels } from '../../control/label-selector.ts';
import { textAt, textsAt, type JsonObject } from '../json-value.ts';
import { rulesOf } from '../kinds/admission.ts';
import type { Review } from './review.ts';

/** Whether a webhook is to be asked about a write.
 * @param namespaceLabels  of the object's namespace; undefined for an object of the cluster */
export function hookMatches(
  hook: JsonObject,
  review: Review,
  namespaceLabels: Labels | undefined,
): boolean {
  return (
    rulesOf(hook).some((rule) => ruleMatches(rule, review)) &&
    (namespaceLabels === undefined || selectsLabels(hook['namespaceSelector'], namespaceLabels)) &&
    selectsObject(hook, review)
  );
}

/** An object selector matches if either the new or the old object has the labels. */
function selectsObject(hook: JsonObject, { object, old }: Review): boolean {
  return [object, old].some(
    (each) =>
      each !== undefined && selectsLabels(hook['objectSelector'], each.metadata.labels ?? {}),
  );
}

function ruleMatches(rule: JsonObject, { operation, resource, subresource }: Review): boolean {
  const scope = textAt(rule, 'scope');
  return (
    includes(textsAt(rule, 'operations'), operation) &&
    includes(textsAt(rule, 'apiGroups'), resource.group) &&
    includes(textsAt(rule, 'apiVersions'), resource.version) &&
    (scope === '*' || (scope === 'Namespaced') === resource.namespaced) &&
    textsAt(rule, 'resources').some((each) => resourceMatches(each, resource.plural, subresource))
  );
}

function includes(allowed: readonly string[], value: string): boolean {
  return allowed.includes('*') || allowed.includes(value);
}

/** `volumes` is the object alone, `volumes/status` its status alone, `volumes/*` both. */
function resourceMatches(text: string, plural: string, subresource: string = ''): boolean {
  const [resource = '', sub = ''] = text.split('/');
  return (resource === '*' || resource === plural) && (sub === '*' || sub === subresource);
}
