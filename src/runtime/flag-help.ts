import type { FlagSpec, FlagTable } from './flags.ts';

/** The text of `--help`.
 * @param word  name of the one argument that is not a flag, where the process takes one */
export function renderHelp(
  process: string,
  summary: string,
  table: FlagTable,
  word?: string,
): string {
  const sorted = Object.entries(table).sort(([a], [b]) => a.localeCompare(b));
  const rows = sorted.map(([name, spec]) => {
    const short = spec.short === undefined ? '    ' : `-${spec.short}, `;
    const fallback = spec.type === 'labels' ? '' : String(spec.default ?? '');
    const shown = fallback === '' ? '' : ` (default ${fallback})`;
    const env = spec.env === undefined ? '' : ` [env ${spec.env}]`;
    return `  ${short}--${name} ${metavariable(spec)}\n          ${spec.help}${shown}${env}`;
  });
  return [
    `sutler ${process}: ${summary}`,
    '',
    `Usage: sutler ${process}${word === undefined ? '' : ` ${word}`} [flags]`,
    '',
    ...rows,
    '',
  ].join('\n');
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
