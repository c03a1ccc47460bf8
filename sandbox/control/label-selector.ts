import { type Json, memberAt, objectAt, textAt, textsAt } from '../api/json-value.ts';

export type Labels = Readonly<Record<string, string>>;

/** Whether a label selector or a term of a node selector matches labels. An empty or absent
 * selector matches all. */
export function selectsLabels(selector: Json | undefined, labels: Labels): boolean {
  const wanted = Object.entries(objectAt(selector, 'matchLabels'));
  const expressions = memberAt(selector, 'matchExpressions');
  return (
    wanted.every(([key, value]) => labels[key] === value) &&
    (!Array.isArray(expressions) || expressions.every((each) => expressionHolds(each, labels)))
  );
}

function expressionHolds(expression: Json, labels: Labels): boolean {
  const value = labels[textAt(expression, 'key')];
  const isListed = value !== undefined && textsAt(expression, 'values').includes(value);
  switch (textAt(expression, 'operator')) {
    case 'In':
      return isListed;
    case 'NotIn':
      return !isListed;
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    default:
      return false;
  }
}
