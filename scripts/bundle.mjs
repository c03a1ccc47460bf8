/* node scripts/bundle.mjs FOLDER: joins src/ and the packages that it loads into a few large files
 * in FOLDER, for the image. Node then opens some twenty files to start a process instead of 900,
 * which takes about half of the time. What is in OUTSIDE stays in node_modules. */
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));
const [folder = 'bundle'] = process.argv.slice(2);

const OUTSIDE = [
  // Serves pages from its own folder; loads express.
  '@bull-board/api',
  '@bull-board/express',
  'express',
  // Large, and loaded only where a plug-in of a kubeconfig logs in.
  '@kubernetes/client-node',
  // BullMQ loads these, if ever, for databases and tracing that sutler does not use.
  'pg',
  'redis',
  'bullmq-otel',
];

await build({
  absWorkingDir: root,
  entryPoints: ['src/cli.ts'],
  outdir: folder,
  // As deep as the folders of dist/, because sources name package.json and cli.js relative to
  // themselves.
  chunkNames: 'parts/[name]-[hash]',
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
});
