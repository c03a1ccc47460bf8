import { memberAt, objectAt, textAt, textsAt, type Json } from '../api/json-value.ts';

export type Labels = Readonly<Record<string, string>>;

/** Whether a label selector (matchLabels, matchExpressions) matches labels. An empty or absent one
 * matches all. */
export function selectsLabels(selector: Json | undefined, labels: Labels): boolean {
  const wanted = Object.entries(objectAt(selector, 'matchLabels'));
  const expressions = memberAt(selector, 'matchExpressions');
  return (
    wanted.every(([key, value]) => labels[key] === value) &&
    (!Array.isArray(expressions) || expressions.every((each) => expressionHolds(each, labels)))
  );
}

/** Whether labels satisfy one requirement of a label selector or node selector. */
export function expressionHolds(expression: Json, labels: Labels): boolean {
  const value = labels[textAt(expression, 'key')];
  const values = textsAt(expression, 'values');
  switch (textAt(expression, 'operator')) {
    case 'In':
      return value !== undefined && values.includes(value);
    case 'NotIn':
      return value === undefined || !values.includes(value);
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    case 'Gt':
      return value !== undefined && Number(value) > Number(values[0]);
    case 'Lt':
      return value !== undefined && Number(value) < Number(values[0]);
    default:
      return false;
  }
}
