import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { formatMarkdown } from './harness/format-markdown.ts';
import {
  GROUPS,
  idsOf,
  readCases,
  readVerdicts,
  renderCases,
  testsById,
  type CaseTest,
} from './harness/parity-cases.ts';
import { hasTitle, readTitles, type TestTitles } from './harness/test-titles.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const PAGE = readFileSync(join(ROOT, 'docs/parity-cases.md'), 'utf8');
const cases = readCases(PAGE);
const verdicts = readVerdicts(readFileSync(join(ROOT, 'docs/parity.md'), 'utf8'));

/** What is wrong with a test that the list names for a case; undefined where it is there and `npm
 * test` runs it. */
function faultOf(
  id: string,
  { file, title }: Pick<CaseTest, 'file' | 'title'>,
  titlesOf: (file: string) => TestTitles | undefined,
): string | undefined {
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

describe('docs/parity-cases.md', () => {
  it('is up to date with docs/parity.md (else: npm run generate:parity)', async () => {
    assert.equal(PAGE, await formatMarkdown(renderCases(cases, verdicts)));
  });

  for (const group of Object.keys(GROUPS)) {
    it(`names a test for each case of group ${group}, or the case is listed under "Not there yet"`, () => {
      const uncovered = idsOf(group).filter((id) => !cases.has(id) && !verdicts.later.has(id));
      assert.deepEqual(uncovered, []);
    });

    // A title that a loop puts together from values of the source tree can't be read from the
    // test's own text, so one test of each case has to be found.
    it(`names for each case of group ${group} a test that is in its file`, () => {
      const faults = idsOf(group).flatMap((id) => {
        const found = (cases.get(id) ?? []).map((test) => faultOf(id, test, titlesIn));
        return found.includes(undefined) ? [] : found;
      });
      assert.deepEqual(faults, []);
    });
  }
});

describe('docs/parity.md', () => {
  it('names only cases that exist', () => {
    const known = new Set(Object.keys(GROUPS).flatMap(idsOf));
    const unknown = [...verdicts.differs, ...verdicts.later].filter((id) => !known.has(id));
    assert.deepEqual(unknown, []);
  });

  it('lists no case both as different and as not there yet', () => {
    assert.deepEqual(
      [...verdicts.differs].filter((id) => verdicts.later.has(id)),
      [],
    );
  });
});

/* The numbers here are of no group, so that this file vouches for none. */
describe('a case that names a test', () => {
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
  const fault = (
    title: string,
    file = 'test/made-up.test.ts',
    id = /X-\d+/.exec(title)?.[0] ?? '',
  ) => faultOf(id, { file, title }, () => titles);

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
      assert.equal(fault(title), undefined));
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
        fault(title) ?? '',
        /^X-\d+ names a test that is not in test\/made-up\.test\.ts: /,
      );
    });
  }

  it('is wrong where the number is not in the title', () => {
    assert.match(
      fault('stands there (X-02)', 'test/made-up.test.ts', 'X-20') ?? '',
      /^X-20 is not in the title/,
    );
  });

  for (const file of [
    'test/made-up.ts',
    'test/real/made-up.test.ts',
    'test/long/made-up.test.ts',
  ]) {
    it(`is wrong where npm test does not run its file: ${file}`, () => {
      assert.equal(fault('stands there (X-02)', file), `X-02 names no test file: ${file}`);
    });
  }

  it('is wrong where its file does not exist', () => {
    const found = faultOf(
      'X-02',
      { file: 'test/gone.test.ts', title: 'stands there (X-02)' },
      titlesIn,
    );
    assert.equal(found, 'X-02 names no test file: test/gone.test.ts');
  });
});

describe('the list of cases', () => {
  const tests = testsById([
    { file: 'test/a.test.ts', suite: 'a', title: 'covers two cases (A-01, A-03)' },
    { file: 'test/b.test.ts', suite: 'b', title: 'covers one again (A-01)' },
  ]);
  const page = renderCases(
    tests,
    readVerdicts('differs (A-03)\n## Not there yet\n- later (A-02, A-04\n to A-42)'),
  );

  it('names each test of a case', () => assert.deepEqual(readCases(page), tests));

  it('marks what differs', () => assert.match(page, /\*\*A-03\*\* _differs_ a › covers two cases/));

  it('says which cases wait for a feature', () =>
    assert.match(page, /Later: A-02, A-04 to A-42\./));

  it('says so where a case has no test and waits for nothing', () => {
    assert.match(page, /\*\*B-01\*\*: no test/);
  });
});
