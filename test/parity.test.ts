import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';

const ROOT = new URL('../..', import.meta.url).pathname;

/** How many numbered cases each group of the acceptance catalogue has. */
const CASES = {
  A: 42,
  B: 46,
  C: 38,
  D: 49,
  E: 68,
  F: 18,
  G: 12,
  H: 71,
  I: 9,
  J: 23,
  K: 8,
  L: 16,
  M: 40,
  N: 23,
  O: 16,
  P: 103,
  Q: 60,
  R: 42,
};
const GROUPS = Object.entries(CASES).map(([group, count]) => ({
  group,
  ids: Array.from({ length: count }, (_, i) => `${group}-${String(i + 1).padStart(2, '0')}`),
}));

interface Row {
  readonly id: string;
  readonly verdict: string;
  readonly file: string | undefined;
  /** Has the case's number in it; absent where a test shows the difference without being about the case. */
  readonly title: string | undefined;
}

const rows: readonly Row[] = readFileSync(join(ROOT, 'docs/parity.md'), 'utf8')
  .split('\n')
  .flatMap((line) => {
    const [, id, verdict, test = ''] = line.split(/(?<!\\)\|/).map((cell) => cell.trim());
    if (id === undefined || verdict === undefined || !/^[A-R]-\d+$/.test(id)) return [];
    const named = /^`([^`]+)`(?:: (.*))?$/.exec(test);
    return [{ id, verdict, file: named?.[1], title: named?.[2] }];
  });

/** Whether a test's source has the number: in a title, or built in one of a table. */
function hasCase(source: string, id: string): boolean {
  return new RegExp(`\\b${id}\\b`).test(source) || source.includes(`${id.slice(0, 1)}-\${`);
}

describe('docs/parity.md', () => {
  for (const { group, ids } of GROUPS) {
    it(`has one row for each case of group ${group}`, () => {
      assert.deepEqual(
        rows.filter(({ id }) => id.startsWith(`${group}-`)).map(({ id }) => id),
        ids,
      );
    });

    it(`names a test for each case of group ${group}, or says which feature it waits for`, () => {
      const wrong = rows
        .filter(({ id }) => id.startsWith(`${group}-`))
        .filter(({ id, verdict, file, title }) => {
          if (/^later: (topology|capacity|node deployment)$/.test(verdict)) return file !== undefined;
          if (!/^(same|DIFFERS: |later: )/.test(verdict) || file === undefined || !existsSync(join(ROOT, file))) return true;
          return title !== undefined && !hasCase(readFileSync(join(ROOT, file), 'utf8'), id);
        });
      assert.deepEqual(wrong, []);
    });
  }
});
