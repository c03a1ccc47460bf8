/* npm run release -- COMMAND: makes what .github/workflows/release.yml publishes; itself it
 * publishes nothing.
 *   version VERSION            writes the version wherever it stands, and into CHANGELOG.md
 *   names                      prints VERSION, IMAGE and CHARTS as lines of $GITHUB_ENV. Fails
 *                              where the tag or the repository is not what the files name
 *   files FOLDER               writes npm's tarball, which is kubectl's plug-in too, krew's
 *                              manifest for it, the list of the npm packages in it (CycloneDX), the
 *                              notes from CHANGELOG.md, and the checksums
 *   chart FOLDER IMAGE@DIGEST  writes the chart, with that image, for helm to package */
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { stringify } from 'yaml';
import { fail, outputOf, readAddress, root, withFullLinks } from './setup.mjs';

/** Where images and charts go; GitHub's own, so that its token may write there. */
const REGISTRY = 'ghcr.io';

/** Where the image is named with its version. */
const NAMED = ['README.md', 'docs', 'k8s', 'charts/sutler/values.template'];

const readText = (path) => readFileSync(join(root, path), 'utf8');
const { version, description, engines } = JSON.parse(readText('package.json'));
const { address, name, files } = readAddress();
/** A release candidate has no section of its own in CHANGELOG.md: it is of what is not released. */
const isCandidate = (each) => each.includes('-');

function writeVersion(wanted) {
  const changes = readText('CHANGELOG.md');
  if (!isCandidate(wanted) && !changes.includes('## Unreleased'))
    fail('CHANGELOG.md has no "## Unreleased": write what is new under that heading, at the top');
  // Refuses what is no version.
  outputOf('npm', 'version', wanted, '--allow-same-version', '--no-git-tag-version');
  const next = JSON.parse(readText('package.json')).version;
  const today = new Date().toISOString().slice(0, 10);
  if (!isCandidate(next)) {
    const named = changes.replace('## Unreleased', `## ${next} (${today})`);
    writeFileSync(join(root, 'CHANGELOG.md'), named);
  }
  const old = version.replaceAll('.', '\\.');
  const naming = new RegExp(`(sutler(?:-sample-driver)?:|newTag: |VERSION=)${old}`, 'g');
  for (const file of outputOf('git', 'ls-files', ...NAMED).split('\n')) {
    const text = readText(file);
    const renamed = text.replace(naming, `$1${next}`);
    if (renamed !== text) writeFileSync(join(root, file), renamed);
  }
  // Another version may be longer.
  outputOf('npx', 'prettier', '--write', ...NAMED.filter((path) => !path.startsWith('charts')));
  outputOf('npm', 'run', 'generate:chart');
}

function printNames() {
  const { GITHUB_REF_TYPE, GITHUB_REF_NAME, GITHUB_REPOSITORY } = process.env;
  const isTag = GITHUB_REF_TYPE === 'tag';
  const remedy = 'npm run release -- version VERSION, commit, and tag that commit vVERSION';
  if (isTag && GITHUB_REF_NAME !== `v${version}`)
    fail(`the tag is ${GITHUB_REF_NAME}, and package.json has version ${version}: run ${remedy}`);
  if (isTag && !isCandidate(version) && sectionOf(version) === undefined)
    fail(`CHANGELOG.md has no section "## ${version}": run ${remedy}`);
  if (GITHUB_REPOSITORY !== undefined && GITHUB_REPOSITORY !== name)
    fail(
      `this repository is ${GITHUB_REPOSITORY}, and package.json names ${name}: push the tag ` +
        'there, or see CONTRIBUTING.md#the-address-of-the-repository',
    );
  // Registries know no capitals.
  const image = `${REGISTRY}/${name.toLowerCase()}`;
  process.stdout.write(`VERSION=${version}\nIMAGE=${image}\nCHARTS=${image}/charts\n`);
}

/** The text below a heading of CHANGELOG.md. */
function sectionOf(title) {
  const [, ...sections] = readText('CHANGELOG.md').split(/^## /m);
  const section = sections.find((text) => text.split('\n', 1)[0].split(' ')[0] === title);
  return section?.slice(section.indexOf('\n'));
}

function writeFiles(folder) {
  const notes = sectionOf(version) ?? sectionOf('Unreleased');
  if (notes === undefined) fail(`CHANGELOG.md has no section "## ${version}": write one`);
  mkdirSync(folder, { recursive: true });
  outputOf(process.execPath, join(root, 'scripts', 'package.mjs'), folder);
  const tarball = `sutler-${version}.tgz`;
  const sbom = `sutler-${version}.cdx.json`;
  const write = (file, text) => writeFileSync(join(folder, file), `${text.trim()}\n`);
  const sumOf = (file) => {
    const bytes = readFileSync(join(folder, file));
    return createHash('sha256').update(bytes).digest('hex');
  };
  const list = JSON.parse(outputOf('npm', 'sbom', '--sbom-format=cyclonedx', '--omit=dev'));
  // npm names it after the folder.
  list.metadata.component.name = 'sutler';
  write(sbom, JSON.stringify(list, undefined, 2));
  write('sutler.yaml', stringify(krewManifest(tarball, sumOf(tarball))));
  write('notes.md', withFullLinks(notes));
  const sums = [tarball, sbom, 'sutler.yaml'].map((file) => `${sumOf(file)}  ${file}`);
  write('SHA256SUMS', sums.join('\n'));
}

/** What kubectl's plug-in manager installs: npm's tarball, 4 MB, which Node runs. A program that
 * has Node in it would be 156 MB for each platform, 49 packed. */
function krewManifest(tarball, sha256) {
  return {
    apiVersion: 'krew.googlecontainertools.github.com/v1alpha2',
    kind: 'Plugin',
    metadata: { name: 'sutler' },
    spec: {
      version: `v${version}`,
      homepage: address,
      shortDescription: 'Says why claims are pending; finds lost volumes',
      description: `${description}\nThis plug-in has the commands for operators: status, explain, retry, audit.\n`,
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
if (command === 'names') printNames();
if (command === 'version') writeVersion(target);
if (command === 'files') writeFiles(resolve(target));
if (command === 'chart') writeChart(resolve(target), image);
