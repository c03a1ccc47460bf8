/* Joins the compiled tests, and the programs that they start, with the packages that they load:
 * opening 900 files takes most of the start of a process, and npm test starts hundreds. */
import { existsSync, readFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';
import { options } from './bundle.mjs';
import { filesIn, root } from './setup.mjs';

const FOLDERS = [
  'dist',
  ...['test', 'sandbox', 'chaos', 'generate'].map((each) => `dist-dev/${each}`),
].map((folder) => join(root, folder) + sep);
const SCRIPT = /\/dist(-dev)?\/.*\.js$/;
/** How a file names a program that it starts. */
const NAMED = /new URL\('([^']*\.js)', import\.meta\.url\)/g;
const RESOLVED = /import\.meta\.resolve\('#src\/([^']*)\.ts'\)/g;

/** @param tests  each with its path, and its name in the folder without .js
 * @returns the paths of the joined tests */
export async function joinTests(tests, folder) {
  const programs = findPrograms();
  const inFolder = (path) => join(folder, relative(root, path));
  const urlOf = (path) => pathToFileURL(programs.has(path) ? inFolder(path) : path).href;
  // Joined, a file finds others from where it was compiled, and starts joined programs.
  const load = ({ path }) => {
    if (!FOLDERS.some((own) => path.startsWith(own))) return undefined;
    const url = pathToFileURL(path);
    const contents = readFileSync(path, 'utf8')
      .replaceAll(NAMED, (_, named) => `new URL('${urlOf(fileURLToPath(new URL(named, url)))}')`)
      .replaceAll(RESOLVED, (_, named) => `'${urlOf(join(root, 'dist', `${named}.js`))}'`)
      .replaceAll('import.meta.url', `'${url.href}'`);
    return { contents };
  };
  await build({
    ...options,
    entryPoints: [
      ...tests.map(({ name, path }) => ({ in: path, out: name })),
      ...[...programs].map((path) => ({ in: path, out: relative(root, path).slice(0, -3) })),
    ],
    external: [...options.external, 'prettier'],
    outdir: folder,
    chunkNames: 'parts/[hash]',
    plugins: [{ name: 'places', setup: (plugin) => plugin.onLoad({ filter: SCRIPT }, load) }],
  });
  return tests.map(({ name }) => join(folder, `${name}.js`));
}

/** @returns the paths of all programs that a compiled file names, and of sutler's */
function findPrograms() {
  const programs = new Set([join(root, 'dist', 'cli.js')]);
  for (const path of FOLDERS.flatMap((folder) => filesIn(folder, '.js'))) {
    for (const [, named] of readFileSync(path, 'utf8').matchAll(NAMED)) {
      const program = fileURLToPath(new URL(named, pathToFileURL(path)));
      if (existsSync(program)) programs.add(program);
    }
  }
  return programs;
}
