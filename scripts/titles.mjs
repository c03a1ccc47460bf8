/* Stands in for node:test in scripts/facts.mjs: takes note of titles and runs no test. */
const path = [];
/** Titles of tests, each after those of its suites, in the order in which they are declared. */
export const titles = [];

export function describe(title, ...rest) {
  path.push(title);
  rest.findLast((part) => typeof part === 'function')();
  path.pop();
}
export function it(title) {
  titles.push([...path, title].join(': '));
}
export function before() {}
export function beforeEach() {}
export function after() {}
export function afterEach() {}
export const mock = {};
