/* npm run test:nodes: runs npm test on the newer lines of Node that `engines` names. Arguments
 * select tests as those of npm test do; `--node 26.12.1` names one other version. The programs come
 * from the packages that npm's `node` installs for each platform, and are kept in a temporary
 * folder until the end. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fail, root } from './setup.mjs';

const VERSIONS = ['22.23.3', '24.21.0', '26.10.0'];

const args = process.argv.slice(2);
const at = args.indexOf('--node');
const versions = at === -1 ? VERSIONS : args.splice(at, 2).slice(1);
if (versions.length === 0) fail('--node needs a version, such as 24.21.0');
const folder = mkdtempSync(join(tmpdir(), 'sutler-nodes-'));
process.on('exit', () => rmSync(folder, { recursive: true }));

/** Installs a version of Node.
 * @returns the folder of its program */
function installNode(version) {
  const name = `node-${process.platform}-${process.arch}`;
  const prefix = join(folder, version);
  const { status } = spawnSync(
    'npm',
    ['install', `--prefix=${prefix}`, '--no-save', '--ignore-scripts', `${name}@${version}`],
    { cwd: folder, stdio: ['ignore', 2, 2] },
  );
  if (status !== 0) fail(`npm can't install ${name}@${version}: see its output above`);
  return join(prefix, 'node_modules', name, 'bin');
}

function runTests(version) {
  const path = [installNode(version), process.env.PATH].join(delimiter);
  process.stderr.write(`Testing with Node ${version} …\n`);
  const { status } = spawnSync('npm', ['test', '--', ...args], {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, PATH: path },
  });
  return status === 0;
}

const failed = versions.filter((version) => !runTests(version));
if (failed.length > 0) fail(`npm test failed on Node ${failed.join(', ')}`);
