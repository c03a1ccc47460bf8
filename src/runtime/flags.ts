import { parseBool } from './parse-bool.ts';

/** A bad flag, value, kubeconfig or port: the process prints the message in one line and exits with
 * 2. The message names the thing and the fix. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

interface Common {
  /** One sentence for `--help` and `docs/flags.md`. */
  readonly help: string;
  /** Environment variable read when the flag is absent; `SUTLER_<NAME>` is always read too. */
  readonly env?: string;
  /** How external-provisioner spells it, or what differs from it. */
  readonly upstream?: string;
  /** One letter, as in `-v 5`. */
  readonly short?: string;
}

export type FlagSpec =
  | (Common & {
      readonly type: 'string';
      readonly default?: string;
      readonly values?: readonly string[];
    })
  | (Common & {
      readonly type: 'int' | 'float';
      readonly default: number;
      readonly min?: number;
      readonly max?: number;
    })
  | (Common & { readonly type: 'durationMs'; readonly default: string; readonly min?: string })
  | (Common & { readonly type: 'bool'; readonly default: boolean })
  | (Common & { readonly type: 'labels' })
  /** Given several times, or as a comma list; `default` is such a list. */
  /** `keepsRepeats`: of two items that contradict each other the later one counts. */
  | (Common & { readonly type: 'strings'; readonly default: string; readonly keepsRepeats?: true });

export type FlagTable = Readonly<Record<string, FlagSpec>>;

type Camel<S extends string> = S extends `${infer H}-${infer T}`
  ? `${H}${Capitalize<Camel<T>>}`
  : S;
type KeyOf<N extends string, F extends FlagSpec> = F['type'] extends 'durationMs'
  ? `${Camel<N>}Ms`
  : Camel<N>;
type ValueOf<F extends FlagSpec> = F['type'] extends 'string'
  ? F extends { readonly default: string }
    ? string
    : string | undefined
  : F['type'] extends 'bool'
    ? boolean
    : F['type'] extends 'labels'
      ? Readonly<Record<string, string>>
      : F['type'] extends 'strings'
        ? readonly string[]
        : number;

/** Typed values of a table: camelCase names, durations in milliseconds with `Ms` at the end. */
export type Flags<T extends FlagTable> = {
  readonly [N in keyof T & string as KeyOf<N, T[N]>]: ValueOf<T[N]>;
};

/** Declares a table once; parsing, `--help`, `docs/flags.md` and the check of `k8s/` arguments
 * derive from it. */
export function defineFlags<const T extends FlagTable>(table: T): T {
  return table;
}

export type Parsed<T extends FlagTable> =
  | {
      readonly kind: 'run';
      readonly flags: Flags<T>;
      /** Arguments that are no flags. */
      readonly words: readonly string[];
      readonly unused: readonly string[];
      readonly warnings: readonly string[];
    }
  | { readonly kind: 'help' }
  | { readonly kind: 'version' };

export interface ParseInput {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Flags of the other processes: accepted, named in `unused`. */
  readonly known?: FlagTable;
  /** How many arguments may be no flags; 0 where absent. */
  readonly maxWords?: number;
  /** Flags of upstream without effect here, with its defaults: accepted; any other value brings
   * `help` as a warning. None of them is a list. */
  readonly idle?: FlagTable;
  /** Flags that upstream once had: accepted, with the advice as warning. */
  readonly retired?: Readonly<
    Record<string, { readonly takesValue: boolean; readonly advice: string }>
  >;
}

/** Reads arguments by pflag's rules (upstream's parser, spec 01 §1): `--x=v`, `--x v`,
 * `--bool[=true|false]`, `-v N`; the last of several wins, where the flag is not a list.
 * @throws UsageError for an unknown flag, an unreadable value, a stray word */
export function parseFlags<T extends FlagTable>(table: T, input: ParseInput): Parsed<T> {
  const given = new Map<string, string[]>();
  const unused = new Set<string>();
  const warnings: string[] = [];
  const shorts = new Map(
    Object.entries(table).flatMap(([name, spec]) =>
      spec.short === undefined ? [] : [[spec.short, name] as const],
    ),
  );
  const words = [...input.argv];
  const plain: string[] = [];

  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    if (word === '--help' || word === '-h') return { kind: 'help' };
    if (word === '--version' || word.startsWith('--version=')) {
      if (word === '--version' || parseSwitch('version', word.slice('--version='.length)))
        return { kind: 'version' };
      continue;
    }
    if (!word.startsWith('-') && plain.length < (input.maxWords ?? 0)) {
      plain.push(word);
      continue;
    }
    const { name, inline } = splitWord(word, shorts);
    const own = entryOf(table, name);
    const foreign = entryOf(input.known, name);
    const spec = own ?? foreign ?? entryOf(input.idle, name);
    const retired = entryOf(input.retired, name);
    if (spec === undefined && retired === undefined)
      throw new UsageError(unknownFlag(name, { ...input.idle, ...input.known, ...table }));
    const takesWord = spec === undefined ? retired?.takesValue === true : spec.type !== 'bool';
    const value = inline ?? (takesWord ? words.shift() : 'true');
    if (value === undefined) throw new UsageError(`--${name} needs a value: --${name}=VALUE`);
    if (spec === undefined) {
      warnings.push(ignored(name, retired?.advice ?? ''));
    } else if (own !== undefined) {
      given.set(name, [...(given.get(name) ?? []), value]);
    } else {
      const parsed = parseValue(name, spec, [value]);
      if (foreign !== undefined) unused.add(`--${name}`);
      else if (parsed !== defaultValue(name, spec)) warnings.push(ignored(name, spec.help));
    }
  }
  const flags: Record<string, unknown> = {};
  for (const [name, spec] of Object.entries(table)) {
    const texts = given.get(name) ?? fromEnvironment(name, spec, input.env);
    flags[keyOf(name, spec)] =
      texts === undefined ? defaultValue(name, spec) : parseValue(name, spec, texts);
  }
  // The loop above fills exactly the keys that Flags<T> names; the compiler can't see that through
  // Object.entries.
  return { kind: 'run', flags: flags as Flags<T>, words: plain, unused: [...unused], warnings };
}

