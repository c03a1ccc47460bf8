import { defaultValue, flagKey, parseValue, ValueError } from './flag-values.ts';
import { nearestName } from './nearest-name.ts';

/** A bad flag, value, kubeconfig or port. The process prints the message, which names the fault and
 * the fix, in one line and exits with status 2. */
export class UsageError extends Error {
  override readonly name: string = 'UsageError';
  /** Of the process. */
  readonly exitStatus: number = 2;
}

interface Common {
  /** One sentence for `--help` and `docs/flags.md`. */
  readonly help: string;
  /** Environment variable read when the flag is absent; `SUTLER_<NAME>` is always read too. */
  readonly env?: string;
  /** For `docs/flags.md`: external-provisioner's spelling of it, or how it differs there. */
  readonly upstream?: string;
  /** One letter, as in `-v 5`. */
  readonly short?: string;
  /** Heading under which `--help` lists it; set by `inGroup`. */
  readonly group?: string;
  /** Set by `perDriver`. */
  readonly perDriver?: true;
  /** Of a flag per driver: a change takes effect without a restart of the driver. */
  readonly isHot?: true;
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
  /** Without a default it may be absent, for the process to choose. */
  | (Common & { readonly type: 'durationMs'; readonly default?: string; readonly min?: string })
  | (Common & { readonly type: 'bool'; readonly default: boolean })
  | (Common & { readonly type: 'labels' })
  /** A list with commas, or the flag given several times; `default` is such a list. Repeated items
   * are dropped, unless `keepsRepeats` is set because a later item overrides an earlier one. */
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
        : F extends { readonly type: 'durationMs'; readonly default?: undefined }
          ? number | undefined
          : number;

/** The values of a table's flags by camelCase name; names of durations end in `Ms`. */
export type Flags<T extends FlagTable> = {
  readonly [N in keyof T & string as KeyOf<N, T[N]>]: ValueOf<T[N]>;
};

/** Declares flags. Parsing, `--help`, `docs/flags.md` and the test of the arguments in `k8s/` use
 * this one table. */
export function defineFlags<const T extends FlagTable>(table: T): T {
  return table;
}

/** Puts the flags of a table under a heading of their own in `--help`. */
export function inGroup<const T extends FlagTable>(group: string, table: T): T {
  return addToEach(table, { group });
}

/** Marks the flags of a table that each driver of --driver-config may set for itself. */
export function perDriver<const T extends FlagTable>(table: T): T {
  return addToEach(table, { perDriver: true });
}

function addToEach<T extends FlagTable>(table: T, mark: Pick<Common, 'group' | 'perDriver'>): T {
  const marked = Object.entries(table).map(([name, spec]) => [name, { ...spec, ...mark }]);
  // The mark is an optional field that every spec has.
  return Object.fromEntries(marked) as T;
}

export type Parsed<T extends FlagTable> =
  | {
      readonly kind: 'run';
      readonly flags: Flags<T>;
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
  const args = new ArgumentReader(table, input);
  const request = args.read();
  if (request !== undefined) return { kind: request };
  const flags: Record<string, unknown> = {};
  for (const [name, spec] of Object.entries(table)) {
    const texts = args.given.get(name) ?? fromEnvironment(name, spec, input.env);
    flags[flagKey(name, spec)] =
      texts === undefined ? defaultValue(spec) : readValue(name, spec, texts);
  }
  const { words, unused, warnings } = args;
  // The loop fills exactly the keys of Flags<T>, which Object.entries hides from the compiler.
  return { kind: 'run', flags: flags as Flags<T>, words, unused: [...unused], warnings };
}

const VERSION: FlagSpec = { type: 'bool', default: false, help: '' };

/** @throws UsageError that names the flag */
function readValue(name: string, spec: FlagSpec, texts: readonly string[]): unknown {
  try {
    return parseValue(spec, texts);
  } catch (error) {
    if (!(error instanceof ValueError)) throw error;
    throw new UsageError(`--${name}: ${error.message}`);
  }
}

/** Sorts arguments into values of own flags, other words, unused flags and warnings. */
class ArgumentReader {
  /** The texts of each own flag that was given. */
  readonly given = new Map<string, string[]>();
  readonly words: string[] = [];
  readonly unused = new Set<string>();
  readonly warnings: string[] = [];
  readonly #table: FlagTable;
  readonly #input: ParseInput;
  readonly #rest: string[];

