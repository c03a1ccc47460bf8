import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const C8 = fileURLToPath(import.meta.resolve('c8/bin/c8.js'));

const sourcesIn = (folder: string): readonly string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' }).filter((path) =>
    path.endsWith('.ts'),
  );
/** Folders of pure rules. */
const FOLDERS = ['rules', 'migration', 'topology', 'volumes'];
/** Files in them that are no rules. */
const NO_RULES = /^src\/topology\/node-watch\.ts$/;
const RULES = FOLDERS.flatMap((folder) =>
  sourcesIn(`src/${folder}`).map((path) => `src/${folder}/${path}`),
).filter((path) => !NO_RULES.test(path));

/** Tests that are not measured: this one, and those that need an API server or Redis. */
const LEFT_OUT = /^(coverage|node-watch)\.test\.ts$/;
const TESTS = FOLDERS.flatMap((folder) =>
  sourcesIn(`test/${folder}`).map((path) => `${folder}/${path}`),
).filter(
  (path) =>
    path.endsWith('.test.ts') && !path.includes('/scenarios/') && !LEFT_OUT.test(basename(path)),
);

/** A program that runs the tests in one process, which is much faster than one for each file. It
 * also loads every rule: a rule that no test loads would not be measured. */
function programOfAllTests(): string {
  const modules = [
    ...RULES.map((path) => `#${path}`),
    ...TESTS.map((path) => `./dist-dev/test/${path.replace(/ts$/, 'js')}`),
  ];
  return modules.map((module) => `import '${module}';`).join('\n');
}

/** The part of c8's report on one source file that is read here: counts of branches and functions
 * by number, and the line of each. */
interface Counts {
  readonly b: Readonly<Record<string, readonly number[]>>;
  readonly branchMap: Readonly<Record<string, { readonly line: number }>>;
  readonly f: Readonly<Record<string, number>>;
  readonly fnMap: Readonly<Record<string, { readonly line: number; readonly name: string }>>;
}

/** Counts by path of the TypeScript source. */
function measureCoverage(): ReadonlyMap<string, Counts> {
  const folder = mkdtempSync(join(tmpdir(), 'sutler-coverage-'));
  const c8 = [
    ...FOLDERS.map((folder) => `--include=src/${folder}/**`),
    '--exclude-after-remap',
    '--reporter=json',
    `--temp-directory=${folder}`,
    `--reports-dir=${folder}`,
  ];
  const program = [
    '--test-reporter=dot',
    '--test-reporter-destination=stdout',
    '--input-type=module',
    `--eval=${programOfAllTests()}`,
  ];
  // With this variable the child would report to the runner of this test.
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
    assert.equal(status, 0, `a test fails, so coverage is unknown:\n${stdout}${stderr}`);
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

/** The branches that are never taken, and the functions that are never called: V8 does not count
 * the branches inside those. */
function findMissed(path: string, counts: Counts | undefined): readonly string[] {
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
    const measured = measureCoverage();
    assert.deepEqual(
      RULES.flatMap((path) => findMissed(path, measured.get(path))),
      [],
    );
  });
});
