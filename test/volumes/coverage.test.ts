import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const C8 = fileURLToPath(import.meta.resolve('c8/bin/c8.js'));

const sourcesIn = (folder: string): readonly string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' }).filter((path) =>
    path.endsWith('.ts'),
  );
const RULES = sourcesIn('src/volumes').map((path) => `src/volumes/${path}`);

/** Not of the tests that are measured: this one, and the one whose inputs are drawn, which take
 * this branch or that by chance. */
const LEFT_OUT = ['coverage.test.ts', 'generated-input.test.ts'];
const TESTS = sourcesIn('test/volumes').filter(
  (path) => path.endsWith('.test.ts') && !LEFT_OUT.includes(path),
);

/** A program that runs the tests in one process, which is much quicker than one for each file. It
 * loads every rule too: one that no test loads would not be measured. */
function allTests(): string {
  const modules = [
    ...RULES.map((path) => `#${path}`),
    ...TESTS.map((path) => `./dist-dev/test/volumes/${path.replace(/ts$/, 'js')}`),
  ];
  return modules.map((module) => `import '${module}';`).join('\n');
}

/** What c8 writes of one source file, as far as it is looked at here: counts by number, and the
 * place of each. */
interface Counts {
  readonly b: Readonly<Record<string, readonly number[]>>;
  readonly branchMap: Readonly<Record<string, { readonly line: number }>>;
  readonly f: Readonly<Record<string, number>>;
  readonly fnMap: Readonly<Record<string, { readonly line: number; readonly name: string }>>;
}

/** Counts by path, with the compiled code's source maps applied. */
function measure(): ReadonlyMap<string, Counts> {
  const folder = mkdtempSync(join(tmpdir(), 'sutler-coverage-'));
  const c8 = [
    '--include=src/volumes/**',
    '--exclude-after-remap',
    '--reporter=json',
    `--temp-directory=${folder}`,
    `--reports-dir=${folder}`,
  ];
  const program = [
    '--test-reporter=dot',
    '--test-reporter-destination=stdout',
    '--input-type=module',
    `--eval=${allTests()}`,
  ];
  // With it the child would report to the runner of this test.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  try {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [C8, ...c8, process.execPath, ...program],
      {
        cwd: ROOT,
        env,
        encoding: 'utf8',
        timeout: 150_000,
      },
    );
    assert.equal(status, 0, `nothing can be said as long as a test fails:\n${stdout}${stderr}`);
    const report = JSON.parse(readFileSync(join(folder, 'coverage-final.json'), 'utf8')) as Record<
      string,
      Counts
    >;
    return new Map(
      Object.entries(report).map(([path, counts]) => [path.slice(ROOT.length), counts]),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The branches that are never taken; and the functions that are never called, since V8 tells
 * nothing of the branches inside. */
function missedIn(path: string, counts: Counts | undefined): readonly string[] {
  if (counts === undefined) return [`${path}: not measured`];
  const branches = Object.entries(counts.branchMap).filter(([id]) => counts.b[id]?.includes(0));
  const functions = Object.entries(counts.fnMap).filter(([id]) => counts.f[id] === 0);
  return [
    ...branches.map(([, { line }]) => `${path}:${line}: a branch is never taken`),
    ...functions.map(([, { line, name }]) => `${path}:${line}: ${name} is never called`),
  ];
}

describe('the tests of src/volumes', () => {
  it('take every branch and call every function', () => {
    const measured = measure();
    assert.deepEqual(
      RULES.flatMap((path) => missedIn(path, measured.get(path))),
      [],
    );
  });
});
