import { parseArgs } from 'node:util';
import { messageOf } from './error-message.ts';
import {
  defaultValue,
  flagKey,
  type Flags,
  type FlagSpec,
  type FlagTable,
  parseValue,
  UsageError,
} from './flags.ts';
import type { GivenFlags } from './own-folder.ts';
import { idleFlags, retiredFlags } from './process-flags.ts';

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
  /** Texts of flags that neither an argument nor a variable sets. */
  readonly inherited?: GivenFlags | undefined;
  /** Flags of the other processes: accepted, and listed in `unused`. With it, upstream's flags that
   * have no effect here are accepted too, with a warning if the value is not upstream's default. If
   * absent, neither are accepted. */
  readonly known?: FlagTable;
  /** How many arguments may be words instead of flags; default 0. */
  readonly maxWords?: number;
}

/** Reads arguments by the rules of pflag, which upstream uses: `--x=v`, `--x v`,
 * `--bool[=true|false]`, `-v N`. Of several values the last one counts, unless the flag is a list.
 * @throws UsageError for an unknown flag, an unreadable value, an unexpected argument */
export function parseFlags<T extends FlagTable>(table: T, input: ParseInput): Parsed<T> {
  const { argv, known, maxWords = 0 } = input;
  const more = known && { ...retiredFlags, ...idleFlags, ...known };
  const all = { ...more, ...table, help: HELP, version: VERSION };
  const tokens = tokensOf(argv, all);
  const given = new Map<string, string[]>();
  const unused = new Set<string>();
  const warnings: string[] = [];
  for (const option of tokens.filter((token) => token.kind === 'option')) {
    const { name } = option;
    const spec = specOf(option, argv, all);
    if (spec === HELP) return { kind: 'help' };
    const text = textOf(option, spec.type);
    // Checks flags without effect too.
    const value = readValue(name, spec, [text]);
    if (spec === VERSION && value === true) return { kind: 'version' };
    if (Object.hasOwn(table, name)) given.set(name, [...(given.get(name) ?? []), text]);
    else if (known !== undefined && Object.hasOwn(known, name)) unused.add(`--${name}`);
    else if (value !== defaultValue(spec))
      warnings.push(`--${name} is accepted and ignored: ${spec.help}`);
  }
  const words = wordsOf(tokens, maxWords);
  const flags = valuesOf(table, given, input);
  return { kind: 'run', flags, given, words, unused: [...unused], warnings };
}

const HELP: FlagSpec = { type: 'bool', default: false, short: 'h', help: '' };
const VERSION: FlagSpec = { type: 'bool', default: false, help: '' };

type Tokens = ReturnType<typeof tokensOf>;
type Option = Extract<Tokens[number], { kind: 'option' }>;

/** @throws UsageError for an unknown flag, and for a long name with one dash */
function specOf(
  { name, rawName, index }: Option,
  argv: readonly string[],
  all: FlagTable,
): FlagSpec {
  const spec = entryOf(all, name);
  if (spec === HELP) return spec;
  const word = argv[index] ?? '';
  if (!rawName.startsWith('--') && !word.startsWith('-v') && word !== rawName) {
    // The value may be a password.
    const long = word.replace(/=[\s\S]*/, '');
    throw new UsageError(`unknown flag ${long}: long flags take two dashes, -${long}`);
  }
  if (spec !== undefined) return spec;
  throw new UsageError(`unknown flag --${name} (--help lists all flags)`);
}

/** @throws UsageError if the value is missing */
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

function tokensOf(argv: readonly string[], table: FlagTable) {
  const ofTable = Object.entries(table).map(([name, { type, short }]) => {
    const kind: 'boolean' | 'string' = type === 'bool' ? 'boolean' : 'string';
    return [name, { type: kind, ...(short === undefined ? {} : { short }) }] as const;
  });
  const options = Object.fromEntries(ofTable);
  return parseArgs({ args: [...argv], options, strict: false, tokens: true }).tokens;
}

/** @throws UsageError that names the flag */
function readValue(name: string, spec: FlagSpec, texts: readonly string[]): unknown {
  try {
    return parseValue(spec, texts);
  } catch (error) {
    throw new UsageError(`--${name}: ${messageOf(error)}`, { cause: error });
  }
}

function entryOf<T>(table: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}

/** Returns the arguments that are not flags.
 * @throws UsageError if there are too many */
function wordsOf(tokens: Tokens, maxWords: number): readonly string[] {
  const others = tokens.filter((token) => token.kind !== 'option');
  const words = others.map((token) => (token.kind === 'positional' ? token.value : '--'));
  if (words.length <= maxWords) return words;
  throw new UsageError(
    `unexpected argument "${words[maxWords]}": ` +
      'flags are written --name=value, switches --name or --name=false',
  );
}

/** Reads the flag's environment variable, or `SUTLER_<NAME>`. Ignores an empty variable. */
function fromEnvironment(
  name: string,
  spec: FlagSpec,
  env: ParseInput['env'],
): string[] | undefined {
  const general = `SUTLER_${name.replaceAll('-', '_').toUpperCase()}`;
  const text = (spec.env && env[spec.env]) || env[general];
  return text ? [text] : undefined;
}

/** Help of a command, besides its flags. A command does one thing and ends, with its own flags
 * only. */
export interface CommandHelp {
  /** Placeholder for words; with '…' there may be several. */
  readonly word?: string;
  /** What each exit status means. */
  readonly exits: Readonly<Record<number, string>>;
  /** Arguments, without the command's name. */
  readonly examples: readonly string[];
}

/** Formats the text of `--help`: flags without a group first, then each group. */
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