function entryOf<T>(table: Readonly<Record<string, T>> | undefined, name: string): T | undefined {
  return table !== undefined && Object.hasOwn(table, name) ? table[name] : undefined;
}

function ignored(name: string, advice: string): string {
  return `--${name} is accepted and ignored: ${advice}`;
}

/** The arguments without these flags and their values: what a parent hands on to a child that does
 * not know them, or for which the parent sets them itself. */
export function withoutFlags(argv: readonly string[], table: FlagTable): readonly string[] {
  const kept: string[] = [];
  for (let i = 0; i < argv.length; i += 1) {
    const word = argv[i] ?? '';
    const name = /^--([^=]+)/.exec(word)?.[1] ?? '';
    const spec = entryOf(table, name);
    if (spec === undefined) kept.push(word);
    else if (spec.type !== 'bool' && !word.includes('=')) i += 1;
  }
  return kept;
}

function splitWord(
  word: string,
  shorts: ReadonlyMap<string, string>,
): { name: string; inline: string | undefined } {
  const long = /^--([^=]+)(?:=([\s\S]*))?$/.exec(word);
  if (long) return { name: long[1] ?? '', inline: long[2] };
  const short = /^-([A-Za-z])=?([\s\S]*)$/.exec(word);
  const name = short ? shorts.get(short[1] ?? '') : undefined;
  if (short && name !== undefined) return { name, inline: short[2] === '' ? undefined : short[2] };
  if (word.startsWith('-') && word.length > 2)
    throw new UsageError(`unknown flag ${word}: long flags take two dashes, --${word.slice(1)}`);
  throw new UsageError(
    `unexpected argument "${word}": flags are written --name=value, switches --name or --name=false`,
  );
}

