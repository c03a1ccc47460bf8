/* npm run generate:parity: writes docs/parity-cases.md from the test titles that contain the number
 * of a case. */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { build, compiledTests, fail, root, testFiles } from './setup.mjs';

build();
const files = testFiles()
  .filter((path) => !/^(real|long)\//.test(path))
  .map((path) => join(compiledTests, path))
  .filter((file) => /[A-R]-\d\d/.test(readFileSync(file, 'utf8')));
const reporter = new URL('titles-reporter.mjs', import.meta.url);
// The pattern matches no title, so node:test reports every test without running it.
const { status, stdout } = spawnSync(
  process.execPath,
  ['--test', '--test-name-pattern=^$', `--test-reporter=${reporter}`, ...files],
  { cwd: root, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 },
);
if (status !== 0) fail('the titles of the tests could not be read; run npm test first');
const tests = stdout
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => JSON.parse(line))
  .map(([file, suites, title]) => ({
    file: join('test', relative(compiledTests, file)).replace(/\.js$/, '.ts'),
    suite: suites.at(-1) ?? '',
    title,
  }));
const { readVerdicts, renderCases, testsById } = await import(
  join(compiledTests, 'harness', 'parity-cases.js')
);
const verdicts = readVerdicts(readFileSync(join(root, 'docs', 'parity.md'), 'utf8'));
const { formatMarkdown } = await import(join(compiledTests, 'harness', 'format-markdown.js'));
const page = await formatMarkdown(renderCases(testsById(tests), verdicts));
writeFileSync(join(root, 'docs', 'parity-cases.md'), page);
