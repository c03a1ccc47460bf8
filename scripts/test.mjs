/* npm test: runs all tests except the sets below; `--set real` and `--set long` run one of those.
 * Other arguments select files by a part of their path, or leave out those with it:
 * npm test -- queue/ '!queue/recovery' */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative, sep } from 'node:path';
import { build, compiledTests, fail, findRedis, install, root, testFiles } from './setup.mjs';

/** Folders of test/ that npm test leaves out: they need a control plane, or several minutes. The
 * time is for a whole file. */
const SETS = { real: { timeoutMs: 900_000 }, long: { timeoutMs: 7_200_000 } };

/** Shows that a test file needs a process of its own: it measures it, starts processes, or has
 * hooks outside of a suite, which would apply to the tests of other files. So do those of e2e/: one
 * after another they would take longer than a file may. */
const NEEDS_A_PROCESS =
  /\b(performance|memoryUsage)\b|node:child_process|\bprocess\.|^(before|after)(Each)?\(/m;

/** Files that share a process: starting one takes 0.3 s of CPU, and more than this many would be
 * the last that run. */
const FILES_PER_PROCESS = 8;

/** Many tests wait for a process or a period: one takes a third of a processor, in the mean. A few
 * less than would fit, since some tests bound how long something takes. */
const CONCURRENCY = Math.ceil(2.5 * availableParallelism());

/** Folders whose tests take long. They begin first, so that none is left alone at the end. */
const LONG = [
  'e2e',
  'interleavings',
  'gateway-scenarios',
  'capacity',
  'chaos',
  'redis-faults',
  'driver-config',
  'model',
  'sandbox',
  'change-over',
  'ingest',
  'operator',
  'packages',
];

const args = process.argv.slice(2);
const at = args.indexOf('--set');
const set = at === -1 ? undefined : args[at + 1];
if (set !== undefined && !(set in SETS))
  fail(`there is no test set ${set}; choose ${Object.keys(SETS).join(' or ')}`);
const patterns = args.filter(
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
const setOf = (path) => Object.keys(SETS).find((name) => path.startsWith(`${name}/`));
const excluded = patterns.flatMap((pattern) => (pattern.startsWith('!') ? [pattern.slice(1)] : []));
const included = patterns.filter((pattern) => !pattern.startsWith('!'));
const files = testFiles()
  .filter((path) => setOf(path) === set)
  .map((path) => join(compiledTests, path))
  .filter((file) => included.length === 0 || included.some((part) => file.includes(part)))
  .filter((file) => !excluded.some((part) => file.includes(part)));
if (files.length === 0) fail(`no test file matches ${patterns.join(', ')}`);
const timeoutMs = SETS[set]?.timeoutMs ?? 300_000;
// Beside the compiled tests, since packages are found from there.
const folder = mkdtempSync(join(compiledTests, '..', 'joined-'));
// Ctrl-C ends the tests, and then this process removes the folder.
process.on('SIGINT', () => undefined);
const failures = join(folder, 'failures');
// The sets, and measures of coverage, run what tsc compiled.
const isJoined = set === undefined && process.env.NODE_V8_COVERAGE === undefined;
const rankOf = ([file]) => [...LONG, folderOf(file)].indexOf(folderOf(file));
const programs = groupFiles(files)
  .sort((a, b) => rankOf(a) - rankOf(b))
  .map(toProgram);
const { joinTests } = await import('./join-tests.mjs');
const processes = isJoined ? await joinTests(programs, folder) : programs.map(({ path }) => path);
// The tap reporter ends with the counts on every version of Node.
const reporters = [
  '--test-reporter=tap',
  '--test-reporter-destination=stdout',
  `--test-reporter=${new URL('failures-reporter.mjs', import.meta.url)}`,
  `--test-reporter-destination=${failures}`,
];
const { status } = spawnSync(
  process.execPath,
  [
    // Costs a tenth of the time; failures-reporter.mjs translates the places of joined tests.
    ...(isJoined ? [] : ['--enable-source-maps']),
    // As src/runtime/process.ts has it, for tests that run processes of sutler within their own.
    '--import',
    'data:text/javascript,import { setMaxListeners } from "node:events"; setMaxListeners(Infinity)',
    '--test',
    ...reporters,
    `--test-concurrency=${set === undefined ? CONCURRENCY : 2}`,
    `--test-timeout=${timeoutMs}`,
    ...processes,
  ],
  { cwd: root, stdio: 'inherit' },
);
// Failures are repeated at the end: they are hard to find among thousands of lines, and some logs
// keep only the last ones.
if (status !== 0 && existsSync(failures)) process.stdout.write(readFileSync(failures));
rmSync(folder, { recursive: true });
process.exit(status ?? 1);

/** @returns the files of each process: several of one folder, or one that needs it alone */
function groupFiles(all) {
  const groups = [];
  const open = new Map();
  for (const file of all) {
    const group = open.get(folderOf(file));
    if (
      set !== undefined ||
      folderOf(file) === 'e2e' ||
      NEEDS_A_PROCESS.test(readFileSync(file, 'utf8'))
    ) {
      groups.push([file]);
    } else if (group !== undefined && group.length < FILES_PER_PROCESS) {
      group.push(file);
    } else {
      open.set(folderOf(file), [file]);
      groups.push(open.get(folderOf(file)));
    }
  }
  return groups;
}

function folderOf(file) {
  return relative(compiledTests, file).split(sep)[0];
}

/** @returns the program that runs the files of a process; they start in the order of their names */
function toProgram(group, index) {
  const [file] = group;
  const name = `${String(index).padStart(3, '0')}-${folderOf(file)}.test`;
  if (group.length === 1) return { name, path: file };
  const path = join(folder, `${name}.mjs`);
  writeFileSync(path, group.map((each) => `import '${each}';\n`).join(''));
  return { name, path };
}
