/* npm run package [-- FOLDER]: writes npm's tarball to FOLDER (default: this one). It has the
 * bundle and needs no packages, so it is not packed from the checkout, whose package.json is
 * private. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fail, readAddress, root } from './setup.mjs';

const [destination = '.'] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), 'sutler-package-'));
process.on('exit', () => rmSync(folder, { recursive: true }));

function run(command, args, cwd) {
  if (spawnSync(command, args, { cwd, stdio: 'inherit' }).status !== 0)
    fail(`${command} ${args.join(' ')} failed: see its output above`);
}

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const about = ['name', 'version', 'description', 'homepage', 'repository', 'bugs', 'license'];
const kept = [...about, 'type', 'bin', 'engines', 'files'];
const packed = Object.fromEntries(kept.map((key) => [key, manifest[key]]));
run(process.execPath, [join(root, 'scripts', 'bundle.mjs'), join(folder, 'dist')], root);
for (const file of packed.files.filter((file) => file !== 'dist'))
  cpSync(join(root, file), join(folder, file), { recursive: true });
// What its README links to is not all in it.
const readme = readFileSync(join(root, 'README.md'), 'utf8');
const base = `${readAddress().address}/blob/v${manifest.version}/`;
writeFileSync(join(folder, 'README.md'), readme.replaceAll(/\]\((?!https?:|#)/g, `](${base}`));
writeFileSync(join(folder, 'package.json'), `${JSON.stringify(packed, undefined, 2)}\n`);
run('npm', ['pack', '--silent', '--pack-destination', resolve(destination)], folder);
