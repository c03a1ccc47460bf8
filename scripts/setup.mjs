/* What a fresh machine needs before sutler can run: packages, compiled code, a Redis. Plain Node,
 * since it runs before npm has installed anything. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
const say = (line) => process.stderr.write(`${line}\n`);

/** Ends the script with one line. */
export function fail(line) {
  say(line);
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

/** Installs packages where they are missing or older than the lock file. */
export function install() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major < 20 || (major === 20 && minor < 18))
    fail(`Node ${process.versions.node} is too old: install Node 20.18 or later`);
  const installed = join(root, 'node_modules', '.package-lock.json');
  if (
    existsSync(installed) &&
    statSync(installed).mtimeMs >= statSync(join(root, 'package-lock.json')).mtimeMs
  )
    return;
  say('installing packages (npm ci) …');
  if (run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error']) !== 0)
    fail('npm ci failed: see its lines above');
}

/** Compiles; the compiler itself knows what is up to date. */
export function build() {
  if (run(process.execPath, [join(root, 'node_modules', 'typescript', 'bin', 'tsc'), '-b']) !== 0)
    fail('the build failed: see the lines above');
}

function onPath(name) {
  return (process.env.PATH ?? '')
    .split(':')
    .some((folder) => folder !== '' && existsSync(join(folder, name)));
}

/** Makes sure that there is a Redis to use: REDIS_URL, a server on PATH, else Debian's package
 * where this user may install it. */
export function findRedis() {
  if (process.env.REDIS_URL) return;
  if (onPath('redis-server') || onPath('valkey-server')) return;
  const hint =
    'no Redis found: set REDIS_URL, or install redis-server or valkey-server (Debian: apt-get install redis-server)';
  if (process.env.SUTLER_NO_INSTALL === '1' || process.getuid?.() !== 0 || !onPath('apt-get'))
    fail(hint);
  say(
    'no redis-server on PATH: installing Debian’s package redis-server (SUTLER_NO_INSTALL=1 forbids it) …',
  );
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const apt = (...args) => run('apt-get', ['-qq', ...args], { env, stdio: 'ignore' });
  // --no-install-recommends and a policy that starts nothing: we want the binary, not a service.
  if (apt('install', '-y', '--no-install-recommends', 'redis-server') === 0) return;
  apt('update');
  if (apt('install', '-y', '--no-install-recommends', 'redis-server') !== 0) fail(hint);
}

/** Files below a folder, sorted. */
export function filesIn(folder, suffix) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(suffix))
    .map((name) => join(folder, name))
    .sort();
}
