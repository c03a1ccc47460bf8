import { parseArgs } from 'node:util';
import {
  defaultValue,
  flagKey,
  type Flags,
  type FlagSpec,
  type FlagTable,
  parseValue,
  UsageError,
  ValueError,
} from './flags.ts';
import type { GivenFlags } from './own-folder.ts';

export type Parsed<T extends FlagTable> =
  | {
      readonly kind: 'run';
      readonly flags: Flags<T>;
      /** The texts of each flag of the table that was given as an argument, in order. */
      readonly given: ReadonlyMap<string, readonly string[]>;
      /** Arguments that are not flags. */
      readonly words: readonly string[];
      /** Flags of other processes that were given. */
      readonly unused: readonly string[];
      readonly warnings: readonly string[];
    }
  | { readonly kind: 'help' }
  | { readonly kind: 'version' };

export interface ParseInput {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Texts of flags that count where neither an argument nor a variable has one. */
  readonly inherited?: GivenFlags | undefined;
  /** Flags of the other processes: accepted, and named in `unused`. */
  readonly known?: FlagTable;
  /** How many arguments may be other than flags; 0 where absent. */
  readonly maxWords?: number;
  /** Flags of upstream without effect here, with upstream's defaults: accepted. Any other value
   * adds `help` to the warnings. None of them is a list. */
  readonly idle?: FlagTable;
  /** Flags that upstream once had: accepted, with the advice as a warning. */
  readonly retired?: Readonly<
    Record<string, { readonly takesValue: boolean; readonly advice: string }>
  >;
}

/** Reads arguments by the rules of pflag, which upstream uses: `--x=v`, `--x v`,
 * `--bool[=true|false]`, `-v N`. Of several values the last one counts, unless the flag is a list.
 * @throws UsageError for an unknown flag, an unreadable value, an unexpected argument */
export function parseFlags<T extends FlagTable>(table: T, input: ParseInput): Parsed<T> {
  const { argv, maxWords = 0 } = input;
  const tables: Tables = { known: {}, idle: {}, retired: {}, ...input, own: table };
  const sorted: Sorted = { given: new Map(), unused: new Set(), warnings: [] };
  const words: string[] = [];
  for (const token of tokensOf(argv, tables)) {
    if (token.kind === 'option') {
      const { name, value = 'true' } = token;
      if (name === 'help') return { kind: 'help' };
      if (name !== 'version') sortOption(token, argv[token.index] ?? '', tables, sorted);
      else if (readValue(name, SWITCH, [value]) === true) return { kind: 'version' };
    } else {
      const word = token.kind === 'positional' ? token.value : '--';
      if (words.length >= maxWords) throw new UsageError(unexpectedWord(word));
      words.push(word);
    }
  }
  const { given, unused, warnings } = sorted;
  const flags = valuesOf(table, given, input);
  return { kind: 'run', flags, given, words, unused: [...unused], warnings };
}

interface Tables extends Required<Pick<ParseInput, 'known' | 'idle' | 'retired'>> {
  readonly own: FlagTable;
}

interface Sorted {
  readonly given: Map<string, string[]>;
  readonly unused: Set<string>;
  readonly warnings: string[];
}

type Option = Extract<ReturnType<typeof tokensOf>[number], { kind: 'option' }>;

/** @throws UsageError */
function sortOption(option: Option, word: string, tables: Tables, sorted: Sorted): void {
  const { name } = option;
  refuseSingleDash(word, option.rawName);
  const own = entryOf(tables.own, name);
  const spec = own ?? entryOf(tables.known, name) ?? entryOf(tables.idle, name);
  if (spec === undefined) {
    const advice = takeRetired(option, tables.retired);
    sorted.warnings.push(`--${name} is accepted and ignored: ${advice}`);
    return;
  }
  const text = textOf(option, spec.type);
  if (own !== undefined) {
    sorted.given.set(name, [...(sorted.given.get(name) ?? []), text]);
    return;
  }
  // A flag that has no effect here is checked too.
  const value = readValue(name, spec, [text]);
  if (Object.hasOwn(tables.known, name)) sorted.unused.add(`--${name}`);
  else if (value !== defaultValue(spec))
    sorted.warnings.push(`--${name} is accepted and ignored: ${spec.help}`);
}

