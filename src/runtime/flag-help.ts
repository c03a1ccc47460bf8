import type { FlagSpec, FlagTable } from './flags.ts';

/** What a command's help says besides its flags. A command does one thing and ends, and takes its
 * own flags only. */
export interface CommandHelp {
  /** Name of the one argument that is not a flag, where there is one. */
  readonly word?: string;
  /** What each exit status means. */
  readonly exits: Readonly<Record<number, string>>;
  /** Arguments, without the command's name. */
  readonly examples: readonly string[];
}

/** The text of `--help`: flags without a group first, then each group. */
export function renderHelp(
  process: string,
  summary: string,
  table: FlagTable,
  command?: CommandHelp,
): string {
  const groups = new Map<string, string[]>([['', []]]);
  for (const [name, spec] of Object.entries(table).sort(([a], [b]) => a.localeCompare(b))) {
    const { group = '' } = spec;
    groups.set(group, [...(groups.get(group) ?? []), renderFlag(name, spec)]);
  }
  const { word, exits = {}, examples = [] } = command ?? {};
  const call = `sutler ${process}`;
  return [
    `${call}: ${summary}`,
    '',
    `Usage: ${call}${word === undefined ? '' : ` ${word}`} [flags]`,
    ...titled(
      'Examples',
      examples.map((each) => `  ${`${call} ${each}`.trimEnd()}`),
    ),
    ...titled(
      'Exit status',
      Object.entries(exits).map(([code, text]) => `  ${code}  ${text}`),
    ),
    ...[...groups].flatMap(([group, rows]) => titled(group, rows)),
    '',
  ].join('\n');
}

function titled(title: string, rows: readonly string[]): readonly string[] {
  return rows.length === 0 ? [] : ['', ...(title === '' ? [] : [`${title}:`]), ...rows];
}

function renderFlag(name: string, spec: FlagSpec): string {
  const short = spec.short === undefined ? '    ' : `-${spec.short}, `;
  const fallback = spec.type === 'labels' ? '' : String(spec.default ?? '');
  const shown = fallback === '' ? '' : ` (default ${fallback})`;
  const env = spec.env === undefined ? '' : ` [env ${spec.env}]`;
  return `  ${short}--${name} ${metavariable(spec)}\n          ${spec.help}${shown}${env}`;
}

const METAVARIABLES: Readonly<Record<FlagSpec['type'], string>> = {
  bool: '',
  durationMs: 'DURATION',
  labels: 'KEY:VALUE,…',
  strings: 'TEXT,…',
  int: 'NUMBER',
  float: 'NUMBER',
  string: 'TEXT',
};

/** The placeholder of a flag's value: `VALUE` in `--name VALUE`. */
function metavariable(spec: FlagSpec): string {
  return (spec.type === 'string' && spec.values?.join('|')) || METAVARIABLES[spec.type];
}
