import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

interface Verdict {
  readonly verdict: string;
  readonly line: string;
}

const RANGE = '^20.19.0 || ^22.12.0 || ^24.0.0 || ^26.0.0';
const { judgeNode } = (await import(
  new URL('../../../scripts/judge-node.mjs', import.meta.url).href
)) as { readonly judgeNode: (version: string, range: string) => Verdict };

describe('a version of Node', () => {
  for (const version of [
    '20.19.0',
    '20.20.2',
    '22.12.0',
    '22.23.3',
    '24.0.0',
    '24.21.0',
    '26.10.0',
  ])
    it(`that engines names is used: ${version}`, () =>
      assert.equal(judgeNode(version, RANGE).verdict, 'tested'));

  for (const version of ['18.20.0', '20.9.0', '20.18.3', '22.11.9'])
    it(`that is too old is refused: ${version}`, () => {
      const { verdict, line } = judgeNode(version, RANGE);
      assert.equal(verdict, 'too old');
      assert.ok(line.startsWith(`Node ${version} is too old: install one of 20.19.0, 22.12.0`));
    });

  for (const version of ['21.7.0', '25.1.0', '27.1.0'])
    it(`of another line is used with a warning: ${version}`, () => {
      const { verdict, line } = judgeNode(version, RANGE);
      assert.equal(verdict, 'untested');
      assert.match(line, /not tested with Node/);
    });
});