/** @returns what has replaced a flag that upstream once had
 * @throws UsageError for an unknown flag */
function takeRetired(option: Option, retired: Tables['retired']): string {
  const entry = entryOf(retired, option.name.replaceAll('_', '-'));
  if (entry === undefined)
    throw new UsageError(`unknown flag --${option.name} (--help lists all flags)`);
  textOf(option, entry.takesValue ? 'string' : 'bool');
  return entry.advice;
}

/** @throws UsageError where the value is missing */
function textOf({ name, rawName, value }: Option, type: FlagSpec['type']): string {
  if (value === undefined && type !== 'bool')
    throw new UsageError(`--${name} needs a value: --${name}=VALUE`);
  // pflag reads -v=5 as -v5.
  return (rawName.startsWith('--') ? value : value?.replace(/^=/, '')) ?? 'true';
}

function valuesOf<T extends FlagTable>(
  table: T,
  given: ReadonlyMap<string, readonly string[]>,
  { env, inherited = {} }: ParseInput,
): Flags<T> {
  const flags: Record<string, unknown> = {};
  for (const [name, spec] of Object.entries(table)) {
    const texts = given.get(name) ?? fromEnvironment(name, spec, env) ?? entryOf(inherited, name);
    flags[flagKey(name, spec)] =
      texts === undefined ? defaultValue(spec) : readValue(name, spec, texts);
  }
  // The loop fills exactly the keys of Flags<T>, which Object.entries hides from the compiler.
  return flags as Flags<T>;
}

const SWITCH: FlagSpec = { type: 'bool', default: false, help: '' };

function tokensOf(argv: readonly string[], { own, known, idle, retired }: Tables) {
  const ofSpecs = Object.entries({ ...idle, ...known, ...own }).map(([name, { type, short }]) => {
    const kind: 'boolean' | 'string' = type === 'bool' ? 'boolean' : 'string';
    return [name, { type: kind, ...(short === undefined ? {} : { short }) }] as const;
  });
  const ofRetired = Object.entries(retired).flatMap(([name, { takesValue }]) => {
    const type: 'boolean' | 'string' = takesValue ? 'string' : 'boolean';
    return [name, name.replaceAll('-', '_')].map((spelling) => [spelling, { type }] as const);
  });
  const options = {
    ...Object.fromEntries([...ofRetired, ...ofSpecs]),
    help: { type: 'boolean', short: 'h' } as const,
    version: { type: 'boolean' } as const,
  };
  return parseArgs({ args: [...argv], options, strict: false, tokens: true }).tokens;
}

/** @throws UsageError that names the flag */
function readValue(name: string, spec: FlagSpec, texts: readonly string[]): unknown {
  try {
    return parseValue(spec, texts);
  } catch (error) {
    if (!(error instanceof ValueError)) throw error;
    throw new UsageError(`--${name}: ${error.message}`);
  }
}

function entryOf<T>(table: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

function unexpectedWord(word: string): string {
  return (
    `unexpected argument "${word}": ` +
    'flags are written --name=value, switches --name or --name=false'
  );
}

/** @param word  which the option is the beginning of
 * @throws UsageError where a long name has one dash */
function refuseSingleDash(word: string, rawName: string): void {
  if (rawName.startsWith('--') || word.startsWith('-v') || word === rawName) return;
  // Without its value, which may be a password.
  const name = word.replace(/=[\s\S]*/, '');
  throw new UsageError(`unknown flag ${name}: long flags take two dashes, -${name}`);
}

/** The value of the flag's environment variable, or of `SUTLER_<NAME>`; an empty one counts as
 * absent. */
function fromEnvironment(
  name: string,
  spec: FlagSpec,
  env: ParseInput['env'],
): string[] | undefined {
  const general = `SUTLER_${name.replaceAll('-', '_').toUpperCase()}`;
  const text = (spec.env && env[spec.env]) || env[general];
  return text ? [text] : undefined;
}

/** What a command's help says besides its flags. A command does one thing and ends, and takes its
 * own flags only. */
export interface CommandHelp {
  /** What arguments that are not flags name, where there are any: one, or several with '…'. */
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
