import type { Redis } from 'ioredis';
import { redisNowMs } from './clock.ts';
import { keyPrefix } from './key-prefix.ts';
import { defineNamedScript, REDIS_NOW } from './named-script.ts';
import { isFields, parseJson } from '../runtime/json.ts';

/* The processes of an installation, with the lines of their /readyz, for people. Each process
 * renews its entry every few seconds until it ends. An entry is `TIME JSON`, by Redis' clock. */

/** A process of sutler. */
export interface ProcessEntry {
  /** `ingest` or `jobs`. */
  readonly process: string;
  readonly instance: string;
  readonly version: string;
  /** The drivers that an ingest leads, or whose jobs a jobs process takes. Empty for older
   * versions, which don't say so. */
  readonly drivers: readonly string[];
  /** Failed checks and notes of its /readyz. */
  readonly lines: readonly string[];
}

/** Hash of the processes of an installation, by instance. */
function processesKey(prefix: string): string {
  return `${keyPrefix(prefix)}:processes`;
}

/** A process that has not renewed its entry for this long has ended. */
const GONE_MS = 10_000;

const writeScript = defineNamedScript({
  keys: ['processes'],
  args: { instance: 'text', entry: 'text', goneMs: 'number' },
  answers: { written: {} },
  lua: `${REDIS_NOW}
local entries = redis.call('HGETALL', processes)
for i = 1, #entries, 2 do
  local renewed = tonumber(string.match(entries[i + 1], '^%d+')) or 0
  if renewed < now - goneMs then redis.call('HDEL', processes, entries[i]) end
end
redis.call('HSET', processes, instance, string.format('%.0f ', now) .. entry)
redis.call('PEXPIRE', processes, goneMs)
return {'written'}
`,
});

/** Writes the entry of a process, and removes the entries of processes that have ended. A script,
 * which also shows whether Redis lets this process run scripts. */
export async function writeProcess(
  redis: Redis,
  prefix: string,
  { instance, ...entry }: ProcessEntry,
): Promise<void> {
  const args = { instance, entry: JSON.stringify(entry), goneMs: GONE_MS };
  await writeScript.run(redis, { processes: processesKey(prefix) }, args);
}

/** Removes the entry of a process that ends. */
export async function removeProcess(redis: Redis, prefix: string, name: string): Promise<void> {
  await redis.hdel(processesKey(prefix), name);
}

/** Returns the processes that are at work. */
export async function readProcesses(
  redis: Redis,
  prefix: string,
): Promise<readonly ProcessEntry[]> {
  const [entries, nowMs] = await Promise.all([
    redis.hgetall(processesKey(prefix)),
    redisNowMs(redis),
  ]);
  return Object.entries(entries)
    .filter(([, text]) => isAtWork(text, nowMs))
    .flatMap(([instance, text]) => parse(instance, text) ?? [])
    .sort((a, b) => (`${a.process} ${a.instance}` < `${b.process} ${b.instance}` ? -1 : 1));
}

function isAtWork(text: string, nowMs: number): boolean {
  return Number.parseInt(text, 10) >= nowMs - GONE_MS;
}

function parse(instance: string, text: string): ProcessEntry | undefined {
  const fields = parseJson(text.slice(text.indexOf(' ') + 1));
  if (!isFields(fields)) return undefined;
  const { process, version, drivers, lines } = fields;
  if (typeof process !== 'string') return undefined;
  const texts = { drivers: toTexts(drivers), lines: toTexts(lines) };
  return { process, instance, version: String(version), ...texts };
}

function toTexts(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.map(String) : [];
}
