import { badRequest } from './api-error.ts';
import type { KubeObject } from './kube-object.ts';
import type { Resource } from './resource.ts';

export type Selector = (object: KubeObject) => boolean;

/** Splits at commas that are outside of parentheses. */
function requirements(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let start = 0;
  for (let i = 0; i <= text.length; i += 1) {
    const char = text[i];
    if (char === '(') depth += 1;
    if (char === ')') depth -= 1;
    if (i === text.length || (char === ',' && depth === 0)) {
      parts.push(text.slice(start, i).trim());
      start = i + 1;
    }
  }
  return parts.filter((part) => part !== '');
}

const EQUALS = /^([^\s=!<>(),]+)\s*(==|=|!=)\s*([^\s=!<>(),]*)$/;
const IN = /^([^\s=!<>(),]+)\s+(in|notin)\s+\(([^()]*)\)$/;
const EXISTS = /^(!?)\s*([^\s=!<>(),]+)$/;
const COMPARE = /^([^\s=!<>(),]+)\s*([<>])\s*(-?\d+)$/;

/** A label selector as a test; undefined where it selects everything.
 * @throws ApiError 400 where it cannot be read */
export function parseLabelSelector(text: string): Selector | undefined {
  const tests = requirements(text).map(labelTest);
  return tests.length === 0
    ? undefined
    : (object) => tests.every((test) => test(object.metadata.labels ?? {}));
}

function labelTest(text: string): (labels: Readonly<Record<string, string>>) => boolean {
  const equals = EQUALS.exec(text);
  if (equals !== null) {
    const [, key = '', operator, value = ''] = equals;
    return operator === '!='
      ? (labels) => labels[key] !== value
      : (labels) => labels[key] === value;
  }
  const among = IN.exec(text);
  if (among !== null) {
    const [, key = '', operator, list = ''] = among;
    const values = new Set(list.split(',').map((value) => value.trim()));
    return (labels) =>
      (labels[key] !== undefined && values.has(labels[key])) === (operator === 'in');
  }
  const compare = COMPARE.exec(text);
  if (compare !== null) {
    const [, key = '', operator, limit = ''] = compare;
    return (labels) => {
      const value = Number(labels[key] ?? 'none');
      return operator === '<' ? value < Number(limit) : value > Number(limit);
    };
  }
  const exists = EXISTS.exec(text);
  if (exists === null) {
    const found = text.split(/\s+/)[1] ?? text;
    throw badRequest(
      `unable to parse requirement: found '${found}', expected: in, notin, =, ==, !=, gt, lt`,
    );
  }
  const [, not, key = ''] = exists;
  return (labels) => (labels[key] !== undefined) === (not === '');
}

/** A field selector as a test; undefined where it selects everything.
 * @throws ApiError 400 for a field that this resource cannot be selected by */
export function parseFieldSelector(text: string, resource: Resource): Selector | undefined {
  const tests = requirements(text).map((requirement): Selector => {
    const match = /^([^=!]+?)(==|=|!=)(.*)$/.exec(requirement);
    if (match === null)
      throw badRequest(`invalid selector: '${requirement}'; can't understand '${requirement}'`);
    const [, label = '', operator, value = ''] = match;
    const field = fieldOf(label, resource);
    return (object) => (field(object) === value) === (operator !== '!=');
  });
  return tests.length === 0 ? undefined : (object) => tests.every((test) => test(object));
}

function fieldOf(label: string, resource: Resource): (object: KubeObject) => string {
  if (label === 'metadata.name') return (object) => object.metadata.name;
  if (label === 'metadata.namespace') return (object) => object.metadata.namespace ?? '';
  const field = Object.hasOwn(resource.fieldLabels ?? {}, label)
    ? resource.fieldLabels?.[label]
    : undefined;
  if (field !== undefined) return field;
  if (resource.fieldLabels !== undefined) throw badRequest(`field label not supported: ${label}`);
  throw badRequest(
    `"${label}" is not a known field selector: only "metadata.name", "metadata.namespace"`,
  );
}

/** Both selectors as one test; undefined where there are none. */
export function bothSelectors(
  a: Selector | undefined,
  b: Selector | undefined,
): Selector | undefined {
  if (a === undefined) return b;
  return b === undefined ? a : (object) => a(object) && b(object);
}
