import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';

interface Values {
  readonly text: string;
  /** A whole number. */
  readonly number: number;
  /** '1' or '0'. */
  readonly flag: boolean;
  readonly list: readonly string[];
}
type Fields = Readonly<Record<string, keyof Values>>;
type ValuesOf<F extends Fields> = { readonly [Name in keyof F]: Values[F[Name]] };
/** The decoded answer of a script that declares `A`. */
type AnswerOf<A extends Readonly<Record<string, Fields>>> = {
  readonly [Kind in keyof A & string]: { readonly kind: Kind } & ValuesOf<A[Kind]>;
}[keyof A & string];

/** A Lua script whose keys, arguments and answers have names. */
export interface NamedScript<Keys extends string, Args, Answer> {
  /** @throws what ioredis throws, and Error for an answer that the script does not declare */
  run(redis: Redis, keys: Readonly<Record<Keys, string>>, args: Args): Promise<Answer>;
}

/** Lua: Redis' own clock as the local `now`, in Unix ms. */
export const REDIS_NOW = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`;

/** Prepares a script; sends nothing. The first run sends it to Redis, later runs call it by its
 * digest. In `lua`, each key and argument is a local of its name. The script returns the kind of
 * its answer, then names and values in turn, as in `return {'busy', 'waitMs', 5}`. */
export function defineNamedScript<
  const K extends string,
  const A extends Readonly<Record<string, 'text' | 'number' | 'flag'>>,
  const R extends Readonly<Record<string, Fields>>,
>(script: {
  readonly keys: readonly K[];
  readonly args: A;
  /** By kind: the fields of that answer. */
  readonly answers: R;
  readonly lua: string;
}): NamedScript<K, ValuesOf<A>, AnswerOf<R>> {
  const { keys, args, answers } = script;
  const names = Object.keys(args);
  const keyValues = keys.map((_, i) => `KEYS[${i + 1}]`);
  const argValues = names.map((name, i) => argOf(args[name], i + 1));
  const lua = localsOf(keys, keyValues) + localsOf(names, argValues) + script.lua;
  const digest = createHash('sha1').update(lua).digest('hex');
  return {
    async run(redis, keyTexts, given) {
      const values: Readonly<Record<string, unknown>> = given;
      const call = [
        keys.length,
        ...keys.map((key) => keyTexts[key]),
        ...names.map((name) => encode(values[name])),
      ] as const;
      const reply = await redis.evalsha(digest, ...call).catch((error: unknown) => {
        if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error;
        return redis.eval(lua, ...call);
      });
      return decodeAnswer(answers, reply) as AnswerOf<R>;
    },
  };
}

/** Writes Lua that converts an argument to its type. */
function argOf(type: keyof Values | undefined, place: number): string {
  const text = `ARGV[${place}]`;
  if (type === 'flag') return `${text} == '1'`;
  return type === 'number' ? `tonumber(${text})` : text;
}

function encode(value: unknown): string {
  return typeof value === 'boolean' ? String(Number(value)) : String(value);
}

function localsOf(names: readonly string[], values: readonly string[]): string {
  return names.length === 0 ? '' : `local ${names.join(', ')} = ${values.join(', ')}\n`;
}

/** @param reply  a list of the kind, then names and values in turn
 * @throws Error if the script does not declare that kind, or lacks a field of it */
function decodeAnswer(answers: Readonly<Record<string, Fields>>, reply: unknown): unknown {
  const [kind, ...parts] = Array.isArray(reply) ? (reply as readonly unknown[]) : [];
  const fields = answers[String(kind)];
  const values = new Map<unknown, unknown>();
  for (let i = 0; i < parts.length; i += 2) values.set(parts[i], parts[i + 1]);
  if (fields === undefined || !Object.keys(fields).every((name) => values.has(name)))
    throw new Error(`a Redis script returned an answer that it does not declare: ${String(kind)}`);
  const decoded = Object.entries(fields).map(
    ([name, type]) => [name, decodeField(type, values.get(name))] as const,
  );
  return { kind, ...Object.fromEntries(decoded) };
}

function decodeField(type: keyof Values, value: unknown): unknown {
  if (type === 'list') return (value as readonly unknown[]).map(String);
  if (type === 'flag') return String(value) === '1';
  return type === 'number' ? Number(value) : String(value);
}
