import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';

interface FieldValues {
  readonly text: string;
  /** A whole number. */
  readonly number: number;
  /** '1' or '0'. */
  readonly flag: boolean;
  readonly list: readonly string[];
}
/** The type of a field; a list of texts allows each of them. */
type FieldType = keyof FieldValues | readonly string[];
type Fields = Readonly<Record<string, FieldType>>;
type ValueOf<T extends FieldType> = T extends keyof FieldValues
  ? FieldValues[T]
  : Extract<T, readonly string[]>[number];
type ValuesOf<F extends Fields> = { readonly [Name in keyof F]: ValueOf<F[Name]> };
/** The decoded answer of a script that declares `A`. */
export type AnswerOf<A extends Readonly<Record<string, Fields>>> = {
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

/** Prepares a Lua script, which is sent once per Redis and called by its digest from then on. */
function defineScript(lua: string) {
  const digest = createHash('sha1').update(lua).digest('hex');
  return {
    /** @returns what the script returns, as Redis encodes it: the caller knows its shape */
    async run(
      redis: Redis,
      keys: readonly string[],
      args: readonly (string | number)[],
    ): Promise<unknown> {
      const rest = [keys.length, ...keys, ...args] as const;
      try {
        return await redis.evalsha(digest, ...rest);
      } catch (error) {
        if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error;
        return await redis.eval(lua, ...rest);
      }
    },
  };
}

/** Prepares a script; sends nothing. In `lua`, each key and argument is a local of its name. The
 * script returns a list: the kind of the answer, then names and values in turn, as in
 * `return {'busy', 'waitMs', 5}`. */
export function defineNamedScript<
  const K extends string,
  const A extends Readonly<Record<string, 'text' | 'number' | readonly string[]>>,
  const R extends Readonly<Record<string, Fields>>,
>(script: {
  readonly keys: readonly K[];
  readonly args: A;
  /** By kind: the fields of that answer. */
  readonly answers: R;
  readonly lua: string;
}): NamedScript<K, ValuesOf<A>, AnswerOf<R>> {
  const { keys, args, lua } = script;
  const answers: Answers = new Map(
    Object.entries(script.answers).map(([kind, fields]) => [kind, Object.entries(fields)]),
  );
  const names = Object.keys(args);
  const keyValues = keys.map((_, i) => `KEYS[${i + 1}]`);
  const argValues = names.map((name, i) =>
    args[name] === 'number' ? `tonumber(ARGV[${i + 1}])` : `ARGV[${i + 1}]`,
  );
  const prepared = defineScript(localsOf(keys, keyValues) + localsOf(names, argValues) + lua);
  return {
    async run(redis, keyTexts, given) {
      const values: Readonly<Record<string, unknown>> = given;
      const reply = await prepared.run(
        redis,
        keys.map((key) => keyTexts[key]),
        names.map((name) => String(values[name])),
      );
      return decodeAnswer(answers, reply) as AnswerOf<R>;
    },
  };
}

function localsOf(names: readonly string[], values: readonly string[]): string {
  return names.length === 0 ? '' : `local ${names.join(', ')} = ${values.join(', ')}\n`;
}

/** The fields of each kind of answer, as a list. */
type Answers = ReadonlyMap<unknown, readonly (readonly [name: string, type: FieldType])[]>;

function decodeAnswer(answers: Answers, reply: unknown): unknown {
  const parts: readonly unknown[] = Array.isArray(reply) ? reply : [];
  const [kind] = parts;
  const fields = answers.get(kind);
  if (fields === undefined) throw undeclared(String(kind));
  const answer: Record<string, unknown> = { kind };
  for (const [name, type] of fields) {
    const value = decodeField(type, valueIn(parts, name));
    if (value === undefined) throw undeclared(`${String(kind)} with a wrong or missing ${name}`);
    answer[name] = value;
  }
  return answer;
}

/** The value after a name, in a list of a kind and of names and values in turn. */
function valueIn(parts: readonly unknown[], name: string): unknown {
  for (let i = 1; i < parts.length; i += 2) if (parts[i] === name) return parts[i + 1];
  return undefined;
}

function undeclared(answer: string): Error {
  return new Error(`a Redis script gave an answer that it does not declare: ${answer}`);
}

/** @returns undefined for a value of another type */
function decodeField(type: FieldType, value: unknown): unknown {
  if (type === 'list') return Array.isArray(value) ? value.map(String) : undefined;
  if (typeof value !== 'string' && typeof value !== 'number') return undefined;
  const text = String(value);
  if (type === 'text') return text;
  if (type === 'flag') return text === '1' || (text === '0' ? false : undefined);
  if (type === 'number') return /^-?\d+$/.test(text) ? Number(text) : undefined;
  return type.includes(text) ? text : undefined;
}
