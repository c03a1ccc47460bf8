/* node scripts/bundle.mjs FOLDER: joins src/ and all packages that it loads into a few large files
 * in FOLDER, for the image and for npm's tarball. Node then opens some twenty files to start a
 * process instead of 900, which takes about half of the time, and whoever installs the tarball gets
 * the packages of the lock file, `overrides` included. */
import { cpSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));

/** BullMQ loads these, if ever, for databases and tracing that sutler does not use. */
const OUTSIDE = ['pg', 'redis', 'bullmq-otel'];

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
  await build({
    ...options,
    entryPoints: ['src/cli.ts'],
    outdir: folder,
    // As deep as the folders of dist/, because sources name package.json and cli.js relative to
    // themselves.
    chunkNames: 'parts/[name]-[hash]',
  });
  // Bull Board's pages, which src/dashboard/boards.ts finds here.
  const ui = dirname(createRequire(import.meta.url).resolve('@bull-board/ui/package.json'));
  cpSync(join(ui, 'dist'), join(folder, 'bull-board-ui', 'dist'), { recursive: true });
}
