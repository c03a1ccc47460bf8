import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { GENERATED } from '../generate/generated.ts';
import { processes } from '../sandbox/processes.ts';
import type { FlagSpec } from '#src/runtime/flags.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const documents = [
  'README.md',
  'CONTRIBUTING.md',
  'CHANGELOG.md',
  'CODE_OF_CONDUCT.md',
  'ROADMAP.md',
  'SECURITY.md',
  ...['docs', 'src', 'sandbox', 'k8s', 'charts', 'bench', 'chaos', 'test', 'generate'].flatMap(
    (folder) =>
      readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.md'))
        .map((name) => join(folder, name)),
  ),
];

interface Link {
  /** Path from the root. */
  readonly target: string;
  /** '' for the whole page. */
  readonly section: string;
}

function linksOf(document: string): readonly Link[] {
  return [...read(document).matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)].map(
    ([, path = '', section = '']) => ({
      target: path === '' ? document : join(dirname(document), path),
      section,
    }),
  );
}

/** The anchors that a page's headings get. */
function sectionsOf(page: string): readonly string[] {
  return [...read(page).matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  );
}

describe('documents', () => {
  for (const [name, generate] of Object.entries(GENERATED))
    it(`are what npm run generate:${name} writes`, async () => {
      for (const [path, text] of await generate()) assert.equal(read(path), text, path);
    });

  it('quote log lines as src/ writes them', () => {
    const [, section = ''] =
      /^## In the log$(.*?)^## /ms.exec(read('docs/troubleshooting.md')) ?? [];
    const entries = section.slice(section.indexOf('\n- ')).replaceAll(/\s+/g, ' ');
    const quoted = [...entries.matchAll(/`([a-zA-Z]+ [^`]*)`/g)].map(([, text = '']) => text);
    const others = ['kubectl describe', 'sutler explain'];
    const lines = quoted.filter((text) => !others.includes(text));
    assert.ok(lines.length > 15, `${lines.length} lines`);
    const sources = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .map((name) => read(join('src', name)));
    const isWritten = (line: string): boolean => sources.some((source) => source.includes(line));
    assert.deepEqual(
      lines.filter((line) => !isWritten(line)),
      [],
    );
  });

  it('list no two metrics whose names have the same words', () => {
    const names = [...read('docs/metrics.md').matchAll(/^- `(\w+)`/gm)].map(
      ([, name = '']) => name,
    );
    const words = names.map((name) => name.split('_').toSorted().join());
    assert.ok(names.length > 50);
    assert.deepEqual(
      names.filter((_, i) => words.indexOf(words[i] ?? '') !== i),
      [],
    );
  });

  for (const document of documents) {
    it(`link only to files that exist: ${document}`, () => {
      const broken = linksOf(document).filter(({ target }) => !existsSync(join(ROOT, target)));
      assert.deepEqual(broken, []);
    });

    it(`link only to sections that exist: ${document}`, () => {
      const broken = linksOf(document).filter(
        ({ target, section }) => section !== '' && !sectionsOf(target).includes(section),
      );
      assert.deepEqual(broken, []);
    });

    it(`name only source files that exist: ${document}`, () => {
      const paths = [
        ...read(document).matchAll(/`((?:src|test|examples|k8s|bench|scripts|docs)\/[\w./-]+)`/g),
      ].map((match) => match[1] ?? '');
      assert.deepEqual(
        paths.filter((path) => !existsSync(join(ROOT, path))),
        [],
      );
    });
  }

  it('name only tests that exist: docs/why.md', () => {
    const page = read('docs/why.md').replaceAll(/\s+/g, ' ');
    // A path, and after it one title or several.
    const places = page.matchAll(/`(test\/[\w/.-]+\.ts)`[:,]((?: _[^_]+_;?)+)/g);
    const named = [...places].flatMap(([, path = '', titles = '']) =>
      [...titles.matchAll(/_([^_]+)_/g)].map(([, title = '']) => ({ path, title })),
    );
    assert.ok(named.length > 10, `${named.length} titles`);
    assert.deepEqual(
      named.filter(({ path, title }) => !read(path).includes(`'${title}'`)),
      [],
    );
  });

  describe('about the versions of Node in engines of package.json', () => {
    const { engines } = JSON.parse(read('package.json')) as { engines: { node: string } };
    const oldest = engines.node.split(' || ').map((line) => line.slice(1).replace(/(\.0)+$/, ''));
    const majors = oldest.map((version) => Number.parseInt(version, 10));

    for (const page of ['README.md', 'docs/support.md'])
      it(`${page} names the oldest of each line`, () => {
        const lines = oldest.map((version, index) => {
          const major = String(majors[index]);
          return version === major ? version : `${major} (${version} or later)`;
        });
        const named = `Node ${lines.slice(0, -1).join(', ')} or ${lines.at(-1)}`;
        assert.ok(read(page).replaceAll(/\s+/g, ' ').includes(named), `${page} says: ${named}`);
      });

    it('docs/support.md says of each line what is promised', () => {
      const rows = [...read('docs/support.md').matchAll(/^\| (\d+) +\|/gm)];
      assert.deepEqual(
        rows.map(([, row]) => Number(row)),
        majors,
      );
    });

    it('npm run test:nodes runs each line but the oldest, which npm test is for', () => {
      const [, versions = ''] = /VERSIONS = \[(.*)\]/.exec(read('scripts/test-nodes.mjs')) ?? [];
      const tested = [...versions.matchAll(/'(\d+)/g)].map(([, major]) => Number(major));
      assert.deepEqual(tested, majors.slice(1));
    });
  });

  it('list every decision by its title: docs/decisions/README.md', () => {
    const index = read('docs/decisions/README.md').replaceAll(/\n {2}/g, ' ');
    const listed = index.matchAll(/^- \[(\d+)\]\((\S+)\) (.+?)(?: \(\w+ by \d+\))?$/gm);
    const titles = [...listed].map(([, number, file, title]) => [file, `# ${number}. ${title}`]);
    const files = documents.filter((path) => /^docs\/decisions\/\d/.test(path)).toSorted();
    assert.deepEqual(
      titles,
      files.map((path) => [path.replace(/.*\//, ''), read(path).split('\n', 1)[0]]),
    );
  });

  it('name images with the version of package.json', () => {
    const { version } = JSON.parse(read('package.json')) as { version: string };
    const pages = documents.filter((path) => path !== 'CONTRIBUTING.md');
    const named = pages.flatMap((path) =>
      [...read(path).matchAll(/sutler(?:-sample-driver)?:(\d+\.\d+\.\d+[\w.-]*)/g)].map(
        ([, named]) => `${path}: ${named}`,
      ),
    );
    assert.ok(named.length > 5);
    assert.deepEqual(
      named.filter((line) => !line.endsWith(`: ${version}`)),
      [],
    );
  });

  it('name both commands', () => {
    assert.match(read('README.md'), /npm start/);
    assert.match(read('README.md'), /npm test/);
  });
});

describe('flags', () => {
  it('have one type under one name in all processes, since one argument list serves all', () => {
    const types = new Map<string, string>();
    const clashes: string[] = [];
    for (const [process, { flags }] of Object.entries(processes)) {
      for (const [name, spec] of Object.entries<FlagSpec>(flags)) {
        const before = types.get(name) ?? spec.type;
        if (before !== spec.type)
          clashes.push(`--${name} is ${before} and in ${process} ${spec.type}`);
        types.set(name, before);
      }
    }
    assert.deepEqual(clashes, []);
  });

  it('include those that scripts may rely on', () => {
    const wanted: Record<string, string[]> = {
      ingest: [
        'kubeconfig',
        'master',
        'redis-url',
        'gateway',
        'http-endpoint',
        'leader-election',
        'leader-election-namespace',
        'timeout',
        'kube-api-qps',
        'kube-api-burst',
      ],
      jobs: [
        'kubeconfig',
        'master',
        'redis-url',
        'gateway',
        'http-endpoint',
        'worker-threads',
        'timeout',
        'retry-interval-start',
        'retry-interval-max',
        'kube-api-qps',
        'kube-api-burst',
      ],
      'csi-gateway': ['csi-address', 'listen', 'http-endpoint', 'timeout'],
      dashboard: ['redis-url', 'http-endpoint'],
    };
    const missing = Object.entries(wanted).flatMap(([process, names]) =>
      names
        .filter((name) => !(name in (processes[process]?.flags ?? {})))
        .map((name) => `${process} --${name}`),
    );
    assert.deepEqual(missing, []);
  });
});
