/* npm run package [-- FOLDER]: writes npm's tarball to FOLDER (default: this one). It has the
 * bundle and needs no packages, so it is not packed from the checkout, whose package.json is
 * private. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { outputOf, root, withFullLinks } from './setup.mjs';

const [destination = '.'] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), 'sutler-package-'));
process.on('exit', () => rmSync(folder, { recursive: true }));

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const about = ['name', 'version', 'description', 'homepage', 'repository', 'bugs', 'license'];
const kept = [...about, 'type', 'bin', 'engines', 'files'];
const packed = Object.fromEntries(kept.map((key) => [key, manifest[key]]));
outputOf(process.execPath, join(root, 'scripts', 'bundle.mjs'), join(folder, 'dist'));
for (const file of packed.files.filter((file) => file !== 'dist'))
  cpSync(join(root, file), join(folder, file), { recursive: true });
const readme = readFileSync(join(root, 'README.md'), 'utf8');
writeFileSync(join(folder, 'README.md'), withFullLinks(readme));
writeFileSync(join(folder, 'package.json'), `${JSON.stringify(packed, undefined, 2)}\n`);
const packing = ['pack', folder, '--silent', '--pack-destination', resolve(destination)];
process.stdout.write(`${outputOf('npm', ...packing)}\n`);