function unknownFlag(name: string, table: FlagTable): string {
  const near = Object.keys(table)
    .map((candidate) => ({ candidate, distance: editDistance(name, candidate) }))
    .filter(({ distance }) => distance <= Math.max(2, name.length / 4))
    .sort((a, b) => a.distance - b.distance)[0];
  return `unknown flag --${name}${near ? `: did you mean --${near.candidate}?` : ''} (--help lists all flags)`;
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (const [i, charA] of Array.from(a).entries()) {
    const next = [i + 1];
    for (const [j, charB] of Array.from(b).entries()) {
      next.push(
        Math.min(
          (row[j + 1] ?? 0) + 1,
          (next[j] ?? 0) + 1,
          (row[j] ?? 0) + (charA === charB ? 0 : 1),
        ),
      );
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

/** Environment variables that stand in for a flag, in order of precedence. */
export function environmentNames(name: string, spec: FlagSpec): readonly string[] {
  return [
    ...(spec.env === undefined ? [] : [spec.env]),
    `SUTLER_${name.replaceAll('-', '_').toUpperCase()}`,
  ];
}

function fromEnvironment(
  name: string,
  spec: FlagSpec,
  env: ParseInput['env'],
): string[] | undefined {
  for (const variable of environmentNames(name, spec)) {
    const text = env[variable];
    if (text !== undefined && text !== '') return [text];
  }
  return undefined;
}

function keyOf(name: string, spec: FlagSpec): string {
  const camel = name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
  return spec.type === 'durationMs' ? `${camel}Ms` : camel;
}

function defaultValue(name: string, spec: FlagSpec): unknown {
  if (spec.type === 'durationMs' || spec.type === 'strings')
    return parseValue(name, spec, [spec.default]);
  return spec.type === 'labels' ? {} : spec.default;
}

function listed(texts: readonly string[], keepsRepeats: boolean): readonly string[] {
  const items = texts
    .flatMap((text) => text.split(','))
    .map((item) => item.trim())
    .filter((item) => item !== '');
  return keepsRepeats ? items : [...new Set(items)];
}

function parseValue(name: string, spec: FlagSpec, texts: readonly string[]): unknown {
  const text = texts.at(-1) ?? '';
  switch (spec.type) {
    case 'string':
      if (spec.values !== undefined && !spec.values.includes(text)) {
        throw new UsageError(`--${name}: "${text}" is not one of ${spec.values.join(', ')}`);
      }
      return text;
    case 'bool':
      return parseSwitch(name, text);
    case 'labels':
      return Object.fromEntries(texts.flatMap((item) => parseLabels(name, item)));
    case 'strings':
      return listed(texts, spec.keepsRepeats === true);
    case 'durationMs': {
      const ms = parseDurationMs(text);
      if (ms === undefined)
        throw new UsageError(
          `--${name}: "${text}" is not a duration; write a number with its unit, like 300ms, 10s, 1m30s, 1h`,
        );
      if (spec.min !== undefined && ms < (parseDurationMs(spec.min) ?? 0))
        throw new UsageError(`--${name}: ${text} is below the minimum of ${spec.min}`);
      return ms;
    }
    case 'int':
    case 'float': {
      const number = parseNumber(spec.type, text);
      if (number === undefined)
        throw new UsageError(
          `--${name}: "${text}" is not ${spec.type === 'int' ? 'a whole number' : 'a number'}`,
        );
      if (number < (spec.min ?? -Infinity))
        throw new UsageError(`--${name}: ${text} is below the minimum of ${spec.min}`);
      if (number > (spec.max ?? Infinity))
        throw new UsageError(`--${name}: ${text} is above the maximum of ${spec.max}`);
      return number;
    }
  }
}

function parseSwitch(name: string, text: string): boolean {
  const value = parseBool(text);
  if (value === undefined)
    throw new UsageError(
      `--${name}: "${text}" is neither true nor false; write --${name}=true or --${name}=false`,
    );
  return value;
}

function parseLabels(name: string, text: string): (readonly [string, string])[] {
  return text
    .split(',')
    .filter((item) => item !== '')
    .map((item) => {
      const parts = item.split(':');
      const [key, value] = parts;
      if (parts.length !== 2 || key === undefined || value === undefined || key === '') {
        throw new UsageError(
          `--${name}: malformed item in list of labels: ${item}; write key:value,key2:value2`,
        );
      }
      return [key.trim(), value.trim()] as const;
    });
}

function parseNumber(type: 'int' | 'float', text: string): number | undefined {
  const shape =
    type === 'int'
      ? /^[+-]?(\d+|0[xX][\da-fA-F]+|0[oO][0-7]+|0[bB][01]+)$/
      : /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
  if (!shape.test(text)) return undefined;
  const negative = text.startsWith('-');
  const number = Number(text.replace(/^[+-]/, ''));
  if (type === 'int' && !Number.isSafeInteger(number)) return undefined;
  return negative && number !== 0 ? -number : number;
}

const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  μs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

/** Milliseconds of a duration in Go's notation ("300ms", "1m30s", "-1.5h", "0"); undefined if it
 * does not parse.
 * @see Go time.ParseDuration: a number without a unit is an error, except 0 */
export function parseDurationMs(text: string): number | undefined {
  const match = /^([+-]?)((?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)$/.exec(text);
  if (!match) return /^[+-]?0$/.test(text) ? 0 : undefined;
  let totalMs = 0;
  for (const [, number, unit] of (match[2] ?? '').matchAll(
    /(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)/g,
  )) {
    totalMs += Number(number) * (UNIT_MS[unit ?? ''] ?? 0);
  }
  return match[1] === '-' && totalMs !== 0 ? -totalMs : totalMs;
}

/** The text of `--help`. */
export function renderHelp(
  process: string,
  summary: string,
  table: FlagTable,
  word?: string,
): string {
  const rows = Object.entries(table)
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([name, spec]) => {
      const shown =
        spec.type === 'labels' || spec.default === undefined || spec.default === ''
          ? ''
          : ` (default ${String(spec.default)})`;
      const env = spec.env === undefined ? '' : ` [env ${spec.env}]`;
      return `  ${spec.short ? `-${spec.short}, ` : '    '}--${name} ${metavariable(spec)}\n          ${spec.help}${shown}${env}`;
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

/** One process's section of `docs/flags.md`. */
export function renderMarkdown(title: string, summary: string, table: FlagTable): string {
  const cell = (text: string): string => text.replaceAll('|', '\\|');
  const rows = Object.entries(table)
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([name, spec]) => {
      const fallback =
        spec.type === 'labels' || spec.default === undefined || spec.default === ''
          ? ''
          : `\`${String(spec.default)}\``;
      const env = environmentNames(name, spec).map((variable) => `\`${variable}\``);
      const type =
        spec.type === 'durationMs'
          ? 'duration'
          : spec.type === 'string' && spec.values
            ? spec.values.map((v) => `\`${v}\``).join(', ')
            : spec.type === 'strings'
              ? 'list'
              : spec.type;
      return `| \`--${name}\`${spec.short ? `, \`-${spec.short}\`` : ''} | ${type} | ${fallback} | ${cell(spec.help)} | ${env.join(', ')} | ${cell(spec.upstream ?? '')} |`;
    });
  return [
    `## ${title}`,
    '',
    summary,
    '',
    '| flag | type | default | meaning | environment | upstream |',
    '| --- | --- | --- | --- | --- | --- |',
    ...rows,
    '',
  ].join('\n');
}
