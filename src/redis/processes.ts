import type { Redis } from 'ioredis';
import { keyPrefix } from './key-prefix.ts';
import { defineNamedScript, REDIS_NOW } from './named-script.ts';
import { isFields, parseJson } from '../runtime/json.ts';

/* The processes that work on an installation, for people to look at: what /readyz of each says.
 * Each writes its own entry every few seconds; one without news has ended. Times are Redis'. */

/** A process of sutler. */
export interface ProcessEntry {
  /** `ingest` or `jobs`. */
  readonly process: string;
  readonly instance: string;
  readonly version: string;
  readonly leads: readonly string[];
  /** Failed checks and notes of its /readyz. */
  readonly lines: readonly string[];
}

/** Hash of the processes of an installation, by instance. */
function processesKey(prefix: string): string {
  return `${keyPrefix(prefix)}:processes`;
}

/** Without news for so long, a process has ended. */
const GONE_MS = 10_000;

const writeScript = defineNamedScript({
  keys: ['processes'],
  args: { instance: 'text', text: 'text' },
  answers: { ok: {} },
  lua: `${REDIS_NOW}
local fields = redis.call('HGETALL', processes)
redis.call('HSET', processes, instance, string.format('%.0f %s', now, text))
redis.call('PEXPIRE', processes, ${GONE_MS})
for i = 1, #fields, 2 do
  local at = tonumber(string.match(fields[i + 1], '^%d+'))
  local isGone = not at or at < now - ${GONE_MS}
  if isGone and fields[i] ~= instance then redis.call('HDEL', processes, fields[i]) end
end
return {'ok'}
`,
});

/** Writes what a process says of itself, and removes those that have ended. */
export async function writeProcess(
  redis: Redis,
  prefix: string,
  { instance, ...entry }: ProcessEntry,
): Promise<void> {
  const text = JSON.stringify(entry);
  await writeScript.run(redis, { processes: processesKey(prefix) }, { instance, text });
}

/** Removes a process that ends. */
export async function removeProcess(redis: Redis, prefix: string, name: string): Promise<void> {
  await redis.hdel(processesKey(prefix), name);
}

/** The processes that are at work. */
export async function readProcesses(
  redis: Redis,
  prefix: string,
): Promise<readonly ProcessEntry[]> {
  const [entries, [seconds]] = await Promise.all([
    redis.hgetall(processesKey(prefix)),
    redis.time(),
  ]);
  const sinceMs = Number(seconds) * 1_000 - GONE_MS;
  return Object.entries(entries)
    .flatMap(([instance, text]) => parse(instance, text, sinceMs) ?? [])
    .sort((a, b) => (`${a.process} ${a.instance}` < `${b.process} ${b.instance}` ? -1 : 1));
}

/** @param sinceMs  when it must have been written, at the earliest */
function parse(instance: string, text: string, sinceMs: number): ProcessEntry | undefined {
  const [, atMs, json = ''] = /^(\d+) (.*)$/s.exec(text) ?? [];
  const fields = parseJson(json);
  if (Number(atMs) < sinceMs || !isFields(fields)) return undefined;
  const { process, version, leads, lines } = fields;
  if (typeof process !== 'string' || !Array.isArray(leads) || !Array.isArray(lines))
    return undefined;
  const texts = { leads: leads.map(String), lines: lines.map(String) };
  return { process, instance, version: String(version), ...texts };
}
