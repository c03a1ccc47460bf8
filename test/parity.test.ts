import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { hasTitle, readTitles } from './harness/test-titles.ts';
import type { TestTitles } from './harness/test-titles.ts';

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

const FEATURE = '(?:topology|capacity|node deployment)';
/** Nothing of the case is there yet, so that there is nothing to test. */
const LATER = new RegExp(`^later: ${FEATURE}$`);
const VERDICT = new RegExp(
  `^(?:same(?: \\(.+\\))?|DIFFERS: .+|later: ${FEATURE}; until then: .+)$`,
);

interface Row {
  readonly id: string;
  readonly verdict: string;
  /** "`file`: title of the test". */
  readonly test: string;
}

const rows: readonly Row[] = readFileSync(join(ROOT, 'docs/parity.md'), 'utf8')
  .split('\n')
  .flatMap((line) => {
    const [, id, verdict, test = ''] = line
      .split(/(?<!\\)\|/)
      .map((cell) => cell.trim().replaceAll('\\|', '|'));
    return id === undefined || verdict === undefined || !/^[A-R]-\d+$/.test(id)
      ? []
      : [{ id, verdict, test }];
  });

/** What is wrong with a row; undefined where it names a test that is there and that `npm test`
 * runs. */
function faultOf(
  { id, verdict, test }: Row,
  titlesOf: (file: string) => TestTitles | undefined,
): string | undefined {
  if (LATER.test(verdict))
    return test === '' ? undefined : `${id} names a test of what is not there`;
  if (!VERDICT.test(verdict)) return `${id} has no verdict: ${verdict}`;
  const [, file, title] = /^`([^`]+)`: (.+)$/.exec(test) ?? [];
  if (file === undefined || title === undefined) return `${id} names no test`;
  const titles = /^test\/(?!real\/|long\/).+\.test\.ts$/.test(file) ? titlesOf(file) : undefined;
  if (titles === undefined) return `${id} names no test file: ${file}`;
  if (!new RegExp(`\\b${id}\\b`).test(title))
    return `${id} is not in the title of its test: ${title}`;
  return hasTitle(titles, title, id)
    ? undefined
    : `${id} names a test that is not in ${file}: ${title}`;
}

const seen = new Map<string, TestTitles>();
function titlesIn(file: string): TestTitles | undefined {
  const path = join(ROOT, file);
  if (!seen.has(file) && existsSync(path)) seen.set(file, readTitles(readFileSync(path, 'utf8')));
  return seen.get(file);
}

describe('docs/parity.md', () => {
  for (const { group, ids } of GROUPS) {
    const own = rows.filter(({ id }) => id.startsWith(`${group}-`));

    it(`has one row for each case of group ${group}`, () => {
      assert.deepEqual(
        own.map(({ id }) => id),
        ids,
      );
    });

    it(`names a test for each case of group ${group}, or says which feature it waits for`, () => {
      assert.deepEqual(
        own.flatMap((row) => faultOf(row, titlesIn) ?? []),
        [],
      );
    });
  }
});

/* The numbers here are of no group, so that this file vouches for none. */
describe('a row that names a test', () => {
  const SOURCE = `
    // it('is only told of (X-01)', () => {});
    const quotes = /['"]/;
    describe('it', () => {
      it('stands there (X-02)', () => assert.ok(/it\\('is in an expression (X-03)', x/.test(text)));
      it("has somebody's quotes (X-04)", () => {});
      it.skip('is skipped (X-05)', () => {}); it('is left out (X-18)', { skip: isSlow }, () => {}); it('has its time (X-19)', { timeout: 5 }, () => {});
      const refused: Record<string, Given> = { 'a small claim (X-06)': {}, 'a large claim (X-07)': { words: \`said \${what} (X-08)\` } };
      for (const [title, given] of Object.entries(refused)) it(\`refuses \${title}, always\`, () => {});
      for (const [code, id] of [['Aborted', 'X-09']]) {
        it(\`with \${code}, is \${isOpen(code) ? \`kept \${"open"}\` : 'gone'} (\${id})\`, () => {});
      }
      for (const row of ROWS) it(\`is number \${row} (X-\${10 + row})\`, () => {});
      for (const [title] of [['comes out whole (X-12)']]) it(title, () => {});
      it(words.join(' (X-13)'), () => {});
      after('is no test (X-14)', () => {});
      it('divides ' + a / b + ' (X-15)', () => {}); it('comes after a division (X-16)', () => {});
    });`;
  const titles = readTitles(SOURCE);
  const fault = (test: string, verdict = 'same', id = /X-\d+/.exec(test)?.[0] ?? 'X-99') =>
    faultOf({ id, verdict, test }, (file) =>
      file === 'test/made-up.test.ts' ? titles : undefined,
    );
  const inFile = (title: string): string => `\`test/made-up.test.ts\`: ${title}`;

  for (const title of [
    'stands there (X-02)',
    "has somebody's quotes (X-04)",
    'refuses a small claim (X-06), always',
    'refuses a large claim (X-07), always',
    'with Aborted, is gone (X-09)',
    'with Aborted, is kept open (X-09)',
    'comes out whole (X-12)',
    'comes after a division (X-16)',
    'has its time (X-19)',
  ]) {
    it(`is fine with a title that comes out: ${title}`, () =>
      assert.equal(fault(inFile(title)), undefined));
  }

  for (const how of [
    "describe.skip('a', () => {",
    "describe('a', { skip: true }, () => {",
    "describe('a', { todo: 'later' }, () => {",
  ]) {
    it(`is wrong where its tests are left out: ${how}`, () => {
      const left = readTitles(`${how} it('stands there (X-02)', () => {}); });`);
      assert.ok(!hasTitle(left, 'stands there (X-02)', 'X-02'));
    });
  }

  for (const title of [
    'is only told of (X-01)',
    'stands there, too (X-02)',
    'is in an expression (X-03)',
    'is skipped (X-05)',
    'is left out (X-18)',
    'refuses a small claim (X-06)',
    'refuses a tiny claim (X-06), always',
    'said what (X-08)',
    'with Canceled, is gone (X-09)',
    'is number 1 (X-11)',
    'comes out (X-12)',
    ' (X-13)',
    'is no test (X-14)',
    'divides 1 (X-15)',
    'is nowhere (X-17)',
  ]) {
    it(`is wrong with a title that does not: ${title}`, () => {
      assert.match(
        fault(inFile(title)) ?? '',
        /^X-\d+ names a test that is not in test\/made-up\.test\.ts: /,
      );
    });
  }

  it('is wrong where the number is not in the title', () => {
    assert.match(
      fault(inFile('stands there (X-02)'), 'same', 'X-20') ?? '',
      /^X-20 is not in the title/,
    );
  });

  it('is wrong without a title, and without a file that is there and that npm test runs', () => {
    assert.equal(fault('`test/made-up.test.ts`', 'same', 'X-02'), 'X-02 names no test');
    assert.equal(fault('', 'same', 'X-02'), 'X-02 names no test');
    for (const file of ['test/gone.test.ts', 'test/made-up.ts', 'test/real/made-up.test.ts'])
      assert.equal(fault(`\`${file}\`: stands there (X-02)`), `X-02 names no test file: ${file}`);
  });

  it('is wrong with another verdict than same, DIFFERS with a reason, or later with what holds until then', () => {
    for (const verdict of [
      'same (in other words)',
      'DIFFERS: for a reason',
      'later: topology; until then: nothing',
    ])
      assert.equal(fault(inFile('stands there (X-02)'), verdict), undefined);
    for (const verdict of [
      '',
      'sane',
      'DIFFERS',
      'same, nearly',
      'later: some day; until then: nothing',
    ])
      assert.equal(
        fault(inFile('stands there (X-02)'), verdict),
        `X-02 has no verdict: ${verdict}`,
      );
  });

  it('is wrong where the whole case is for later', () => {
    assert.match(
      fault(inFile('stands there (X-02)'), 'later: topology') ?? '',
      /names a test of what is not there$/,
    );
    assert.equal(fault('', 'later: topology'), undefined);
  });
});
