import type { FlagSpec, FlagTable } from './flags.ts';

/** The text of `--help`.
 * @param word  name of the one argument that is not a flag, where the process takes one */
export function renderHelp(
  process: string,
  summary: string,
  table: FlagTable,
  word?: string,
): string {
  const rows = sortByName(table).map(([name, spec]) => {
    const short = spec.short === undefined ? '    ' : `-${spec.short}, `;
    const fallback = defaultText(spec);
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

function sortByName(table: FlagTable): readonly (readonly [string, FlagSpec])[] {
  return Object.entries(table).sort(([a], [b]) => a.localeCompare(b));
}

function defaultText(spec: FlagSpec): string {
  return spec.type === 'labels' ? '' : String(spec.default ?? '');
}

function metavariable(spec: FlagSpec): string {
  switch (spec.type) {
    case 'bool':
      return '';
    case 'durationMs':
      return 'DURATION';
    case 'labels':
      return 'KEY:VALUE,…';
    case 'strings':
      return 'TEXT,…';
    case 'int':
    case 'float':
      return 'NUMBER';
    case 'string':
      return spec.values?.join('|') ?? 'TEXT';
  }
}
