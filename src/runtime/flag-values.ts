import type { FlagSpec } from './flags.ts';
import { parseBool } from './parse-bool.ts';

/** A text that can't be the value of a flag. The message says what is wrong with it and what to
 * write, and goes after the flag's name. */
export class ValueError extends Error {
  override readonly name = 'ValueError';
}

/** The name of the flag's value in Flags: camelCase, with `Ms` for a duration. */
export function flagKey(name: string, spec: FlagSpec): string {
  const camel = name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
  return spec.type === 'durationMs' ? `${camel}Ms` : camel;
}

/** The value of a flag that is not given. */
export function defaultValue(spec: FlagSpec): unknown {
  if (spec.type === 'durationMs' || spec.type === 'strings')
    return spec.default === undefined ? undefined : parseValue(spec, [spec.default]);
  return spec.type === 'labels' ? {} : spec.default;
}

function splitList(texts: readonly string[], keepsRepeats: boolean): readonly string[] {
  const items = texts
    .flatMap((text) => text.split(','))
    .map((item) => item.trim())
    .filter((item) => item !== '');
  return keepsRepeats ? items : [...new Set(items)];
}

/** Reads the value of a flag. Of several texts the last one counts, unless the flag is a list.
 * @throws ValueError */
export function parseValue(spec: FlagSpec, texts: readonly string[]): unknown {
  const text = texts.at(-1) ?? '';
  switch (spec.type) {
    case 'string':
      if (spec.values !== undefined && !spec.values.includes(text))
        throw new ValueError(`"${text}" is not one of ${spec.values.join(', ')}`);
      return text;
    case 'bool':
      return parseSwitch(text);
    case 'labels':
      return Object.fromEntries(texts.flatMap((item) => parseLabels(item)));
    case 'strings':
      return splitList(texts, spec.keepsRepeats === true);
    case 'durationMs':
      return checkBounds(text, {
        value: parseDurationMs(text),
        wanted: 'a duration; write a number with its unit, like 300ms, 10s, 1m30s, 1h',
        min: spec.min,
      });
    case 'int':
    case 'float':
      return checkBounds(text, {
        value: parseNumber(spec.type, text),
        wanted: spec.type === 'int' ? 'a whole number' : 'a number',
        min: spec.min,
        max: spec.max,
      });
  }
}

/** Checks a number or duration against its bounds.
 * @returns the value
 * @throws ValueError */
function checkBounds(
  text: string,
  o: {
    readonly value: number | undefined;
    readonly wanted: string;
    readonly min?: number | string | undefined;
    readonly max?: number | undefined;
  },
): number {
  const { value, wanted, min = -Infinity, max = Infinity } = o;
  if (value === undefined) throw new ValueError(`"${text}" is not ${wanted}`);
  const least = typeof min === 'string' ? (parseDurationMs(min) ?? 0) : min;
  if (value < least) throw new ValueError(`${text} is below the minimum of ${min}`);
  if (value > max) throw new ValueError(`${text} is above the maximum of ${max}`);
  return value;
}

function parseSwitch(text: string): boolean {
  const value = parseBool(text);
  if (value === undefined)
    throw new ValueError(`"${text}" is neither true nor false; write one of them`);
  return value;
}

function parseLabels(text: string): (readonly [string, string])[] {
  return text
    .split(',')
    .filter((item) => item !== '')
    .map((item) => {
      const [, key, value] = /^([^:]+):([^:]*)$/.exec(item) ?? [];
      if (key === undefined || value === undefined)
        throw new ValueError(
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
