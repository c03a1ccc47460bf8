/* node scripts/bundle.mjs FOLDER: joins src/ and all packages that it loads into a few large files
 * in FOLDER, for the image and for npm's tarball. Node then opens some twenty files to start a
 * process instead of 900, which takes about half of the time, and whoever installs the tarball gets
 * the packages of the lock file, `overrides` included. */
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));

/** BullMQ loads these, if ever, for databases and tracing that sutler does not use. */
const OUTSIDE = ['pg', 'redis', 'bullmq-otel'];

/** The licences of the packages in the bundle. Those of Bull Board's pages are beside the pages. */
const NOTICES = 'THIRD-PARTY-NOTICES.txt';

/** Options of esbuild for every program that joins src/ with its packages. */
export const options = {
  absWorkingDir: root,
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  external: OUTSIDE,
  sourcemap: true,
  sourcesContent: false,
  // For CommonJS packages, which call require.
  banner: {
    js: [
      "import { createRequire as makeRequire } from 'node:module';",
      'const require = makeRequire(import.meta.url);',
    ].join('\n'),
  },
  logLevel: 'warning',
};

if (process.argv[1] === fileURLToPath(import.meta.url)) await bundle(process.argv[2] ?? 'bundle');

async function bundle(folder) {
  const { metafile } = await build({
    ...options,
    entryPoints: ['src/cli.ts'],
    outdir: folder,
    // As deep as the folders of dist/, because sources name package.json and cli.js relative to
    // themselves.
    chunkNames: 'parts/[name]-[hash]',
    metafile: true,
  });
  // Bull Board's pages, which src/dashboard/boards.ts finds here.
  const ui = dirname(createRequire(import.meta.url).resolve('@bull-board/ui/package.json'));
  cpSync(join(ui, 'dist'), join(folder, 'bull-board-ui', 'dist'), { recursive: true });
  const packages = Object.keys(metafile.inputs).flatMap(packageOf);
  writeFileSync(join(folder, NOTICES), noticesOf([...packages, ui]));
}

/** The folder of the package that a file belongs to; none for a file of ours. */
function packageOf(file) {
  const [, folder] = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file) ?? [];
  return folder === undefined ? [] : [join(root, folder)];
}

/** Names each package with its licence, and repeats the texts that the licences ask for. */
function noticesOf(folders) {
  const notices = [...new Set(folders)].map((folder) => {
    const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const files = readdirSync(folder).filter((file) => /^(licen[cs]e|notice|copying)/i.test(file));
    const texts = files.map((file) => readFileSync(join(folder, file), 'utf8').trim());
    const author = about.author?.name ?? about.author ?? about.repository?.url;
    if (texts.length === 0)
      texts.push(`By ${author}. The text is that of this licence elsewhere here.`);
    return [`${about.name} ${about.version} (${about.license})`, ...texts].join('\n\n');
  });
  return `${notices.toSorted().join(`\n\n${'-'.repeat(80)}\n\n`)}\n`;
}
