/* node scripts/bundle.mjs FOLDER: joins src/ and all packages that it loads into a few large files
 * in FOLDER, for the image and for npm's tarball. Node then opens some twenty files to start a
 * process instead of 900, which takes about half of the time, and whoever installs the tarball gets
 * the packages of the lock file, `overrides` included. */
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { builtinModules, createRequire } from 'node:module';
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

/** What is left of modules that sutler needs a part of, or nothing, by their path in node_modules/:
 * the whole takes twice the memory when it is loaded. */
const PARTS = {
  // Without fetch, WebSocket, caches and mocks.
  'undici/index.js': `
    Object.assign(require('./lib/dispatcher/dispatcher').prototype, require('./lib/api'));
    exports.Pool = require('./lib/dispatcher/pool');
    exports.ProxyAgent = require('./lib/dispatcher/proxy-agent');`,
  // Its other database, and jobs that repeat.
  'bullmq/dist/cjs/postgres/index.js': '',
  'cron-parser/dist/index.js': '',
  // Redis Cluster, which has no place for scripts that use several keys.
  'ioredis/built/cluster/index.js': 'exports.default = class {};',
  // Services that are described by a file which is read when the process starts.
  '@grpc/proto-loader/build/src/index.js': '',
  'prom-client/lib/cluster.js': 'module.exports = class {};',
  'prom-client/lib/pushgateway.js': '',
};

/** Loads parts of packages, and modules of Node by `require`: an import reads every export, and
 * those of node:http load a second undici. */
const lean = {
  name: 'lean',
  setup(plugin) {
    const builtin = new RegExp(`^(node:)?(${builtinModules.join('|')})$`);
    plugin.onResolve({ filter: builtin }, ({ path, kind }) =>
      kind === 'import-statement' ? { path, namespace: 'node' } : { path, external: true },
    );
    plugin.onLoad({ filter: /.*/, namespace: 'node' }, ({ path }) => ({
      contents: `module.exports = require(${JSON.stringify(path)});`,
    }));
    plugin.onLoad({ filter: /node_modules/ }, ({ path }) => {
      const contents = PARTS[path.split('node_modules/').at(-1)];
      return contents === undefined ? undefined : { contents, resolveDir: dirname(path) };
    });
  },
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
    plugins: [lean],
    // Names stay, since they are in stack traces.
    minifyWhitespace: true,
    minifySyntax: true,
    lineLimit: 200,
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
