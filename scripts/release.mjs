/* npm run release -- COMMAND: makes what .github/workflows/release.yml publishes; itself it
 * publishes nothing.
 *   version VERSION            writes the version wherever it stands, and into CHANGELOG.md
 *   names                      prints VERSION, IMAGE and CHARTS as lines of $GITHUB_ENV. Fails
 *                              where the tag or the repository is not what the files name
 *   files FOLDER               writes npm's tarball, which is kubectl's plug-in too, krew's
 *                              manifest for it, the list of the npm packages in it (CycloneDX), the
 *                              notes from CHANGELOG.md, and the checksums
 *   chart FOLDER IMAGE@DIGEST  writes the chart, with that image, for helm to package */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { stringify } from 'yaml';
import { fail, root } from './setup.mjs';

/** Where images and charts go; GitHub's own, so that its token may write there. */
const REGISTRY = 'ghcr.io';

const readText = (path) => readFileSync(join(root, path), 'utf8');
const { version, description, engines, repository } = JSON.parse(readText('package.json'));
const address = repository.url.replace(/^git\+|\.git$/g, '');
/** Where the files of this version can be read. */
const files = `${address}/blob/v${version}/`;
const [, name] = /^https:\/\/github\.com\/(.+)$/.exec(address) ?? [];

/** @returns what the command printed */
function run(command, args, options = {}) {
  const { status, stdout, error } = spawnSync(command, args, {
    cwd: root,
    stdio: ['ignore', 'pipe', 2],
    maxBuffer: 1e8,
    encoding: 'utf8',
    ...options,
  });
  if (error) fail(`${command} can't be run: ${error.message}`);
  if (status !== 0) fail(`${command} ${args.join(' ')} failed: see its output above`);
  return stdout;
}

/** Where the image is named with its version. */
const NAMED = ['README.md', 'docs', 'k8s', 'charts/sutler/values.template'];

function writeVersion(next) {
  if (!/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(next)) fail(`${next}: write a version as 0.2.0`);
  const naming = new RegExp(
    `(sutler(?:-sample-driver)?:|newTag: )${version.replaceAll('.', '\\.')}`,
    'g',
  );
  for (const file of run('git', ['ls-files', '-z', ...NAMED])
    .split('\0')
    .filter((path) => path !== '')) {
    const text = readText(file);
    const renamed = text.replace(naming, `$1${next}`);
    if (renamed !== text) writeFileSync(join(root, file), renamed);
  }
  const today = new Date().toISOString().slice(0, 10);
  const changes = readText('CHANGELOG.md').replace('## Unreleased', `## ${next} (${today})`);
  writeFileSync(join(root, 'CHANGELOG.md'), changes);
  run('npm', ['version', next, '--allow-same-version', '--no-git-tag-version']);
  run('npm', ['run', 'generate:chart']);
}

function printNames() {
  const { GITHUB_REF_TYPE, GITHUB_REF_NAME, GITHUB_REPOSITORY } = process.env;
  if (GITHUB_REF_TYPE === 'tag' && GITHUB_REF_NAME !== `v${version}`)
    fail(`the tag is ${GITHUB_REF_NAME}: package.json has version ${version}; tag v${version}`);
  if (GITHUB_REF_TYPE === 'tag' && sectionOf(version) === undefined)
    fail(`CHANGELOG.md has no section "## ${version}": run npm run release -- version ${version}`);
  if (GITHUB_REPOSITORY !== undefined && GITHUB_REPOSITORY !== name)
    fail(
      `this repository is ${GITHUB_REPOSITORY}: package.json names ${name}; ` +
        'CONTRIBUTING.md#the-address-of-the-repository says what to change',
    );
  const names = {
    VERSION: version,
    IMAGE: `${REGISTRY}/${name}`,
    CHARTS: `${REGISTRY}/${name}/charts`,
  };
  for (const [key, value] of Object.entries(names)) process.stdout.write(`${key}=${value}\n`);
}

/** The text below a heading of CHANGELOG.md, its links made absolute. */
function sectionOf(title) {
  const [, ...sections] = readText('CHANGELOG.md').split(/^## /m);
  const section = sections.find((text) => text.split('\n', 1)[0].split(' ')[0] === title);
  const links = /\]\((?!https?:|#)/g;
  return section?.slice(section.indexOf('\n')).trim().replaceAll(links, `](${files}`);
}

function writeFiles(folder) {
  mkdirSync(folder, { recursive: true });
  run(process.execPath, [join(root, 'scripts', 'package.mjs'), folder]);
  const tarball = `sutler-${version}.tgz`;
  const write = (file, text) => writeFileSync(join(folder, file), text);
  const sumOf = (file) =>
    createHash('sha256')
      .update(readFileSync(join(folder, file)))
      .digest('hex');
  write(
    `sutler-${version}.cdx.json`,
    run('npm', ['sbom', '--sbom-format=cyclonedx', '--omit=dev']),
  );
  write('sutler.yaml', stringify(krewManifest(tarball, sumOf(tarball))));
  const notes = sectionOf(version) ?? sectionOf('Unreleased');
  if (notes === undefined) fail(`CHANGELOG.md has no section "## ${version}": write one`);
  write('notes.md', `${notes}\n`);
  const made = readdirSync(folder).filter((file) => file.startsWith('sutler'));
  write('SHA256SUMS', made.map((file) => `${sumOf(file)}  ${file}\n`).join(''));
}

/** What kubectl's plug-in manager installs: npm's tarball, which Node runs. */
function krewManifest(tarball, sha256) {
  return {
    apiVersion: 'krew.googlecontainertools.github.com/v1alpha2',
    kind: 'Plugin',
    metadata: { name: 'sutler' },
    spec: {
      version: `v${version}`,
      homepage: address,
      shortDescription: 'Says why claims are pending, and finds leaked volumes',
      description: `${description}\nThis plug-in has the commands that look at it and help it.\n`,
      caveats: `It needs Node (${engines.node}) on PATH, and REDIS_URL: see\n${address}#operate-it\n`,
      platforms: [
        {
          selector: {
            matchExpressions: [{ key: 'os', operator: 'In', values: ['darwin', 'linux'] }],
          },
          uri: `${address}/releases/download/v${version}/${tarball}`,
          sha256,
          files: [{ from: 'package/*', to: '.' }],
          bin: 'dist/cli.js',
        },
      ],
    },
  };
}

function writeChart(folder, image) {
  if (!/^\S+:\S+@sha256:[0-9a-f]{64}$/.test(image))
    fail(`the image is ${image}: name it as IMAGE:TAG@sha256:DIGEST`);
  cpSync(join(root, 'charts', 'sutler'), folder, { recursive: true });
  const values = readText('charts/sutler/values.yaml');
  const named = values.replace(/^image: .*$/m, `image: ${image}`);
  if (named === values) fail('charts/sutler/values.yaml has no line "image: …"');
  writeFileSync(join(folder, 'values.yaml'), named);
  const page = readText('charts/sutler/README.md').replaceAll('](../../', `](${files}`);
  writeFileSync(join(folder, 'README.md'), page);
}

const [command, target, image] = process.argv.slice(2);
const isComplete = { version: target, names: true, files: target, chart: target && image };
if (!isComplete[command])
  fail(
    'Usage: npm run release -- version VERSION | names | files FOLDER | chart FOLDER IMAGE@DIGEST',
  );
if (name === undefined) fail(`package.json: repository is ${address}: name one of GitHub`);
if (command === 'names') printNames();
if (command === 'version') writeVersion(target);
if (command === 'files') writeFiles(resolve(target));
if (command === 'chart') writeChart(resolve(target), image);
