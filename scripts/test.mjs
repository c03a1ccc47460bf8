/* npm test: runs all tests except the sets below; `--set real` and `--set long` run one of those.
 * Other arguments select files by a part of their path: npm test -- queue/ */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { build, fail, filesIn, findRedis, install, root } from './setup.mjs';

/** Folders of test/ with commands of their own: they need a control plane, or several minutes. */
const SETS = { real: { timeoutMs: 900_000 }, long: { timeoutMs: 1_800_000 } };

const args = process.argv.slice(2);
const at = args.indexOf('--set');
const set = at === -1 ? undefined : args[at + 1];
if (set !== undefined && !(set in SETS))
  fail(`there is no test set ${set}; choose ${Object.keys(SETS).join(' or ')}`);
const wanted = args.filter(
  (arg, index) => !arg.startsWith('--') && (at === -1 || index !== at + 1),
);
if (set === 'real' && !process.env.KUBEBUILDER_ASSETS && !process.env.KUBECONFIG) {
  fail(
    'test:real needs a control plane: set KUBEBUILDER_ASSETS to a folder with kube-apiserver and ' +
      'etcd (kube-controller-manager and kube-scheduler in it, or named by ' +
      'KUBE_CONTROLLER_MANAGER and KUBE_SCHEDULER), or KUBECONFIG to a test cluster',
  );
}
install();
build();
findRedis();
const compiled = join(root, 'dist-dev', 'test');
const setOf = (file) =>
  Object.keys(SETS).find((name) => relative(compiled, file).startsWith(`${name}/`));
// Compiled files of deleted or renamed tests stay in dist-dev; they have no source any more.
const hasSource = (file) =>
  existsSync(join(root, 'test', relative(compiled, file).replace(/\.js$/, '.ts')));
const files = filesIn(compiled, '.test.js')
  .filter((file) => setOf(file) === set && hasSource(file))
  .filter((file) => wanted.length === 0 || wanted.some((part) => file.includes(part)));
if (files.length === 0) fail(`no test file matches ${wanted.join(', ')}`);
const timeoutMs = SETS[set]?.timeoutMs ?? 180_000;
const notes = mkdtempSync(join(tmpdir(), 'sutler-test-'));
const failures = join(notes, 'failures');
// Only with tap are the counts the last lines on every version of Node.
const reporters = [
  '--test-reporter=tap',
  '--test-reporter-destination=stdout',
  `--test-reporter=${new URL('failures-reporter.mjs', import.meta.url)}`,
  `--test-reporter-destination=${failures}`,
];
const { status } = spawnSync(
  process.execPath,
  [
    '--enable-source-maps',
    '--test',
    ...reporters,
    '--test-concurrency=2',
    `--test-timeout=${timeoutMs}`,
    ...files,
  ],
  { cwd: root, stdio: 'inherit' },
);
// Failures are repeated at the end: they are hard to find among thousands of lines, and some logs
// keep only the last ones.
if (status !== 0 && existsSync(failures)) process.stdout.write(readFileSync(failures));
rmSync(notes, { recursive: true });
process.exit(status ?? 1);
