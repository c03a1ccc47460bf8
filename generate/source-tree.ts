import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

const ROOT = new URL('../..', import.meta.url).pathname;
const SRC = join(ROOT, 'src');

/** Ranks of the folders and files at the top of src/: a file may import its own folder, or one of
 * strictly lower rank. */
export const RANK: Readonly<Record<string, number>> = {
  runtime: 0,
  kube: 1,
  csi: 1,
  redis: 1,
  rules: 2,
  'gateway-client': 3,
  journal: 3,
  migration: 3,
  topology: 3,
  driver: 4,
  volumes: 4,
  queue: 5,
  election: 5,
  hints: 6,
  'driver-config': 6,
  connections: 7,
  webhooks: 7,
  audit: 9,
  explain: 9,
  capacity: 9,
  ingest: 10,
  jobs: 10,
  'csi-gateway': 10,
  dashboard: 10,
  all: 11,
  operator: 10,
  'dispatch.ts': 12,
  'processes.ts': 13,
  'cli.ts': 14,
};

export interface SourceFile {
  /** From src/ on. */
  readonly path: string;
  /** First part of the path. */
  readonly folder: string;
  readonly text: string;
}

export interface Import {
  readonly path: string;
  readonly folder: string;
  readonly specifier: string;
  /** Imported file, from src/ on; undefined for a package. */
  readonly target: string | undefined;
  /** Folder of the imported file; '' for a package. */
  readonly to: string;
}

/** Every source file of src/ that is written by hand. */
export const files: readonly SourceFile[] = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((path) => path.endsWith('.ts') && !path.includes('generated/'))
  .map((path) => ({ path, folder: folderOf(path), text: readFileSync(join(SRC, path), 'utf8') }));

/** Every import in them, of types too. */
export const imports: readonly Import[] = files.flatMap(({ path, folder, text }) =>
  [...text.matchAll(/(?:\bfrom|\bimport)\s*\(?\s*['"]([^'"\n]+)['"]/g)].map(
    ([, specifier = '']) => {
      const isOurs = specifier.startsWith('.');
      const target = isOurs ? normalize(join(dirname(path), specifier)) : undefined;
      return { path, folder, specifier, target, to: target === undefined ? '' : folderOf(target) };
    },
  ),
);

function folderOf(path: string): string {
  return path.split('/')[0] ?? '';
}

const BEGIN = '<!-- generated: folders -->';
const END = '<!-- end of generated: folders -->';

/** The text of docs/architecture.md with the drawing of the folders as they are now. */
export function withFolderDrawing(page: string): string {
  const [before, rest] = split(page, BEGIN);
  const [, after] = split(rest, END);
  return `${before}${BEGIN}\n\n${folderDrawing()}\n\n${END}${after}`;
}

function split(text: string, mark: string): readonly [string, string] {
  const at = text.indexOf(mark);
  if (at === -1) throw new Error(`docs/architecture.md has no line ${mark}`);
  return [text.slice(0, at), text.slice(at + mark.length)];
}

/** A Mermaid flowchart: folders by rank, an arrow for each import that no longer way implies. */
function folderDrawing(): string {
  const folders = Object.keys(RANK).filter((name) => !name.endsWith('.ts'));
  const targets = new Map(folders.map((folder) => [folder, importedBy(folder)]));
  const reach = (from: string): ReadonlySet<string> =>
    new Set([...(targets.get(from) ?? [])].flatMap((next) => [next, ...reach(next)]));
  const arrows = folders.flatMap((folder) => {
    const direct = [...(targets.get(folder) ?? [])];
    return direct
      .filter((to) => !direct.some((other) => other !== to && reach(other).has(to)))
      .map((to) => `  ${idOf(folder)} --> ${idOf(to)}`);
  });
  const ranks = [...new Set(folders.map((folder) => RANK[folder] ?? 0))].sort((a, b) => b - a);
  const rows = ranks.flatMap((rank) => {
    const own = folders.filter((folder) => RANK[folder] === rank);
    return [
      `  subgraph rank${rank} ["rank ${rank}"]`,
      ...own.map((folder) => `    ${idOf(folder)}["${folder}/"]`),
      '  end',
    ];
  });
  return ['```mermaid', 'flowchart TD', ...rows, ...arrows, '```'].join('\n');
}

function importedBy(folder: string): ReadonlySet<string> {
  const own = imports.filter(
    (each) => each.folder === folder && each.to !== '' && each.to !== folder,
  );
  return new Set(own.map(({ to }) => to).sort());
}

/** Mermaid reserves no such word, whatever a folder is called. */
function idOf(folder: string): string {
  return `f_${folder.replaceAll('-', '_')}`;
}
