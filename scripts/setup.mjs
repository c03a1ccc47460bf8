/* The steps that a fresh machine needs before sutler can run: install packages, compile, find a
 * Redis. Uses Node only, because it runs before npm has installed anything. */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, lstatSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { judgeNode } from './judge-node.mjs';

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
const print = (line) => process.stderr.write(`${line}\n`);

/** Prints one line and exits with 1. */
export function fail(line) {
  print(line);
  process.exit(1);
}

function run(command, args, options = {}) {
  const { status, error } = spawnSync(command, args, {
    cwd: root,
    stdio: ['ignore', 2, 2],
    ...options,
  });
  if (error) fail(`${command} can't be run: ${error.message}`);
  return status ?? 1;
}

/** Runs a program in the checkout; what it writes to stderr is shown. Fails if it fails.
 * @returns what it printed */
export function outputOf(command, ...args) {
  const stdio = ['ignore', 'pipe', 2];
  const { status, stdout, error } = spawnSync(command, args, {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 1e8,
    stdio,
  });
  if (error) fail(`${command} can't be run: ${error.message}`);
  if (status !== 0) fail(`${command} ${args.join(' ')} failed: see its output above`);
  return stdout.trim();
}

/** The address of the repository, as package.json names it, its OWNER/NAME on GitHub, and where the
 * files of this version can be read. */
export function readAddress() {
  const { repository, version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const address = repository.url.replace(/^git\+|\.git$/g, '');
  const [, name] = /^https:\/\/github\.com\/([^/]+\/[^/]+)$/.exec(address) ?? [];
  if (name === undefined) fail(`package.json: repository is ${address}: name one of GitHub`);
  return { address, name, files: `${address}/blob/v${version}/` };
}

/** A page of the root, for readers who have it without the files that it links to. */
export function withFullLinks(page) {
  return page.replaceAll(/\]\((?!https?:|#)/g, `](${readAddress().files}`);
}

/** Fails on a version of Node that is too old, and warns of one that no test ran on. */
function checkNode() {
  const { engines } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const { verdict, line } = judgeNode(process.versions.node, engines.node);
  if (verdict === 'too old') fail(line);
  if (verdict === 'untested') print(line);
}

/** Installs packages if they are missing or older than the lock file. */
export function install() {
  checkNode();
  const installed = join(root, 'node_modules', '.package-lock.json');
  if (
    existsSync(installed) &&
    statSync(installed).mtimeMs >= statSync(join(root, 'package-lock.json')).mtimeMs
  )
    return;
  // npm ci would empty the folder that a link leads to, and with it every folder that shares it.
  const folder = join(root, 'node_modules');
  if (lstatSync(folder, { throwIfNoEntry: false })?.isSymbolicLink())
    fail(`${folder} is a link to packages older than the lock file: replace it, then run npm ci`);
  print('Installing packages (npm ci) …');
  if (run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error']) !== 0)
    fail('npm ci failed: see its output above');
}

/** Compiles all projects; the compiler skips those that are up to date. */
export function build() {
  print('Compiling (half a minute the first time) …');
  if (run(process.execPath, [join(root, 'node_modules', 'typescript', 'bin', 'tsc'), '-b']) !== 0)
    fail('the build failed: see the output above');
}

/** Whether a program can be started by its name. */
export function onPath(name) {
  return (process.env.PATH ?? '')
    .split(':')
    .some((folder) => folder !== '' && existsSync(join(folder, name)));
}

/** Checks that REDIS_URL is set or a Redis server is on PATH. If not, installs the Debian package
 * when run as root on Debian, and fails elsewhere. */
export function findRedis() {
  if (process.env.REDIS_URL) return;
  if (onPath('redis-server') || onPath('valkey-server')) return;
  const hint =
    'no Redis found: set REDIS_URL, or install redis-server or valkey-server ' +
    '(Debian: apt-get install redis-server)';
  if (process.env.SUTLER_NO_INSTALL === '1' || process.getuid?.() !== 0 || !onPath('apt-get'))
    fail(hint);
  print(
    'No redis-server on PATH: installing the Debian package redis-server ' +
      '(SUTLER_NO_INSTALL=1 prevents this) …',
  );
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const apt = (...args) => run('apt-get', ['-qq', ...args], { env, stdio: 'ignore' });
  // Only the program is needed, so recommended packages are left out.
  if (apt('install', '-y', '--no-install-recommends', 'redis-server') === 0) return;
  apt('update');
  if (apt('install', '-y', '--no-install-recommends', 'redis-server') !== 0) fail(hint);
}

/** Runs a compiled program of dist-dev with this script's arguments, and exits with its code. */
export function runCompiled(path) {
  const program = join(root, 'dist-dev', path);
  const child = spawn(process.execPath, [program, ...process.argv.slice(2)], { stdio: 'inherit' });
  // Ctrl-C also reaches the child, which stops what it started before it exits.
  process.on('SIGINT', () => undefined);
  process.on('SIGTERM', () => child.kill('SIGTERM'));
  child.on('exit', (code, signal) => process.exit(code ?? (signal === null ? 1 : 128)));
}

/** Files below a folder, sorted. */
export function filesIn(folder, suffix) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(suffix))
    .map((name) => join(folder, name))
    .sort();
}

/** Folder of the compiled tests. */
export const compiledTests = join(root, 'dist-dev', 'test');

/** Compiled test files by their path below `compiledTests`. Compiled files of deleted or renamed
 * tests stay in dist-dev; they have no source any more and are left out. */
export function testFiles() {
  const hasSource = (path) => existsSync(join(root, 'test', path.replace(/\.js$/, '.ts')));
  return filesIn(compiledTests, '.test.js')
    .map((file) => relative(compiledTests, file))
    .filter(hasSource);
}
