import { badRequest } from './api-error.ts';
import { memberAt, plainText } from './json-value.ts';
import type { KubeObject } from './kube-object.ts';

export type Selector = (object: KubeObject) => boolean;

/** Splits at the commas that are outside parentheses. */
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

type LabelTest = (labels: Readonly<Record<string, string>>) => boolean;

/** The forms of a requirement, and what each one tests. */
const LABEL_FORMS: readonly (readonly [RegExp, (...groups: string[]) => LabelTest])[] = [
  [
    /^([^\s=!<>(),]+)\s*(==|=|!=)\s*([^\s=!<>(),]*)$/,
    (key = '', operator, value) =>
      (labels) =>
        (labels[key] === value) === (operator !== '!='),
  ],
  [
    /^([^\s=!<>(),]+)\s+(in|notin)\s+\(([^()]*)\)$/,
    (key = '', operator, list = '') => {
      const values = new Set(list.split(',').map((value) => value.trim()));
      return (labels) => {
        const value = labels[key];
        return (value !== undefined && values.has(value)) === (operator === 'in');
      };
    },
  ],
  [
    /^(!?)\s*([^\s=!<>(),]+)$/,
    (not, key = '') =>
      (labels) =>
        (labels[key] !== undefined) === (not === ''),
  ],
];

/** A label selector as a test; undefined if it selects everything.
 * @throws ApiError 400 if it can't be parsed */
export function parseLabelSelector(text: string): Selector | undefined {
  const tests = requirements(text).map(labelTest);
  return tests.length === 0
    ? undefined
    : (object) => tests.every((test) => test(object.metadata.labels ?? {}));
}

function labelTest(text: string): LabelTest {
  for (const [form, testOf] of LABEL_FORMS) {
    const match = form.exec(text);
    if (match !== null) return testOf(...match.slice(1));
  }
  const found = text.split(/\s+/)[1] ?? text;
  throw badRequest(
    `unable to parse requirement: found '${found}', expected: in, notin, =, ==, !=, gt, lt`,
  );
}

/** A field selector as a test; undefined if it selects everything. It may use the path of any
 * field; a real server knows only a few fields of each kind.
 * @throws ApiError 400 if it can't be parsed */
export function parseFieldSelector(text: string): Selector | undefined {
  const tests = requirements(text).map((requirement): Selector => {
    const match = /^([^=!]+?)(==|=|!=)(.*)$/.exec(requirement);
    if (match === null)
      throw badRequest(`invalid selector: '${requirement}'; can't understand '${requirement}'`);
    const [, label = '', operator, escaped = ''] = match;
    const path = label.split('.');
    const value = escaped.replaceAll(/\\(.)/g, '$1');
    return (object) => (plainText(memberAt(object, ...path)) === value) === (operator !== '!=');
  });
  return tests.length === 0 ? undefined : (object) => tests.every((test) => test(object));
}

/** Both selectors as one test; undefined if there is no selector. */
export function bothSelectors(
  a: Selector | undefined,
  b: Selector | undefined,
): Selector | undefined {
  if (a === undefined) return b;
  return b === undefined ? a : (object) => a(object) && b(object);
}
