// Declares flags and reads the text of a value. parse-flags.ts reads arguments.
/** A bad flag, value, kubeconfig or port. The process prints the message, which names the fault and
 * the fix, in one line and exits with status 2. */
export class UsageError extends Error {
  override readonly name: string = 'UsageError';
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
  /** Without a default the value may be undefined, and the process chooses. */
  | (Common & { readonly type: 'durationMs'; readonly default?: string; readonly min?: string })
  | (Common & { readonly type: 'bool'; readonly default?: boolean })
  | (Common & { readonly type: 'labels' })
  /** A list with commas, or the flag given several times; `default` is such a list. Of equal items
   * only the last one stays. */
  | (Common & { readonly type: 'strings'; readonly default: string });

export type FlagTable = Readonly<Record<string, FlagSpec>>;

type Camel<S extends string> = S extends `${infer H}-${infer T}`
  ? `${H}${Capitalize<Camel<T>>}`
  : S;
type KeyOf<N extends string, F extends FlagSpec> = F['type'] extends 'durationMs'
  ? `${Camel<N>}Ms`
  : Camel<N>;
interface Values {
  readonly string: string;
  readonly bool: boolean;
  readonly int: number;
  readonly float: number;
  readonly durationMs: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly strings: readonly string[];
}
type ValueOf<F extends FlagSpec> = F extends { readonly type: 'string' | 'bool' | 'durationMs' }
  ? Values[F['type']] | (F['default'] extends string | boolean ? never : undefined)
  : Values[F['type']];

/** The values of a table's flags by camelCase name; names of durations end in `Ms`. */
export type Flags<T extends FlagTable> = {
  readonly [N in keyof T & string as KeyOf<N, T[N]>]: ValueOf<T[N]>;
};

/** Declares flags. Parsing, `--help`, `docs/flags.md` and the test of the arguments in `k8s/` use
 * this one table. */
export function defineFlags<const T extends FlagTable>(table: T): T {
  return table;
}

/** Puts the flags of a table under their own heading in `--help`. */
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

/** The name of the flag's value in Flags: camelCase, with `Ms` for a duration. */
export function flagKey(name: string, spec: FlagSpec): string {
  const camel = name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
  return spec.type === 'durationMs' ? `${camel}Ms` : camel;
}

/** Returns the default value of a flag. */
export function defaultValue(spec: FlagSpec): unknown {
  if (spec.type === 'durationMs' || spec.type === 'strings')
    return spec.default === undefined ? undefined : parseValue(spec, [spec.default]);
  return spec.type === 'labels' ? {} : spec.default;
}

/** Returns the default values of a table. */
export function defaultsOf<T extends FlagTable>(table: T): Flags<T> {
  const entries = Object.entries(table);
  const values = entries.map(([name, spec]) => [flagKey(name, spec), defaultValue(spec)]);
  // These are the keys of Flags<T>, which Object.entries hides from the compiler.
  return Object.fromEntries(values) as Flags<T>;
}

/** Reads the value of a flag. Of several texts the last one counts, unless the flag is a list.
 * @throws UsageError whose message belongs behind the flag's name */
export function parseValue(spec: FlagSpec, texts: readonly string[]): unknown {
  const text = texts.at(-1) ?? '';
  switch (spec.type) {
    case 'string':
      if (spec.values !== undefined && !spec.values.includes(text))
        throw new UsageError(`"${text}" is not one of ${spec.values.join(', ')}`);
      return text;
    case 'bool':
      return parseBool(text) ?? refuse(`"${text}" is neither true nor false; write one of them`);
    case 'labels':
      return Object.fromEntries(texts.flatMap((item) => parseLabels(item)));
    case 'strings':
      return splitList(texts.join(','));
    case 'durationMs':
      return parseDurationFlag(text, spec.min);
    case 'int':
    case 'float':
      return parseNumberFlag(text, spec);
  }
}

function parseDurationFlag(text: string, min = ''): number {
  const wanted = 'a duration; write a number with its unit, like 300ms, 10s, 1m30s, 1h';
  const ms = parseDurationMs(text) ?? refuse(`"${text}" is not ${wanted}`);
  if (ms < (parseDurationMs(min) ?? -Infinity)) refuse(`${text} is below the minimum of ${min}`);
  return ms;
}

function parseNumberFlag(
  text: string,
  { type, min = -Infinity, max = Infinity }: Extract<FlagSpec, { type: 'int' | 'float' }>,
): number {
  const wanted = type === 'int' ? 'a whole number' : 'a number';
  const number = parseNumber(type, text) ?? refuse(`"${text}" is not ${wanted}`);
  if (number < min) refuse(`${text} is below the minimum of ${min}`);
  if (number > max) refuse(`${text} is above the maximum of ${max}`);
  return number;
}

function refuse(why: string): never {
  throw new UsageError(why);
}

function splitList(text: string): readonly string[] {
  const items = text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '');
  return items.filter((item, index) => !items.includes(item, index + 1));
}

function parseLabels(text: string): (readonly [string, string])[] {
  return text
    .split(',')
    .filter((item) => item !== '')
    .map((item) => {
      const [, key, value] = /^([^:]+):([^:]*)$/.exec(item) ?? [];
      if (key === undefined || value === undefined)
        throw new UsageError(
          `malformed item in list of labels: ${item}; write key:value,key2:value2`,
        );
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

/** Milliseconds of a duration in Go's notation ("300ms", "1m30s", "-1.5h", "0"). A number without a
 * unit is an error, except 0.
 * @returns undefined if the text is not a duration
 * @see Go time.ParseDuration */
export function parseDurationMs(text: string): number | undefined {
  const match = /^([+-]?)((?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)$/.exec(text);
  if (!match) return /^[+-]?0$/.test(text) ? 0 : undefined;
  let totalMs = 0;
  for (const [, number, unit = ''] of (match[2] ?? '').matchAll(/([\d.]+)([^\d.]+)/g))
    totalMs += Number(number) * (UNIT_MS[unit] ?? 0);
  return match[1] === '-' && totalMs !== 0 ? -totalMs : totalMs;
}

const TRUE = new Set(['1', 't', 'T', 'TRUE', 'true', 'True']);
const FALSE = new Set(['0', 'f', 'F', 'FALSE', 'false', 'False']);

/** Parses a boolean in the spellings of Go; undefined for any other text.
 * @see Go strconv.ParseBool */
export function parseBool(text: string): boolean | undefined {
  if (TRUE.has(text)) return true;
  return FALSE.has(text) ? false : undefined;
}