  constructor(table: FlagTable, input: ParseInput) {
    this.#table = table;
    this.#input = input;
    this.#rest = [...input.argv];
  }

  /** Reads to the end, or to a flag that asks for help or for the version. */
  read(): 'help' | 'version' | undefined {
    const maxWords = this.#input.maxWords ?? 0;
    for (let word = this.#rest.shift(); word !== undefined; word = this.#rest.shift()) {
      if (word === '--help' || word === '-h') return 'help';
      const [version, value = 'true'] = /^--version(?:=([\s\S]*))?$/.exec(word) ?? [];
      if (version !== undefined) {
        if (readValue('version', VERSION, [value]) === true) return 'version';
      } else if (!word.startsWith('-') && this.words.length < maxWords) {
        this.words.push(word);
      } else {
        const { name, inline } = splitWord(word, this.#table);
        this.#take(name, inline);
      }
    }
    return undefined;
  }

  #take(name: string, inline: string | undefined): void {
    const { known, idle } = this.#input;
    const spec = entryOf(this.#table, name) ?? entryOf(known, name) ?? entryOf(idle, name);
    if (spec === undefined) return this.#takeRetired(name, inline);
    const value = inline ?? (spec.type === 'bool' ? 'true' : this.#shiftValue(name));
    if (Object.hasOwn(this.#table, name))
      this.given.set(name, [...(this.given.get(name) ?? []), value]);
    else this.#check(name, spec, value);
  }

  #takeRetired(name: string, inline: string | undefined): void {
    const { known, idle } = this.#input;
    const retired = entryOf(this.#input.retired, name.replaceAll('_', '-'));
    if (retired === undefined)
      throw new UsageError(unknownFlag(name, { ...idle, ...known, ...this.#table }));
    if (inline === undefined && retired.takesValue) this.#shiftValue(name);
    this.#warn(name, retired.advice);
  }

  #shiftValue(name: string): string {
    const value = this.#rest.shift();
    if (value === undefined) throw new UsageError(`--${name} needs a value: --${name}=VALUE`);
    return value;
  }

  /** Checks the value of a flag that has no effect in this process. */
  #check(name: string, spec: FlagSpec, text: string): void {
    const value = readValue(name, spec, [text]);
    if (entryOf(this.#input.known, name) !== undefined) this.unused.add(`--${name}`);
    else if (value !== defaultValue(spec)) this.#warn(name, spec.help);
  }

  #warn(name: string, advice: string): void {
    this.warnings.push(`--${name} is accepted and ignored: ${advice}`);
  }
}

function entryOf<T>(table: Readonly<Record<string, T>> | undefined, name: string): T | undefined {
  return table !== undefined && Object.hasOwn(table, name) ? table[name] : undefined;
}

/** The arguments without the given flags and their values: what a parent passes on to a child that
 * does not know these flags, or for which the parent sets them. */
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

function splitWord(word: string, table: FlagTable): { name: string; inline: string | undefined } {
  const long = /^--([^=]+)(?:=([\s\S]*))?$/.exec(word);
  if (long) return { name: long[1] ?? '', inline: long[2] };
  const [, letter, value] = /^-([A-Za-z])=?([\s\S]*)$/.exec(word) ?? [];
  const [name] = Object.entries(table).find(([, { short }]) => letter && short === letter) ?? [];
  if (name !== undefined) return { name, inline: value === '' ? undefined : value };
  if (word.startsWith('-') && word.length > 2) {
    // Without its value, which may be a password.
    const name = word.replace(/=[\s\S]*/, '');
    throw new UsageError(`unknown flag ${name}: long flags take two dashes, -${name}`);
  }
  throw new UsageError(
    `unexpected argument "${word}": ` +
      'flags are written --name=value, switches --name or --name=false',
  );
}

function unknownFlag(name: string, table: FlagTable): string {
  const [ofValue] = Object.entries(table).find(
    ([, spec]) => spec.type === 'string' && spec.values?.includes(name),
  ) ?? [undefined];
  const near = ofValue === undefined ? nearestName(name, Object.keys(table)) : `${ofValue}=${name}`;
  const guess = near === undefined ? '' : `: did you mean --${near}?`;
  return `unknown flag --${name}${guess} (--help lists all flags)`;
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
